"""``/docs``: the description as a page that needs nothing from elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

import caesar_server
from caesar_server.blueprints.ops.page import curl, page_sections
from caesar_server.blueprints.ops.prose import prose
from caesar_server.blueprints.ops.schema_rows import bounds_words, schema_rows, type_words
from caesar_server.testing import LiveServer

STATIC = Path(caesar_server.__file__).parent / "blueprints" / "ops" / "static"
#: Elements without an end tag.
VOID = {"meta", "link", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """What a test wants to know of a page; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.headings: list[str] = []
        self.commands: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self._label = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.attributes.append((tag, given))
        if tag not in VOID:
            self.open.append(tag)
        if given.get("id"):
            self.ids.append(given["id"] or "")
        for name in ("href", "src"):
            if given.get(name):
                self.links.append(given[name] or "")
        if tag in ("h1", "h2", "h3"):
            self.headings.append("")
        if tag == "pre":
            self._label = given["aria-label"] or ""
            if self._label.startswith("Shell"):
                self.commands.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"h1", "h2", "h3"} & set(self.open):
            self.headings[-1] += data
        if "pre" in self.open and self._label.startswith("Shell"):
            self.commands[-1] += data


@pytest.fixture
def page(app: Flask) -> Page:
    return Page(app.test_client().get("/docs").text)


def test_it_is_html_that_may_load_nothing_from_elsewhere(app: Flask) -> None:
    client = app.test_client()
    for path in ("/docs", "/docs/", "/docs/docs.css", "/docs/copy.js", "/docs/icon.svg"):
        with client.get(path) as reply:
            assert reply.status_code == 200
            policy = reply.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert client.get("/docs").content_type == "text/html; charset=utf-8"


@pytest.mark.parametrize("path", ["/docs", "/docs/"])
@pytest.mark.parametrize("prefix", ["", "/behind/a/proxy"])
def test_all_that_it_links_to_is_served_here(app: Flask, path: str, prefix: str) -> None:
    """Also where a proxy takes the beginning of each path away."""
    client = app.test_client()
    page = Page(client.get(path).text)
    assert len(page.links) > 10
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            asked = urllib.parse.urljoin(prefix + path, link)
            assert asked.startswith(f"{prefix}/")
            with client.get(asked.removeprefix(prefix)) as reply:
                assert reply.status_code == 200


def test_it_has_no_inline_script_or_style(page: Page) -> None:
    for tag, given in page.attributes:
        assert tag != "style"
        assert "style" not in given
        assert not [name for name in given if name.startswith("on")]
        assert tag != "script" or given["src"]


def test_every_operation_has_a_section_with_an_anchor(page: Page, document) -> None:
    assert len(set(page.ids)) == len(page.ids)
    for item in document["paths"].values():
        for method in ("get", "post"):
            if method in item:
                assert item[method]["operationId"] in page.ids
                assert item[method]["summary"] in page.headings


def test_a_person_who_does_not_see_it_can_use_it(page: Page) -> None:
    tags = [tag for tag, _ in page.attributes]
    assert ("html", {"lang": "en"}) in page.attributes
    assert tags.count("main") == tags.count("h1") == 1
    assert tags.count("caption") == tags.count("table") > 5
    for tag, given in page.attributes:
        if tag == "th":
            assert given["scope"] in ("row", "col")
        if tag in ("nav", "pre"):
            assert given["aria-label"]
    # What scrolls can be scrolled with keys.
    for tag, given in page.attributes:
        if tag == "pre" or given.get("class") == "scroll":
            assert given["tabindex"] == "0"


def test_an_asset_that_is_none_is_not_found(app: Flask) -> None:
    client = app.test_client()
    for name in ("none.css", "../docs.py", "%2e%2e/docs.py", ".."):
        reply = client.get(f"/docs/{name}")
        assert (reply.status_code, set(reply.json)) == (404, {"error"})


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_have_the_contrast_that_wcag_asks_for() -> None:
    schemes = re.findall(r":root \{(.*?)\}", (STATIC / "docs.css").read_text(), re.DOTALL)
    assert len(schemes) == 2  # light, dark
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#\w+);", scheme))
        for text in ("text", "quiet", "link", "method"):
            for back in ("back", "raised"):
                dark, light = sorted(luminance(colours[name]) for name in (text, back))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, back)


#: Of jobs, files and collections in the description.
EXAMPLE_ID = "9c6f8b1a-2a4f-4a35-86b9-0d0b5e25d5e5"


