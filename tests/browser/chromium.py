"""A page in a real browser: Chromium without a window, spoken to over its debugging pipe.

No library and no port: messages are JSON, ended by a zero byte, on two inherited file descriptors.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *(
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--hide-scrollbars",
    ),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
)

PATIENCE = 120  # seconds
KEYS = {"Enter": ("Enter", 13, "\r"), "ArrowLeft": ("ArrowLeft", 37, ""), "ArrowRight": ("ArrowRight", 39, "")}
# Moves its ends of the pipes to 3 and 4, where Chromium looks for them, and becomes Chromium.
START = (
    "import fcntl, os, sys\n"
    "ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]\n"
    "os.dup2(ends[0], 3)\n"
    "os.dup2(ends[1], 4)\n"
    "os.execv(sys.argv[3], sys.argv[3:])"
)


class Page:
    """One tab, opened on a file where one is given; ``errors`` are its console's complaints and failed requests."""

    def __init__(
        self, file: Path | None = None, *, width: int = 1280, height: int = 900, dark: bool = False, media: str = ""
    ) -> None:
        assert EXECUTABLE is not None
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._events: list[dict[str, Any]] = []
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        command = [EXECUTABLE, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(to_browser), str(from_browser), *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session = ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        if file is not None:
            self.open(file.resolve().as_uri())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def open(self, address: str) -> None:
        """Go there, and wait until it is loaded."""
        self._events.clear()
        self._call("Page.navigate", url=address)
        self._until("Page.loadEventFired")

    def wait_for(self, expression: str) -> None:
        """Until a script's expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.run(f"Boolean({expression})"):
            assert time.monotonic() < end, f"it never became true: {expression}; {self.errors}"

    def press(self, key: str) -> None:
        """A key, down and up."""
        name, code, text = KEYS.get(key, (key, ord(key.upper()[0]), key))
        about = {"key": name, "windowsVirtualKeyCode": code}
        self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self._call("Input.dispatchKeyEvent", type="keyUp", **about)

    def run(self, script: str) -> Any:
        """What a script's last expression is worth on the page."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        """A picture of the page as it is now."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _until(self, event: str) -> None:
        while not any(seen["method"] == event for seen in self._events):
            self._read()

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._in], [], [], PATIENCE)[0], "the browser does not answer"
            more = os.read(self._in, 1 << 20)
            assert more, "the browser has gone"
            self._buffer += more
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(raw)
        if "method" in message:
            self._note(message)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        self._events.append({"method": event["method"]})
        what = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(what["exceptionDetails"])[:500])
        elif event["method"] == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(what["args"])[:500])
        elif event["method"] == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.errors.append(what["entry"]["text"])
        elif event["method"] == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"][:80])
