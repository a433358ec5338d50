"""Files and collections in requests: checked, lent to the run, refused where nobody reads them."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from caesar_server.contract import (
    Backend,
    Capabilities,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    Event,
    Request,
)

CHAT, TEXT, FILES = "/compat/chat/completions", "/compat/completions", "/research/files"


def ask(served: Any, *parts: dict[str, Any], **more: Any) -> Any:
    """Ask in a chat about files."""
    content = [{"type": "text", "text": "What is in it?"}, *parts]
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **more}
    return served.client.post(CHAT, json=body)


def file_part(key: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"type": "file", "file": {key: value, **more}}


def text_of(reply: Any) -> str:
    assert reply.status_code == 200, reply.text
    return str(reply.json["choices"][0]["message"]["content"])


class WritingBackend(Backend):
    """Writes to the files that it is lent."""

    capabilities = Capabilities(accepts=frozenset({"chat"}), files=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        for file in context.files.values():
            # the mode keeps all users from it but root
            with contextlib.suppress(PermissionError), file.path.open("r+b") as opened:
                opened.write(b"not this")
        yield ContentDelta("end")
        yield ChoiceFinished()
        yield Completed()


def test_a_backend_that_writes_does_not_change_the_upload(serve_files: Any) -> None:
    served = serve_files(WritingBackend)
    told = served.upload(b"The sky is blue.", "sky.txt")
    assert text_of(ask(served, file_part("file_id", told["id"]))) == "end"
    assert served.client.get(f"{FILES}/{told['id']}/content").data == b"The sky is blue."


@pytest.mark.parametrize("key", ["fileData", "file_id", "file_data"])
def test_a_file_part_reaches_the_backend(served: Any, key: str) -> None:
    told = served.upload(b"The sky is blue.", "sky.txt")
    text = text_of(ask(served, file_part(key, told["id"], filename="sky.txt")))
    assert text == "sky.txt (text/plain): The sky is blue.\nend"


def test_several_parts_and_collections_reach_it(served: Any) -> None:
    collection = served.collection()
    for text in (b"one", b"two"):
        served.upload(text, collection_id=collection)
    ids = [served.upload(text)["id"] for text in (b"three", b"four")]
    reply = ask(
        served,
        *(file_part("file_id", id_) for id_ in (*ids, ids[0])),
        metadata={"collection_ids": [collection]},
    )
    assert text_of(reply) == (
        "a.txt (text/plain): three\n"
        "a.txt (text/plain): four\n"
        f"collection {collection}: one, two\n"
        "end"
    )


def test_ids_in_capitals_are_the_same(served: Any) -> None:
    collection = served.collection()
    one = served.upload(b"one", collection_id=collection.upper())
    assert one["collection_id"] == collection
    path = f"{FILES}/{one['id'].upper()}"
    assert served.client.get(path).json == one
    assert served.client.get(f"{path}/content").data == b"one"
    listed = served.client.get(f"{FILES}?collection_id={collection.upper()}").json
    assert [file["id"] for file in listed["data"]] == [one["id"]]

    asked = ask(
        served,
        file_part("file_id", one["id"].upper()),
        metadata={"collection_ids": [collection.upper()]},
    )
    assert text_of(asked) == f"a.txt (text/plain): one\ncollection {collection}: one\nend"
    ids = {"files": [one["id"].upper(), one["id"]], "collection_ids": [collection.upper()]}
    begun = served.client.post("/research", json={"query": "q", **ids})
    assert begun.status_code == 200, begun.text
    stored = served.services.store.job(begun.json["id"]).request
    assert stored.file_ids == (one["id"],)
    assert stored.parameters.collection_ids == (collection,)

    for path in (f"{FILES}/{one['id']}", f"/research/collections/{collection}"):
        parent, _, id_ = path.rpartition("/")
        deleted = served.client.delete(f"{parent}/{id_.upper()}")
        assert (deleted.status_code, deleted.json) == (200, {"id": id_, "deleted": True})


def test_collections_reach_it_with_a_prompt_too(served: Any) -> None:
    collection = served.collection()
    served.upload(b"one", collection_id=collection)
    body = {"model": "m", "prompt": "q", "metadata": {"collection_ids": [collection]}}
    reply = served.client.post(TEXT, json=body)
    assert reply.json["choices"][0]["text"] == f"collection {collection}: one\nend"


def test_a_stream_has_them_too(served: Any) -> None:
    told = served.upload(b"streamed")
    reply = ask(served, file_part("file_id", told["id"]), stream=True)
    assert "streamed" in reply.text
    assert reply.text.endswith("data: [DONE]\n\n")


def test_nothing_is_left_of_a_run(served: Any) -> None:
    told = served.upload(b"x")
    text_of(ask(served, file_part("file_id", told["id"])))
    assert len(served.kept()) == 1
    lent = served.folder / "lent"
    assert list(lent.iterdir()) == []


def test_unknown_files_are_named(served: Any) -> None:
    told = served.upload()
    reply = ask(served, file_part("file_id", told["id"]), file_part("fileData", "f-2"))
    assert (reply.status_code, reply.json["error"]["param"]) == (400, "messages[0].content[2].file")
    assert "'f-2'" in reply.json["error"]["message"]
    assert "POST /research/files" in reply.json["error"]["message"]


def test_unknown_collections_are_named(served: Any) -> None:
    reply = ask(served, metadata={"collection_ids": ["c-1"]})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, "metadata.collection_ids")
    assert "'c-1'" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    "value",
    [
        "data:text/plain;base64,eA==",
        base64.b64encode(b"x" * 300).decode(),
        "https://example.org/a.pdf",
        "file:///etc/passwd",
        "../../etc/passwd",
    ],
)
@pytest.mark.parametrize("key", ["fileData", "file_id", "file_data"])
def test_bytes_and_urls_are_refused_with_the_way_to_do_it(plain: Any, key: str, value: str) -> None:
    reply = ask(plain, file_part(key, value))
    assert reply.status_code == 400
    assert reply.json["error"]["param"] == f"messages[0].content[1].file.{key}"
    assert "upload the file with POST /research/files" in reply.json["error"]["message"]


def test_two_ids_in_one_part_are_refused(plain: Any) -> None:
    ids = [plain.upload(text)["id"] for text in (b"one", b"two")]
    reply = ask(plain, file_part("file_id", ids[0], file_data=ids[1]))
    assert (reply.status_code, reply.json["error"]["param"]) == (400, "messages[0].content[1].file")
    assert "file_id and file_data that differ" in reply.json["error"]["message"]
    assert ask(plain, file_part("file_id", ids[0], file_data=ids[0])).status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": [{"type": "file", "file": {"file_id": "f"}}]}, "prompt[0]"),
        ({"prompt": ["q", {"type": "file", "file": {"file_id": "f"}}]}, "prompt[1]"),
        ({"prompt": "q", "files": ["f"]}, "files"),
        ({"prompt": "q", "file_ids": ["f"]}, "file_ids"),
    ],
)
def test_text_completions_take_no_files(plain: Any, body: dict[str, Any], param: str) -> None:
    reply = plain.client.post(TEXT, json={"model": "m", **body})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, param)
    assert "upload them with POST /research/files" in reply.json["error"]["message"]


class DeletingBackend(Backend):
    """Reads a file before and after somebody deletes it."""

    capabilities = Capabilities(accepts=frozenset({"chat"}), files=True)
    delete: Any

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        (file_id,) = context.files
        if request.messages[0].text.startswith("first look"):  # type: ignore[union-attr]
            path = context.files[file_id].path
            type(self).delete(file_id)
            yield ContentDelta(path.read_text())
        else:
            type(self).delete(file_id)
            yield ContentDelta(context.files[file_id].path.read_text())
        yield ChoiceFinished()
        yield Completed()


@pytest.fixture
def deleting(serve_files: Any) -> Any:
    served = serve_files(DeletingBackend)
    DeletingBackend.delete = staticmethod(
        lambda file_id: served.app.test_client().delete(f"{FILES}/{file_id}")
    )
    return served


def _ask_deleting(served: Any, text: str) -> Any:
    content = [{"type": "text", "text": text}, file_part("file_id", served.upload(b"it")["id"])]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    return served.client.post(CHAT, json=body)


def test_a_file_that_was_looked_at_stays_until_the_run_ends(deleting: Any) -> None:
    assert text_of(_ask_deleting(deleting, "first look")) == "it"
    assert deleting.kept() == []


def test_a_file_that_is_gone_when_it_is_looked_at_fails_the_run(deleting: Any) -> None:
    reply = _ask_deleting(deleting, "later look")
    assert (reply.status_code, reply.json["error"]["code"]) == (400, "file_not_found")
    assert "was deleted before it could be read" in reply.json["error"]["message"]


class TwiceBackend(Backend):
    """Looks at its collection before and after somebody changes what is in it."""

    capabilities = Capabilities(accepts=frozenset({"completion"}), files=True)
    change: Any

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        ((collection_id, first),) = context.collections.items()
        type(self).change(collection_id)
        again = context.collections[collection_id]
        yield ContentDelta(",".join(file.path.read_text() for file in (*first, *again)))
        yield ChoiceFinished()
        yield Completed()


@pytest.mark.parametrize("change", ["a file goes", "a file comes", "the collection goes"])
def test_a_collection_stays_as_it_was_at_the_first_look(serve_files: Any, change: str) -> None:
    served = serve_files(TwiceBackend)
    client, collection = served.app.test_client(), served.collection()
    file_id = served.upload(b"one", collection_id=collection)["id"]
    changes = {
        "a file goes": lambda _: client.delete(f"{FILES}/{file_id}"),
        "a file comes": lambda id_: served.upload(b"two", collection_id=id_),
        "the collection goes": lambda id_: client.delete(f"/research/collections/{id_}"),
    }
    TwiceBackend.change = staticmethod(changes[change])
    body = {"model": "m", "prompt": "q", "metadata": {"collection_ids": [collection]}}
    reply = served.client.post(TEXT, json=body)
    assert reply.json["choices"][0]["text"] == "one,one"
