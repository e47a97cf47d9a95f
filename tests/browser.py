"""A headless Chromium, driven over its debugging pipe: no package, no port."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Self

_KEYS = {"Enter": ("Enter", 13, "\r"), "ArrowLeft": ("ArrowLeft", 37, ""), "ArrowRight": ("ArrowRight", 39, "")}
PATIENCE = 30


class Browser:
    """One page: open an address, ask JavaScript, press keys; what the console complains of is kept."""

    def __init__(self, command: str, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"]
        # Chromium reads commands from descriptor 3 and answers on 4.
        start = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", start, "browser", command, *options, "--remote-debugging-pipe"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._count = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        self._process.terminate()
        self._process.wait(PATIENCE)
        os.close(self._read)

    def open(self, address: str) -> None:
        """Go to this page."""
        self._send("Page.navigate", url=address)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self._send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Until the expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.ask(f"Boolean(document.readyState == 'complete' && ({expression}))"):
            if time.monotonic() > end:
                raise AssertionError(f"it never became true: {expression}; {self.complaints}")

    def press(self, key: str) -> None:
        """A key, down and up."""
        name, code, text = _KEYS.get(key, (key, ord(key.upper()[0]), key))
        about = {"key": name, "windowsVirtualKeyCode": code}
        self._send("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self._send("Input.dispatchKeyEvent", type="keyUp", **about)

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self._keep_complaint(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._read, 1 << 16)
            if not read:
                raise AssertionError("the browser has gone")
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def _keep_complaint(self, event: dict[str, Any]) -> None:
        about = event.get("params", {})
        if event.get("method") == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.complaints.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(about["exceptionDetails"]))
        if event.get("method") == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
            self.complaints.append(str(about["args"]))
