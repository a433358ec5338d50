import re
from pathlib import Path
from typing import Any

import pytest

from caesar_backend_folder import FolderBackend, FolderOptions
from caesar_server.contract import (
    BackendUnavailableError,
    Completed,
    ContentDelta,
    Event,
    Failed,
    FollowUpRequest,
    InvalidRequestError,
    LoopFinished,
    ProgressNoted,
    ResultFound,
    Source,
    SourceStored,
    StatusChanged,
)
from caesar_server.contract.context import StoredFile, Update

NOTES = {"base_url": "https://notes.example/"}


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ContentDelta))


def cited(events: list[Event]) -> dict[int, ResultFound]:
    results = [event for event in events if isinstance(event, ResultFound)]
    return {one.citation_index: one for one in results if one.citation_index is not None}


def loops(events: list[Event]) -> list[int]:
    return [event.loop for event in events if isinstance(event, LoopFinished)]


def notes(events: list[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, ProgressNoted)]


def test_the_answer_is_made_of_sentences_of_the_sources(ask: Any) -> None:
    events = ask("How many days had the new year of the calendar?")
    answer = text(events)
    assert "The new year had 365 days, with one day more every fourth year. [1]" in answer
    assert "Commentaries" not in answer
    assert cited(events)[1].title == "The Julian Calendar"
    assert cited(events)[1].url == "file:calendar.txt"


def test_every_number_in_the_text_is_a_source_and_the_best_comes_first(ask: Any) -> None:
    events = ask("What did Caesar write?", options=NOTES)
    numbers = {int(number) for number in re.findall(r"\[(\d+)\]", text(events))}
    assert numbers == set(cited(events)) == set(range(1, len(numbers) + 1))
    assert len({one.id for one in cited(events).values()}) == len(numbers) == 3
    scores = [cited(events)[number].score for number in sorted(numbers)]
    assert scores[0] == 1
    assert scores == sorted(scores, reverse=True)
    assert all(one.url.startswith("https://notes.example/") for one in cited(events).values())


def test_it_tells_what_it_does(ask: Any) -> None:
    events = ask("Who was Sosigenes?")
    statuses = [event.status for event in events if isinstance(event, StatusChanged)]
    assert statuses == ["searching", "analyzing", "summarizing"]
    (stored,) = (event for event in events if isinstance(event, SourceStored))
    assert stored.result_id == cited(events)[1].id == "calendar.txt"
    assert stored.markdown.startswith("The Julian Calendar\n\nIn 46 BC")


def test_it_says_so_when_nothing_fits(ask: Any) -> None:
    for question in ("Quarks and gluons?", "Who was that?", ""):
        events = ask(question)
        assert text(events) == "Nothing in the files fits this question."
        assert cited(events) == {}
        last = events[-1]
        assert isinstance(last, Completed)
        assert last.details["stopped_because"] == "nothing_found"


def test_uploaded_files_are_searched_too(ask: Any, store: Any) -> None:
    file = store("quarks.md", "# Quarks\n\nQuarks come in six flavours.")
    events = ask("How many flavours have quarks?", file)
    assert text(events) == "Quarks come in six flavours. [1]"
    assert cited(events)[1] == ResultFound(
        "quarks.md", "quarks.md", "/research/files/quarks.md/content", 1.0, 1
    )


def test_files_of_collections_are_searched_too_each_once(ask: Any, store: Any) -> None:
    quarks = store("quarks.txt", "Quarks come in six flavours.")
    page = store("page.html", "<p>Gluons come in eight colours.", "text/html")
    events = ask("Quarks and gluons?", quarks, collections={"c1": [page, quarks]})
    assert {one.id for one in cited(events).values()} == {"quarks.txt", "page.html"}
    assert text(events).count("six flavours") == 1
    stored = {event.result_id: event for event in events if isinstance(event, SourceStored)}
    assert stored["page.html"].raw == "<p>Gluons come in eight colours."
    assert stored["page.html"].markdown == "Gluons come in eight colours."


def test_a_named_file_that_is_no_text_is_refused(ask: Any, store: Any) -> None:
    for file, why in (
        (store("a.pdf", b"%PDF-1.7", "application/pdf"), "a.pdf: it is application/pdf; "),
        (store("a.txt", b"\xff\xfe\x00"), "a.txt: it is not UTF-8; "),
        (store("long.txt", "x" * 101), "long.txt: it is longer than 100 bytes; "),
    ):
        last = ask("Caesar?", file, options={"max_file_bytes": 100})[-1]
        assert isinstance(last, Failed)
        assert last.error.message == f"{why}folder reads text, Markdown and HTML"


def test_in_a_collection_it_is_left_out(ask: Any, store: Any) -> None:
    picture = store("a.png", b"\x89PNG", "image/png")
    events = ask("Who was Sosigenes?", collections={"c1": [picture]})
    assert isinstance(events[-1], Completed)
    assert notes(events)[0].startswith("Leaving out a.png: it is image/png")