def test_its_commands_do_what_they_say(app: Flask, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the commands need curl")
    with LiveServer(app) as server:
        with urllib.request.urlopen(f"{server.base_url}/docs", timeout=60) as reply:
            page = Page(reply.read().decode())
        assert len(page.commands) > 40
        (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.7 and so on")
        for command in page.commands:
            command = command.replace("/models/caesar-research", "/models/able")
            # nothing has the id of an example
            fail = "" if EXAMPLE_ID in command.partition("-H")[0] else " -f"
            result = subprocess.run(
                ["sh", "-c", f"{command}{fail}"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=30,
            )
            assert result.returncode == 0, command + result.stderr
            if not fail:
                assert json.loads(result.stdout) == {"error": "Resource not found"}, command
            if '"stream": true' in command:
                assert result.stdout.endswith("data: [DONE]\n\n")
            elif "completions" in command:
                assert json.loads(result.stdout)["choices"]


def test_a_quote_in_a_body_stays_inside_the_command(tmp_path: Path) -> None:
    body = {"prompt": 'it\'s $(touch made) \\ "so"'}
    text = curl("post", "http://127.0.0.1:1/a b", body).replace("curl -s", "printf '%s\\n'", 1)
    printed = subprocess.run(["sh", "-c", text], cwd=tmp_path, capture_output=True, text=True)
    assert json.dumps(body, indent=2) in printed.stdout
    assert list(tmp_path.iterdir()) == []


def test_what_a_description_says_is_no_html() -> None:
    text = "a <b> & `c <d>`\n\n- one\n- `two`"
    assert str(prose(text)) == (
        "<p>a &lt;b&gt; &amp; <code>c &lt;d&gt;</code></p>"
        "<ul><li>one</li><li><code>two</code></li></ul>"
    )
    assert str(prose("")) == ""


@pytest.mark.parametrize(
    ("schema", "words", "bounds"),
    [
        ({"type": "integer", "minimum": 1}, "integer", "at least 1"),
        ({"type": "number", "minimum": -2, "maximum": 2.5}, "number", "-2 to 2.5"),
        ({"type": "integer", "minimum": -(2**63)}, "integer", "at least -2^63"),
        ({"type": ["null", "string"], "minLength": 1}, "string or null", "not empty"),
        ({"type": "array", "items": {"type": "string"}}, "list of strings", ""),
        ({"type": "array", "maxItems": 4}, "list of anything", "at most 4 items"),
        ({"anyOf": [{"type": "integer", "maximum": 9}, {}]}, "integer or anything", "at most 9"),
        ({"const": "list"}, '"list"', ""),
        ({"type": ["string", "null"], "enum": ["a", None]}, '"a" or null', ""),
        ({}, "anything", ""),
        ({"$ref": "#/x"}, "boolean", ""),
    ],
)  # fmt: skip
def test_a_schema_in_words(schema: dict[str, Any], words: str, bounds: str) -> None:
    document = {"x": {"type": "boolean"}}
    assert type_words(document, schema) == words
    assert bounds_words(document, schema) == bounds


def test_rows_show_what_is_inside_lists_and_alternatives() -> None:
    schema = {
        "required": ["b"],
        "properties": {
            "a": {"anyOf": [{"$ref": "#/inner"}, {"type": "null"}]},
            "b": {"type": "array", "items": {"properties": {"c": {"type": "integer"}}}},
        },
    }
    inner = {"type": "object", "properties": {"d": {"type": "string", "default": "x"}}}
    rows = list(schema_rows({"inner": inner}, schema))
    assert [(row.name, row.required) for row in rows] == [
        ("b", True),
        ("b[].c", False),
        ("a", False),
        ("a.d", False),
    ]
    assert rows[3].default == '"x"'
    assert rows[2].type == "object"


def test_a_schema_that_holds_itself_ends() -> None:
    document = {"node": {"properties": {"next": {"$ref": "#/node"}}}}
    assert 1 < len(list(schema_rows(document, {"$ref": "#/node"}))) < 10


def test_sections_follow_the_tags(document) -> None:
    sections = page_sections(document, "http://h")
    names = [section.name for section in sections]
    assert names == ["OpenAI-compatible", "Research", "Files", "Operations"]
    first = sections[0].operations[0]
    assert (first.anchor, first.method, first.path) == (
        "create_completion",
        "POST",
        "/compat/completions",
    )
    assert first.examples[0].curl.startswith("curl -s http://h/compat/completions")
