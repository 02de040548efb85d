"""Drive Chromium over its DevTools pipe with the standard library, as far as the tests of the pages need it."""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHROMIUM = "/usr/bin/chromium"
FLAGS = """--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update
--disable-sync --disable-dev-shm-usage --disable-extensions --hide-scrollbars --remote-debugging-pipe""".split()
KEYS = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9, " ": 32}


class Browser:
    """A Chromium process."""

    def __init__(self, profile: Path) -> None:
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        # Chromium reads from fd 3 and writes to fd 4. Our pipes may have these numbers, so move them up first.
        high = [os.dup(fd) for fd in (to_child, from_child)]
        while min(high) <= 4:
            high = [os.dup(fd) for fd in high]

        def place() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=place,
            start_new_session=True,
            env={**os.environ, "HOME": str(profile)},
        )
        for fd in (to_child, from_child, *high):
            os.close(fd)
        self._buffer = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []

    def page(self, url: str = "about:blank") -> Page:
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session, target)
        page.open(url)
        return page

    def call(self, method: str, params: dict[str, Any] | None = None, session: str = "", timeout: float = 30) -> Any:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        deadline = time.monotonic() + timeout
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == message["id"]:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            if answer.get("method") == "Page.javascriptDialogOpening":
                # An open dialog would block the page, so accept it. Tests check whether one was opened.
                self._count += 1
                closing = {"id": self._count, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
                os.write(self._write, json.dumps(closing | {"sessionId": answer["sessionId"]}).encode() + b"\0")
            if "method" in answer:
                self.events.append(answer)

    def _next(self, deadline: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self._read], [], [], left)[0], f"no answer to {what}"
            data = os.read(self._read, 1 << 16)
            assert data, f"the browser ended during {what}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        os.close(self._write)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self._read)


class Page:
    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, params, self._session)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def close(self) -> None:
        self._browser.call("Target.closeTarget", {"targetId": self._target})

    def get(self, expression: str) -> Any:
        """Evaluate an expression in the page and return its value; promises are awaited."""
        said = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, f"{expression}: {said['exceptionDetails']}"
        return said["result"].get("value")

    def wait(self, expression: str, timeout: float = 20) -> Any:
        """Wait until the expression has a true value and return it."""
        return self.until(lambda: self.get(expression), expression, timeout)

    def until(self, condition: Callable[[], Any], what: str = "", timeout: float = 20) -> Any:
        deadline = time.monotonic() + timeout
        while not (value := condition()) and value != {}:  # an element is serialised as an empty object
            assert time.monotonic() < deadline, f"still {value!r}: {what}"
            time.sleep(0.02)
        return value

    def text(self, selector: str) -> str:
        """Return the text of an element, including parts scrolled out of view, which innerText omits."""
        return str(self.get(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def count(self, selector: str) -> int:
        """Return the number of visible elements that match."""
        query = f"[...document.querySelectorAll({json.dumps(selector)})].filter((e) => e.offsetParent !== null).length"
        return int(self.get(query))

    def click(self, selector: str, nth: int = 0) -> None:
        """Click in the middle of the visible part of an element."""
        place = self.wait(
            f"""(() => {{ const e = [...document.querySelectorAll({json.dumps(selector)})].filter((e) => e.offsetParent !== null)[{nth}];
            if (!e) return null; e.scrollIntoView({{block: "center"}}); const r = e.getBoundingClientRect();
            return [r.x + r.width / 2, r.y + r.height / 2]; }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def key(self, *keys: str) -> None:
        for key in keys:
            code = KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
            more = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def scheme(self, name: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def events(self, *methods: str) -> list[dict[str, Any]]:
        self.get("1")
        return [
            event["params"]
            for event in self._browser.events
            if event.get("sessionId") == self._session and event["method"] in methods
        ]

    def complaints(self) -> list[str]:
        """Return console messages: exceptions, errors, warnings, and violations of the security policy."""
        said = [json.dumps(event) for event in self.events("Runtime.exceptionThrown", "Log.entryAdded")]
        calls = self.events("Runtime.consoleAPICalled")
        return said + [json.dumps(event) for event in calls if event["type"] in ("error", "warning", "assert")]

    def requests(self) -> list[str]:
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def dialogs(self) -> list[str]:
        return [event["message"] for event in self.events("Page.javascriptDialogOpening")]