def test_each_loop_reads_further_passages(ask: Any) -> None:
    few = {"max_sources": 1}
    asked = "What did Caesar write, and how many days had the year?"
    one, three = (ask(asked, options=few, reasoning_loops=number) for number in (1, 3))
    assert (loops(one), loops(three)) == ([1], [1, 2, 3])
    assert len(cited(one)) == 1 < len(cited(three))
    assert three[-1].details["loops_consumed"] == 3


def test_it_stops_early_where_it_may(ask: Any) -> None:
    asked = "Who was Sosigenes?"
    assert loops(ask(asked, reasoning_loops=4)) == [1, 2, 3, 4]
    assert loops(ask(asked, reasoning_loops=4, allow_early_exit=True)) == [1]
    assert loops(ask(asked, auto=True)) == [1]
    # not before all words were found that are there
    few = {"max_sources": 1}
    asked = "Sosigenes and Vercingetorix?"
    assert loops(ask(asked, reasoning_loops=4, allow_early_exit=True, options=few)) == [1, 2]


class FilesOfUpdates(dict):
    """As the server's: nothing at first; the file of an update is there when it is asked for."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__()
        self._file = file

    def __missing__(self, id: str) -> StoredFile:
        if id == self._file.id:
            return self._file
        raise InvalidRequestError(
            f"the file {id!r} was deleted before it could be read", param="files"
        )


def test_an_update_adds_words_and_files_even_in_the_last_loop(ask: Any, store: Any) -> None:
    files = FilesOfUpdates(store("quarks.txt", "Quarks come in six flavours."))
    said = [Update("u1", "And quarks?", ("gone.txt", "quarks.txt"))]
    events = ask("Who was Sosigenes?", all_files=files, updates=[(), said])
    assert "Taking up: And quarks?" in notes(events)
    assert "Leaving out the file 'gone.txt' was deleted before it could be read" in notes(events)
    assert loops(events) == [1]
    assert "worked it out. [" in text(events)
    assert "Quarks come in six flavours. [" in text(events)


def test_it_listens_before_each_further_loop(ask: Any) -> None:
    said = [Update("u1", "And Vercingetorix?")]
    asked = {"reasoning_loops": 2, "options": {"listen_s": 60, "max_sources": 1}}
    # looks of the first loop, then two of the second that find nothing yet
    events = ask("Who was Sosigenes?", updates=[(), (), (), (), said], **asked)
    assert "Vercingetorix" in text(events)
    assert loops(events) == [1, 2]


def test_the_folder_is_left_out_with_its_domain(ask: Any, store: Any) -> None:
    file = store("war.txt", "Caesar went to war.")
    events = ask("Caesar?", file, options=NOTES, excluded_domains=("notes.example",))
    assert [one.id for one in cited(events).values()] == ["war.txt"]


SOURCES = (
    Source(id="a", title="A", url="https://a.example/", markdown="Owls hunt at night."),
    Source(
        id="b",
        title="B",
        url="https://b.example/",
        citation_index=1,
        markdown="Owls hunt voles.\n\nMice gnaw corn.",
    ),
    Source(id="c", title="C", url="https://c.example/", citation_index=3),
)


def follow_up(content: str, **more: Any) -> FollowUpRequest:
    return FollowUpRequest(
        content=content, query="What do owls do?", answer="[1]", sources=SOURCES, **more
    )


def test_a_follow_up_cites_the_sources_of_the_job(ask: Any) -> None:
    events = ask(follow_up("And what do mice gnaw?"))
    assert text(events) == "Mice gnaw corn. [1]"
    assert {number: one.id for number, one in cited(events).items()} == {1: "b"}


def test_a_source_without_a_number_gets_a_free_one(ask: Any) -> None:
    events = ask(follow_up("When at night?"))
    assert text(events) == "Owls hunt at night. [2]"
    assert cited(events)[2].id == "a"


def test_a_follow_up_may_only_refer_to_the_question_or_a_passage(ask: Any) -> None:
    assert "Owls" in text(ask(follow_up("And then?")))
    assert "Mice gnaw corn. [1]" in text(ask(follow_up("And then?", snippets=("corn",))))


def test_a_follow_up_leaves_domains_out(ask: Any) -> None:
    events = ask(follow_up("Owls?", excluded_domains=("b.example",)))
    assert [one.id for one in cited(events).values()] == ["a"]
    both = ("a.example", "b.example")
    nothing = ask(follow_up("Owls?", excluded_domains=both))
    assert text(nothing) == "Nothing in the sources fits this question."


def test_a_folder_that_is_not_there_keeps_it_from_opening(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match="there is no folder"):
        FolderBackend(FolderOptions(folder=str(tmp_path / "none"))).open()
    backend = FolderBackend(FolderOptions(folder=str(tmp_path)))
    backend.open()
    assert backend.health().status == "degraded"
