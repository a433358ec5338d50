"""The research example, installed and served: questions over files, as the official client asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

caesar = pytest.importorskip("caesar")

#: Nothing here takes longer; the example waits so long for an update, too.
WITHIN_S = 60
SETTINGS = f'default_backend = "folder"\n[backends.folder]\nlisten_s = {WITHIN_S}\n'

FILES = {
    "tides.txt": b"At Fundy the tide rises by sixteen metres. Boats lie dry at ebb.",
    "harbour.md": b"# Fees\n\n- A berth costs nine crowns a night.\n- Water is free.\n",
    "lights.html": b"<h1>Lights</h1><p>The lighthouse flashes <b>twice</b> a minute.</p>",
}


@pytest.fixture(scope="module")
def client(examples: Any, serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "caesar-server.toml").write_text(SETTINGS)
    command = lambda port: ["caesar-server", "serve", "--port", str(port)]  # noqa: E731
    with (
        serve(command, folder, examples.variables()) as port,
        caesar.Caesar(base_url=f"http://127.0.0.1:{port}", api_key="unused") as client,
    ):
        yield client


@pytest.fixture(scope="module")
def collection(client: Any) -> str:
    return str(client.post("/research/collections", body={"name": "Shore"}, cast_to=object)["id"])


@pytest.fixture(scope="module")
def uploaded(client: Any, collection: str) -> dict[str, str]:
    """The ids of the files by name; the page is in the collection."""
    ids = {}
    for name, content in FILES.items():
        more = {"collection_id": collection} if name == "lights.html" else {}
        ids[name] = client.research.files.create(file=(name, content), extra_body=more).id
    return ids


def until(look: Callable[[], Any]) -> Any:
    """Return what ``look`` finds once it is true."""
    deadline = time.monotonic() + WITHIN_S
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def finished(client: Any, job_id: str) -> Any:
    def look() -> Any:
        job = client.research.retrieve(job_id)
        return job if job.status in ("completed", "failed") else None

    job = until(look)
    assert job.status == "completed", job.to_dict()
    return job


@pytest.fixture(scope="module")
def answered(client: Any, uploaded: dict[str, str], collection: str) -> Any:
    job = client.research.create(
        query="How far rises the tide, what costs a berth, and how often flashes the lighthouse?",
        files=[uploaded["tides.txt"], uploaded["harbour.md"]],
        extra_body={"collection_ids": [collection]},
    )
    return finished(client, job.id)


def sentence_of(job: Any, name: str) -> str:
    """Return the sentence that cites a file, in the order of the answer."""
    (number,) = (one.citation_index for one in job.results if one.title == name)
    before, _, _ = job.content.partition(f" [{number}]")
    return str(before.rpartition("] ")[2])


def test_a_question_over_three_files_cites_each(answered: Any, uploaded: dict[str, str]) -> None:
    cited = {one.title: one for one in answered.results if one.citation_index}
    assert {name: one.id for name, one in cited.items()} == uploaded
    assert sorted(one.citation_index for one in cited.values()) == [1, 2, 3]
    assert sentence_of(answered, "tides.txt") == "At Fundy the tide rises by sixteen metres."
    assert sentence_of(answered, "harbour.md") == "A berth costs nine crowns a night."
    assert sentence_of(answered, "lights.html") == "The lighthouse flashes twice a minute."


def test_each_source_can_be_read_and_downloaded(client: Any, answered: Any) -> None:
    contents = client.research.results
    for one in answered.results:
        assert client.get(one.url, cast_to=httpx.Response).content == FILES[one.title]
        raw = FILES[one.title].decode()
        assert contents.retrieve_content(one.id, id=answered.id).content == raw
        as_markdown = {"format": "markdown"}
        found = contents.retrieve_content(one.id, id=answered.id, extra_query=as_markdown).content
        assert found == (
            "# Lights\n\nThe lighthouse flashes twice a minute."
            if one.title == "lights.html"
            else raw
        )


def test_the_chat_about_it_cites_the_same_sources(client: Any, answered: Any) -> None:
    chat = f"/research/{answered.id}/chat"
    asked = client.post(chat, body={"content": "Is water free?"}, cast_to=object)

    def look() -> Any:
        message = client.get(f"{chat}/{asked['id']}", cast_to=object)
        return None if message["status"] == "processing" else message

    message = until(look)
    (number,) = (one.citation_index for one in answered.results if one.title == "harbour.md")
    assert message["content"] == f"Water is free. [{number}]"
    assert [(one["title"], one["citation_index"]) for one in message["results"]] == [
        ("harbour.md", number)
    ]


def test_a_chat_with_file_parts_ends_with_references(client: Any, uploaded: dict[str, str]) -> None:
    content = [
        {"type": "text", "text": "What costs a berth?"},
        {"type": "file", "file": {"file_id": uploaded["harbour.md"]}},
    ]
    body = {"model": "folder", "messages": [{"role": "user", "content": content}]}
    done = client.post("/compat/chat/completions", body=body, cast_to=object)
    assert done["choices"][0]["message"]["content"] == (
        "A berth costs nine crowns a night. [1]\n\n## References\n\n"
        f"[1] [harbour.md](/research/files/{uploaded['harbour.md']}/content)"
    )


def test_an_update_with_a_file_while_it_runs(client: Any, uploaded: dict[str, str]) -> None:
    job = client.research.create(
        query="How far rises the tide?", files=[uploaded["tides.txt"]], compute_units=2
    )
    events = f"/research/{job.id}/events"
    until(lambda: "Reading tides.txt" in str(client.get(events, cast_to=object)))
    client.post(
        f"/research/{job.id}/updates",
        body={"update_content": "And the berth?", "files": [uploaded["harbour.md"]]},
        cast_to=object,
    )
    done = finished(client, job.id)
    assert {one.title for one in done.results} == {"tides.txt", "harbour.md"}
    assert sentence_of(done, "tides.txt") == "At Fundy the tide rises by sixteen metres."
    assert sentence_of(done, "harbour.md") == "A berth costs nine crowns a night."


def test_a_file_that_is_no_text_fails_the_job_with_a_sentence(client: Any) -> None:
    pdf = client.research.files.create(file=("paper.pdf", b"%PDF-1.7\n"))
    job = client.research.create(query="What is in it?", files=[pdf.id])
    failed = until(
        lambda: (one := client.research.retrieve(job.id)).status == "failed" and one.to_dict()
    )
    assert failed["error"] == (
        "paper.pdf: it is application/pdf; folder reads text, Markdown and HTML"
    )
