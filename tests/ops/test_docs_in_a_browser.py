"""``/docs`` in headless Chromium, spoken to in its own protocol over two pipes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from caesar_server.testing import LiveServer

DEADLINE_S = 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",  # tests may run as root, where the sandbox does not
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-pipe",
)

pytestmark = [pytest.mark.slow]


class Tab:
    """A tab of a browser: commands go out on one pipe, replies and events come in on the other."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in = to_browser, from_browser
        self._rest = b""
        self._sent = 0
        self._session: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params, **self._session}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        return self._wait_for(lambda reply: reply.get("id") == message["id"])["result"]

    def load(self, url: str) -> None:
        self.events.clear()
        self.send("Page.navigate", url=url)
        if not self.all("Page.loadEventFired"):
            self._wait_for(lambda event: event.get("method") == "Page.loadEventFired")

    def evaluate(self, code: str) -> Any:
        result = self.send(
            "Runtime.evaluate", expression=code, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def all(self, method: str) -> list[dict[str, Any]]:
        """Return what events of this name said since the page began to load."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def _wait_for(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            *lines, self._rest = self._rest.split(b"\0")
            messages = [json.loads(line) for line in lines]
            self.events += [message for message in messages if "method" in message]
            for message in messages:
                if wanted(message):
                    assert "error" not in message, message
                    return message
            more = os.read(self._in, 65536)
            assert more, "the browser has ended"
            self._rest += more


@contextmanager
def chromium(path: str, profile: Path) -> Iterator[Tab]:
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    command = shlex.join([path, *FLAGS, f"--user-data-dir={profile}"])
    # The protocol's pipes are the descriptors 3 and 4.
    with (profile / "log").open("wb") as log:
        browser = subprocess.Popen(
            ["bash", "-c", f"exec {command} 3<&{in_read} 4>&{out_write}"],
            pass_fds=(in_read, out_write),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.close(in_read)
    os.close(out_write)
    try:
        yield Tab(in_write, out_read)
    finally:
        browser.terminate()
        try:
            browser.wait(DEADLINE_S)
        finally:
            browser.kill()
            browser.wait()
            os.close(in_write)
            os.close(out_read)


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("chromium is not installed")
    with chromium(path, tmp_path) as opened:
        yield opened


@pytest.fixture
def base_url(app: Flask) -> Iterator[str]:
    with LiveServer(app) as server:
        yield server.base_url


def test_the_page_renders_and_asks_nobody_else(tab: Tab, base_url: str, document) -> None:
    tab.load(f"{base_url}/docs")
    headings = tab.evaluate("[...document.querySelectorAll('h1, h3')].map(h => h.innerText)")
    assert headings[0].startswith("caesar-server")
    summaries = [
        item[m]["summary"]
        for item in document["paths"].values()
        for m in item
        if m in ("get", "post", "patch", "delete")
    ]
    assert sorted(headings[1:]) == sorted(summaries)
    # the stylesheet and the script were let in by the policy, and work
    assert tab.evaluate("getComputedStyle(document.body).display") == "grid"
    samples = tab.evaluate("document.querySelectorAll('.sample').length")
    assert tab.evaluate("document.querySelectorAll('.sample .copy').length") == samples > 10
    asked = [event["request"]["url"] for event in tab.all("Network.requestWillBeSent")]
    assert {f"{base_url}/docs", f"{base_url}/docs/docs.css", f"{base_url}/docs/copy.js"} <= set(
        asked
    )
    assert [url for url in asked if not url.startswith(f"{base_url}/")] == []
    for kind in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
        assert tab.all(kind) == []


def test_a_script_from_elsewhere_would_be_noticed(tab: Tab, base_url: str) -> None:
    tab.load(f"{base_url}/docs")
    tab.evaluate(
        "document.head.append(Object.assign(document.createElement('script'), {src: 'https://a.example/x.js'}))"
    )
    deadline = time.monotonic() + DEADLINE_S
    while not tab.all("Log.entryAdded"):
        assert time.monotonic() < deadline
        tab.evaluate("0")
    assert "Content Security Policy" in tab.all("Log.entryAdded")[0]["entry"]["text"]


def test_it_fits_a_phone(tab: Tab, base_url: str) -> None:
    tab.send(
        "Emulation.setDeviceMetricsOverride",
        width=360,
        height=740,
        deviceScaleFactor=2,
        mobile=True,
    )
    tab.load(f"{base_url}/docs")
    assert tab.evaluate("innerWidth") == 360
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    # tables need no sideways scrolling
    wide = "[...document.querySelectorAll('details[open] .scroll, article > .scroll')]"
    assert tab.evaluate(f"{wide}.filter(box => box.scrollWidth > box.clientWidth).length") == 0


def test_it_follows_the_readers_colours(tab: Tab, base_url: str) -> None:
    seen = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        tab.send("Emulation.setEmulatedMedia", features=[feature])
        tab.load(f"{base_url}/docs")
        seen.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert seen == ["rgb(255, 255, 255)", "rgb(20, 24, 29)"]


def test_a_link_leads_to_its_operation(tab: Tab, base_url: str) -> None:
    tab.load(f"{base_url}/docs#retrieve_model")
    top = tab.evaluate("document.getElementById('retrieve_model').getBoundingClientRect().top")
    assert 0 <= top < 60
    assert tab.evaluate(
        "[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))"
    )


def test_a_command_can_be_copied(tab: Tab, base_url: str) -> None:
    tab.load(f"{base_url}/docs")
    tab.evaluate("document.querySelector('.copy').click()")
    deadline = time.monotonic() + DEADLINE_S
    while (label := tab.evaluate("document.querySelector('.copy').textContent")) == "Copy":
        assert time.monotonic() < deadline
    if label == "Selected":  # the clipboard is closed to pages here
        assert tab.evaluate("getSelection().toString()").startswith("curl -s")
    else:
        assert label == "Copied"
