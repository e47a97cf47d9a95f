"""Stores that tests fetch from: a folder served on this machine."""

import functools
import http.server
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Server(http.server.ThreadingHTTPServer):
    """A folder on 127.0.0.1, with ranges, counting what is fetched; names in ``broken`` break off half-way."""

    def __init__(self, folder: Path, *, ranges: bool = True) -> None:
        self.fetched: Counter[str] = Counter()
        self.broken: set[str] = set()
        self.refused: dict[str, int] = {}
        self.ranges = ranges
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
        self.address = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.SimpleHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.strip("/")
        self.server.fetched[name] += 1
        if name in self.server.refused:
            self.send_error(self.server.refused[name])
            return
        path = Path(self.directory) / name
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        start, stop = 0, len(content)
        if self.server.ranges and "Range" in self.headers:
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1 if last else stop, stop)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        piece = content[start:stop]
        self.wfile.write(piece[: len(piece) // 2] if name in self.server.broken else piece)

    def do_HEAD(self) -> None:
        if self.path.strip("/") in self.server.refused:
            self.send_error(self.server.refused[self.path.strip("/")])
        else:
            super().do_HEAD()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(folder: Path, *, ranges: bool) -> Iterator[Server]:
    """The folder, served until the end of the block."""
    running = Server(folder, ranges=ranges)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join(10)
