"""The review page, served to this machine alone."""

import json
import re
import secrets
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from acpl.errors import UserError
from acpl.labelling.decisions import Decisions
from acpl.labelling.queue import Item

ADDRESS = "127.0.0.1"
LONGEST_REQUEST = 64 * 1024
_FILES = {
    "": ("review.html", "text/html; charset=utf-8"),
    "review.js": ("review.js", "text/javascript; charset=utf-8"),
    "review.css": ("review.css", "text/css; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
_IMAGE = re.compile(r"image/(\d{1,12})\.png")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ReviewServer(ThreadingHTTPServer):
    """Answers on 127.0.0.1 to whoever knows the token, and only to a page of its own.

    A request is refused when it was sent to another host name (so that no foreign name can be bound to this address),
    comes from another origin, or does not bear the token.
    """

    daemon_threads = True

    def __init__(
        self,
        title: str,
        classes: Sequence[str],
        queue: Sequence[Item],
        decisions: Decisions,
        picture: Callable[[int], bytes],
        *,
        port: int = 0,
    ) -> None:
        self.title = title
        self.classes = list(classes)
        self.queue = list(queue)
        self.decisions = decisions
        self.picture = picture
        self.token = secrets.token_urlsafe(24)
        shown = [item.id for item in queue]
        self.visible = {*shown, *(int(other["id"]) for item in queue for other in item.nearest)}
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UserError(f"port {port} on {ADDRESS} cannot be used: {error}; choose another --port") from None

    def server_close(self) -> None:
        """Stop listening, and let go of the files."""
        super().server_close()
        self.decisions.close()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """What to open in a browser; whoever has it may review."""
        return f"http://{ADDRESS}:{self.port}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, str]:
        """The names that a request may be sent to."""
        return f"{ADDRESS}:{self.port}", f"localhost:{self.port}"

    def state(self) -> dict[str, Any]:
        """Everything that the page shows."""
        return {
            "title": self.title,
            "task": str(self.decisions.task),
            "classes": self.classes,
            "items": [item.as_dict() for item in self.queue],
            "decided": {str(key): list(found.labels) for key, found in self.decisions.current.items()},
            "saved_to": str(self.decisions.table.path),
        }


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    server_version = "acpl"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """The page, its queue, an image of it."""
        path = self._allowed()
        if path is None:
            return
        if path in _FILES:
            name, kind = _FILES[path]
            self._send((resources.files("acpl.labelling") / "page" / name).read_bytes(), kind)
        elif path == "queue.json":
            self._send(json.dumps(self.server.state()).encode(), "application/json")
        elif (found := _IMAGE.fullmatch(path)) and int(found[1]) in self.server.visible:
            self._send(self.server.picture(int(found[1])), "image/png")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")

    def do_POST(self) -> None:
        """A decision, or the wish to take the last one back."""
        path = self._allowed()
        if path is None:
            return
        if path not in ("decide", "undo"):
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
            return
        try:
            asked = self._body()
            answer = self._decide(asked) if path == "decide" else {"id": self.server.decisions.undo()}
        except ValueError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except UserError as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        else:
            self._send(json.dumps(answer).encode(), "application/json")

    def _decide(self, asked: dict[str, Any]) -> dict[str, Any]:
        sample, labels = asked.get("id"), asked.get("labels")
        if type(sample) is not int or not isinstance(labels, list) or not all(isinstance(x, str) for x in labels):
            raise ValueError("a decision has an id and a list of labels")
        decided = self.server.decisions.decide(sample, labels)
        return {"id": sample, "labels": list(decided.labels), "action": decided.action}

    def _body(self) -> dict[str, Any]:
        if self.headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
            raise ValueError("a request should be JSON")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LONGEST_REQUEST:
            raise ValueError(f"a request should say its length, at most {LONGEST_REQUEST} bytes")
        asked = json.loads(self.rfile.read(int(length)))
        if not isinstance(asked, dict):
            raise ValueError("a request should be a JSON object")
        return asked

    def _allowed(self) -> str | None:
        """The path after the token; None when the request was refused."""
        token, _, path = self.path.partition("?")[0].removeprefix("/").partition("/")
        if self.headers.get("Host") not in self.server.hosts:
            self._refuse(HTTPStatus.FORBIDDEN, "this host name is not served")
        elif self._of_another_page():
            self._refuse(HTTPStatus.FORBIDDEN, "requests of other pages are not served")
        elif not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "the token is wrong; open the address that acpl review printed")
        else:
            return path
        return None

    def _of_another_page(self) -> bool:
        """Whether a browser says so; what changes something has to name its origin, as every browser does."""
        origin = self.headers.get("Origin")
        own = [f"http://{host}" for host in self.server.hosts]
        if (origin is not None or self.command != "GET") and origin not in own:
            return True
        return self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self._send(f"{reason}\n".encode(), "text/plain; charset=utf-8", status)

    def _send(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — the name that the base class gives it
        """Nothing: addresses hold the token."""
