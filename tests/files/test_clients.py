"""The official client of Caesar, and OpenAI's, against a real server."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caesar_server.testing.live import LiveServer

caesar = pytest.importorskip("caesar")
openai = pytest.importorskip("openai")


@pytest.fixture
def url(serve_files: Any) -> Iterator[str]:
    with LiveServer(serve_files().app) as live:
        yield live.base_url


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with caesar.Caesar(api_key="any", base_url=url, max_retries=0) as client:
        yield client


def test_bytes_a_path_and_a_handle_are_uploaded(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("# Notes\n")
    with path.open("rb") as handle:
        told = [client.research.files.create(file=file) for file in (b"raw", path, handle)]
    assert [(one.file_name, one.content_type) for one in told] == [
        ("upload", "text/plain"),
        ("notes.md", "text/markdown"),
        ("notes.md", "text/markdown"),
    ]
    named = client.research.files.create(file=("a.csv", io.BytesIO(b"a,b\n"), "text/plain"))
    assert (named.file_name, named.content_type) == ("a.csv", "text/csv")


def test_all_pages_are_read(client: Any) -> None:
    made = [client.research.files.create(file=b"%d" % number).id for number in range(5)]
    listed = [file.id for file in client.research.files.list(limit=2)]
    assert listed == made[::-1]


def test_a_refusal_is_the_clients_own_error(client: Any) -> None:
    with pytest.raises(caesar.BadRequestError, match="the file is empty"):
        client.research.files.create(file=b"")


@pytest.mark.parametrize("key", ["file_id", "fileData"])
def test_a_chat_over_files(url: str, client: Any, key: str) -> None:
    ids = [client.research.files.create(file=text).id for text in (b"one", b"two", b"three")]
    content = [{"type": "text", "text": "What do they say?"}]
    content += [{"type": "file", "file": {key: id_}} for id_ in ids]
    with openai.OpenAI(api_key="any", base_url=f"{url}/compat", max_retries=0) as sdk:
        ask = sdk.chat.completions.create
        messages: Any = [{"role": "user", "content": content}]
        answer = ask(model="m", messages=messages).choices[0].message.content
        assert [word in answer for word in ("one", "two", "three")] == [True] * 3
        streamed = "".join(
            chunk.choices[0].delta.content or ""
            for chunk in ask(model="m", messages=messages, stream=True)
        )
        assert streamed == answer
        messages[0]["content"][1]["file"][key] = "gone"
        with pytest.raises(openai.BadRequestError, match="unknown file 'gone'"):
            ask(model="m", messages=messages)
