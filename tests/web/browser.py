"""A real Chromium, driven through chromedriver with the W3C WebDriver protocol: the few calls we need, no library."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Down": "\ue015", "Right": "\ue014", "End": "\ue010"}
MISSING = "needs chromium and chromedriver: run tools/browser.sh"
PATIENCE_SECONDS = 60.0


def available() -> bool:
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """One window."""

    def __init__(self, driver: str, session: str, folder: str) -> None:
        self._base = f"{driver}/session/{session}"
        self.folder = folder

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _call(method, self._base + path, body if method == "POST" else None)

    def open(self, url: str) -> None:
        """Load the page and wait until it has its data."""
        self.call("POST", "/url", {"url": url})
        self.wait("document.documentElement.dataset.ready === 'yes'")

    def run(self, script: str, *args: Any) -> Any:
        """Run the body of a function and return what it returns."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def value(self, expression: str) -> Any:
        return self.run(f"return ({expression});")

    def wait(self, expression: str) -> Any:
        """Until the expression is true in the page; what it is then."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not (found := self.value(expression)):
            if time.monotonic() > end:
                raise AssertionError(f"waited {PATIENCE_SECONDS:g} s for {expression}; the page says: {self.text()}")
            time.sleep(0.03)
        return found

    def do(self, script: str, *args: Any) -> None:
        """Run something that the page answers turn by turn, and wait until everything is drawn."""
        self.run(script, *args)
        self.wait("!toDraw.size")

    def text(self, selector: str = "body") -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? '';", selector))

    def texts(self, selector: str) -> list[str]:
        found = self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent);", selector)
        return [str(item) for item in found]

    def click(self, selector: str) -> None:
        found = self.call("POST", "/element", {"using": "css selector", "value": selector})
        self.call("POST", f"/element/{found[ELEMENT]}/click", {})

    def press(self, *keys: str) -> None:
        """Press keys one after the other: names of special keys, or text."""
        pressed = [KEYS.get(key, letter) for key in keys for letter in ([key] if key in KEYS else key)]
        actions = [{"type": kind, "value": key} for key in pressed for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def devtools(self, command: str, **params: Any) -> Any:
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def colours(self, scheme: str) -> None:
        """Prefer light or dark."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def size(self, width: int, height: int) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("GET", "/screenshot"))


@contextlib.contextmanager
def browser(width: int = 1440, height: int = 900) -> Iterator[Browser]:
    """A window of this size; everything it wrote and every process is gone at the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _driver(folder) as driver:
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += [
            f"--user-data-dir={folder}/profile",
            f"--window-size={width},{height}",
            "--disable-background-networking",
        ]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": flags}}
        made = _call("POST", f"{driver}/session", {"capabilities": {"alwaysMatch": wanted}})
        window = Browser(driver, made["sessionId"], folder)
        window.size(width, height)
        try:
            yield window
        finally:
            window.call("DELETE", "")


@contextlib.contextmanager
def _driver(folder: str) -> Iterator[str]:
    environment = {**os.environ, "HOME": folder, "TMPDIR": folder}
    command = ["chromedriver", "--port=0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert process.stdout is not None
    try:
        started = (line for line in process.stdout if "started successfully on port" in line)
        port = next(started).rstrip().rstrip(".").rpartition(" ")[2]
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _call(method: str, url: str, body: dict[str, Any] | None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with _direct.open(request, timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        with error:
            said = json.load(error)["value"]
        raise AssertionError(f"{method} {url}: {said['error']}: {said['message']}") from None
