"""Files for backends that read none: their text goes into what is asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from caesar_server.contract import (
    Backend,
    BackendError,
    Capabilities,
    ChatRequest,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    Event,
    Request,
    ResearchParameters,
    ResearchRequest,
)

SKY = ("sky.txt", b"The sky is blue.")
FILE_TEXT = "File 'sky.txt':\nThe sky is blue."
CHAT = "/compat/chat/completions"
CHAT_BODY = {"messages": [{"role": "user", "content": "Why?"}]}


def _backend(*kinds: str) -> type[Backend]:
    """Return a backend that shows what it was asked, and reads no files."""

    class Showing(Backend):
        capabilities = Capabilities(accepts=frozenset(kinds))  # type: ignore[arg-type]

        def run(self, request: Request, context: Context) -> Iterator[Event]:
            if isinstance(request, ChatRequest):
                text = "|".join(f"{one.role}: {one.text}" for one in request.messages)
            else:
                text = getattr(request, "query", None) or request.prompts[0]  # type: ignore
            yield ContentDelta(f"{request.type}: {text}")
            yield ChoiceFinished()
            yield Completed()

    return Showing


def _research(served: Any, **body: Any) -> str:
    job_id = served.client.post("/research", json={"query": "Why?", **body}).json["id"]
    deadline = time.monotonic() + 60
    while (job := served.client.get(f"/research/{job_id}").json)["status"] != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.005)
    # the question stays what was asked
    assert job["query"] == "Why?"
    return str(job["content"])


def _upload(served: Any, *more: Any, **fields: Any) -> str:
    name, data = SKY
    return str(served.upload(data, name, **fields)["id"])


@pytest.mark.parametrize(
    ("kinds", "shown"),
    [
        (("chat",), f"chat: system: {FILE_TEXT}|user: Why?"),
        (("completion",), f"completion: Why?\n\n{FILE_TEXT}"),
        (("research", "chat"), f"research: Why?\n\n{FILE_TEXT}"),
    ],
)
def test_a_question_about_files(serve_files: Any, kinds, shown) -> None:
    served = serve_files(_backend(*kinds))
    assert _research(served, files=[_upload(served)]) == shown


def test_a_system_prompt_stays_first(serve_files: Any) -> None:
    served = serve_files(_backend("chat"))
    content = _research(served, files=[_upload(served)], system_prompt="Be brief.")
    assert content == f"chat: system: Be brief.\n{FILE_TEXT}|user: Why?"


@pytest.mark.parametrize(
    ("kinds", "shown"),
    [
        (("chat",), f"chat: system: Hm.\n{FILE_TEXT}|user: Why?"),
        (("completion",), f"completion: Why?\n{FILE_TEXT}"),
    ],
)
def test_a_chat_about_a_file(serve_files: Any, kinds, shown) -> None:
    served = serve_files(_backend(*kinds))
    part = {"type": "file", "file": {"file_id": _upload(served)}}
    messages = [
        {"role": "system", "content": "Hm."},
        {"role": "user", "content": [{"type": "text", "text": "Why?"}, part]},
    ]
    reply = served.client.post(
        "/compat/chat/completions", json={"model": "m", "messages": messages}
    )
    assert reply.json["choices"][0]["message"]["content"] == shown


def test_a_prompt_about_a_collection_in_the_order_of_its_uploads(serve_files: Any) -> None:
    served = serve_files(_backend("completion"))
    collection = served.collection()
    _upload(served, collection_id=collection)
    served.upload("Gras ist grün.".encode("utf-16"), "gras.txt", collection_id=collection)
    body = {"model": "m", "prompt": "Why?", "metadata": {"collection_ids": [collection]}}
    reply = served.client.post("/compat/completions", json=body)
    assert reply.json["choices"][0]["text"] == (
        f"completion: {FILE_TEXT}\n\nFile 'gras.txt':\nGras ist grün.\n\nWhy?"
    )


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 64, "only text can be given to it"),
        ("a.txt", b"x" * (256 * 1024 + 1), "262145 bytes, more than the 262144"),
        ("a.txt", b"x" * 70_000 + b"\0", "is no text: it has NUL"),
        ("a.csv", "Größe\n".encode() + "Größe\n".encode("cp1252"), "is no UTF-8 text"),
        ("a.txt", "Größe und noch mehr".encode() + b"\xc3", "is no UTF-8 text"),
        ("a.txt", b"\xef\xbb\xbfGr\xfcn", "is no UTF-8 text"),
        ("a.txt", b"\xff\xfe\x00\xd8a\0", "is no UTF-16 text"),
        ("a.txt", "Небо голубое.".encode("koi8-r"), "nor Windows-1252"),
        ("a.txt", "空は青い。".encode("shift-jis"), "nor Windows-1252"),
        ("a.txt", "天空是蓝色的。".encode("gbk"), "nor Windows-1252"),
        ("a.txt", b"not in Windows-1252: \x81", "nor Windows-1252"),
        ("a.txt", b"x" * 70_000 + b"\xfc\x02", "is no text: it has control"),
        ("a.bin", b"Gr\xfcn ist das Gras.", "only text can be given to it"),
    ],
)
def test_what_cannot_be_given_to_it_is_refused_and_nothing_begins(
    serve_files: Any, name, data, words
) -> None:
    served = serve_files(_backend("chat"))
    file_id = served.upload(data, name)["id"]
    reply = served.client.post("/research", json={"query": "q", "files": [file_id]})
    assert (reply.status_code, words in reply.json["error"]) == (400, True), reply.json
    assert served.client.get("/research").json["data"] == []


@pytest.mark.parametrize(
    ("kinds", "path", "body", "shown"),
    [
        (("chat",), CHAT, CHAT_BODY, "chat: user: Why?"),
        (("completion",), CHAT, CHAT_BODY, "completion: Why?"),
        (("completion",), "/compat/completions", {"prompt": "Why?"}, "completion: Why?"),
    ],
)
def test_an_empty_collection_adds_nothing(
    serve_files: Any, kinds: Any, path: str, body: Any, shown: str
) -> None:
    served = serve_files(_backend(*kinds))
    asked = {"model": "m", "metadata": {"collection_ids": [served.collection()]}, **body}
    (choice,) = served.client.post(path, json=asked).json["choices"]
    assert (choice.get("text") or choice["message"]["content"]) == shown


@pytest.mark.parametrize(
    ("kinds", "shown"),
    [(("chat",), "chat: user: Why?"), (("completion",), "completion: Why?")],
)
def test_an_empty_collection_adds_nothing_to_a_question(
    serve_files: Any, kinds: Any, shown: str
) -> None:
    served = serve_files(_backend(*kinds))
    assert _research(served, collection_ids=[served.collection()]) == shown


def test_a_message_of_a_file_alone_is_not_empty(serve_files: Any) -> None:
    served = serve_files(_backend("chat"))
    part = {"type": "file", "file": {"file_id": _upload(served)}}
    messages = [
        {"role": "user", "content": [part]},
        {"role": "user", "content": "Why?"},
    ]
    reply = served.client.post(CHAT, json={"model": "m", "messages": messages})
    assert reply.json["choices"][0]["message"]["content"] == (
        f"chat: system: {FILE_TEXT}|user: File 'sky.txt'|user: Why?"
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["a.txt", "a.svg", "a.xhtml", "a.eml"])
def test_text_in_other_encodings_and_kinds(serve_files: Any, encoding: str, name: str) -> None:
    served = serve_files(_backend("completion"))
    file_id = served.upload("Grün ist das Gras.".encode(encoding), name)["id"]
    assert _research(served, files=[file_id]) == (
        f"completion: Why?\n\nFile '{name}':\nGrün ist das Gras."
    )


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.md", "a.html"])
def test_text_in_an_older_encoding(serve_files: Any, encoding: str, name: str) -> None:
    served = serve_files(_backend("completion"))
    text = "Grün ist das Gras,\tà côté «Größe»" + (" – 5 €" if encoding == "cp1252" else "")
    file_id = served.upload(text.encode(encoding), name)["id"]
    assert _research(served, files=[file_id]) == f"completion: Why?\n\nFile '{name}':\n{text}"


def _gone(served: Any, request: Any) -> str:
    """Let the text of files be put in, and return what becomes of it."""
    with pytest.raises(BackendError) as failed:
        served.services.files.inlined("", request, Capabilities(accepts=frozenset()), "b")
    return failed.value.info().code


def test_what_is_gone_between_check_and_use_is_told(served: Any) -> None:
    """Left out it would be an answer from less than was asked for."""
    kept, gone = _upload(served), _upload(served)
    served.client.delete(f"/research/files/{gone}")
    asked = ResearchRequest(query="Why?", model="m", file_ids=(kept, gone))
    assert _gone(served, asked) == "file_not_found"
    collection = served.collection()
    served.client.delete(f"/research/collections/{collection}")
    parameters = ResearchParameters(collection_ids=(collection,))
    asked = ResearchRequest(query="Why?", model="m", parameters=parameters)
    assert _gone(served, asked) == "collection_not_found"
