"""Names of uploads, as they are shown."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesar_server.web.uploads.names import display_name


@pytest.mark.parametrize(
    ("given_name", "shown"),
    [
        (None, "upload"),
        ("", "upload"),
        ("   ", "upload"),
        (".", "upload"),
        ("..", "upload"),
        ("../", "upload"),
        ("report.pdf", "report.pdf"),
        ("my report (1).pdf", "my report (1).pdf"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("C:\\Users\\me\\a.txt", "a.txt"),
        ("a/b\\c/d.txt", "d.txt"),
        ("a\x00b\r\nc\t.txt", "abc.txt"),
        ("\x1b[31mred.txt", "[31mred.txt"),
        ("invoice\u202efdp.exe", "invoicefdp.exe"),
        ("\u2066a\u2069\u200f.txt\ufeff", "a.txt"),
        ("line\u2028break.txt", "linebreak.txt"),
        ("e\u0301te\u0301.txt", "\u00e9t\u00e9.txt"),
        ("\u0645\u06cc\u200c\u062e.txt", "\u0645\u06cc\u200c\u062e.txt"),
        (".env", ".env"),
        ("a" * 300 + ".docx", "a" * 250 + ".docx"),
        ("a" * 300, "a" * 255),
        ("a." + "b" * 300, "a." + "b" * 253),
    ],
)
def test_names_are_made_fit_to_be_shown(given_name: str | None, shown: str) -> None:
    assert display_name(given_name) == shown


@given(st.text(max_size=400))
@settings(max_examples=300, deadline=None)
def test_every_name_is_short_visible_and_no_path(given_name: str) -> None:
    shown = display_name(given_name)
    assert 0 < len(shown) <= 255
    assert not set(shown) & set("/\\\0")
    assert shown.strip(" .")
    assert all(unicodedata.category(char) not in ("Cc", "Cs") for char in shown)
    assert unicodedata.is_normalized("NFC", shown)
    assert display_name(shown) == shown
