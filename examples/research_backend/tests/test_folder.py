import re
from collections.abc import Callable
from pathlib import Path

import pytest

from caesar_backend_folder import FolderBackend, FolderOptions
from caesar_backend_folder.search import Index, folder_passages, passages_of, terms_of
from caesar_server.contract import (
    BackendUnavailableError,
    Completed,
    ContentDelta,
    Event,
    Failed,
    ResearchRequest,
    ResultFound,
    StatusChanged,
)
from caesar_server.contract.context import StoredFile
from caesar_server.testing import collect_events, make_context

Ask = Callable[..., list[Event]]


@pytest.fixture
def ask() -> Ask:
    """Return the events for a question; the other arguments are options."""

    def ask(question: str, *files: StoredFile, **options: object) -> list[Event]:
        backend = FolderBackend(FolderOptions(**options))
        backend.open()
        context = make_context(files={file.id: file for file in files})
        try:
            return collect_events(backend, ResearchRequest(query=question), context)
        finally:
            backend.close()

    return ask


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ContentDelta))


def cited(events: list[Event]) -> dict[int, ResultFound]:
    results = [event for event in events if isinstance(event, ResultFound)]
    return {one.citation_index: one for one in results if one.citation_index is not None}


def test_the_answer_is_made_of_sentences_of_the_sources(ask: Ask) -> None:
    events = ask("How many days had the new year of the calendar?")
    answer = text(events)
    assert "The new year had 365 days, with one day more every fourth year. [1]" in answer
    assert cited(events)[1].title == "The Julian Calendar"
    assert cited(events)[1].url == "file:calendar.txt"


def test_every_number_in_the_text_is_a_result_and_the_best_comes_first(ask: Ask) -> None:
    events = ask("What did Caesar write?", base_url="https://notes.example/")
    numbers = {int(number) for number in re.findall(r"\[(\d+)\]", text(events))}
    assert numbers == set(cited(events)) == set(range(1, len(numbers) + 1))
    scores = [cited(events)[number].score for number in sorted(numbers)]
    assert scores[0] == 1
    assert scores == sorted(scores, reverse=True)
    assert all(one.url.startswith("https://notes.example/") for one in cited(events).values())


def test_it_tells_what_it_does(ask: Ask) -> None:
    statuses = [e.status for e in ask("Who was Sosigenes?") if isinstance(e, StatusChanged)]
    assert statuses == ["searching", "analyzing", "summarizing"]


def test_it_says_so_when_nothing_fits(ask: Ask) -> None:
    for question in ("Quarks and gluons?", "Who was that?", ""):
        events = ask(question)
        assert text(events) == "Nothing in the files fits this question."
        assert cited(events) == {}
        last = events[-1]
        assert isinstance(last, Completed)
        assert last.details["stopped_because"] == "nothing_found"


def test_uploaded_files_are_searched_too(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "stored"
    path.write_text("Quarks come in six flavours.")
    file = StoredFile("f1", "quarks.txt", "text/plain", path.stat().st_size, path)
    events = ask("How many flavours have quarks?", file)
    assert text(events) == "Quarks come in six flavours. [1]"
    assert (cited(events)[1].title, cited(events)[1].url) == ("quarks.txt", "upload:f1")
    path.write_bytes(b"\xff\xfe\x00")
    last = ask("How many flavours have quarks?", file)[-1]
    assert isinstance(last, Failed)
    assert last.error.message == "quarks.txt is no UTF-8 text; folder reads text files only"


def test_a_folder_that_is_not_there_keeps_it_from_opening(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match="there is no folder"):
        FolderBackend(FolderOptions(folder=str(tmp_path / "none"))).open()
    backend = FolderBackend(FolderOptions(folder=str(tmp_path)))
    backend.open()
    assert backend.health().status == "degraded"


def test_files_outside_and_long_ones_are_left_out(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    (notes / "below").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("A secret.")
    (notes / "link.txt").symlink_to(tmp_path / "secret.txt")
    (notes / "long.txt").write_text("long " * 100)
    (notes / "below" / "small.txt").write_text("A small one.")
    (notes / "other.md").write_text("No text file.")
    found = list(folder_passages(notes, max_file_bytes=100))
    assert [passage.source for passage in found] == ["below/small.txt"]


def test_rare_words_count_more_than_frequent_ones() -> None:
    pages = [f"The ship sails. The ship is number {number}." for number in range(9)]
    index = Index.of(
        passage
        for number, page in enumerate([*pages, "A ship with a unicorn on its flag."])
        for passage in passages_of(str(number), "page", page)
    )
    best = index.search("Which ship has the unicorn?", 3)
    assert best[0].passage.source == "9"
    assert best[0].score == 1 > best[1].score > 0
    assert index.search("zeppelin", 3) == []


def test_terms_leave_out_what_every_question_has() -> None:
    assert terms_of("Tell me about the Gallic War") == ["gallic", "war"]
