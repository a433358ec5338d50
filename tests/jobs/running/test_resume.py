"""What a run that begins again may tell a second time, and what of it is new."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Event,
    LogprobToken,
    LoopFinished,
    ProgressNoted,
    RequestLogged,
    ResultFound,
    SourceStored,
    Started,
    StatusChanged,
    UsageCounted,
)
from caesar_server.jobs.running.invariant import ContractBreach
from caesar_server.jobs.running.resume import Resumption
from caesar_server.store.base import Job, Record

QUEUED = StatusChanged("queued")
RESEARCHING = StatusChanged("researching", "reading")


def resumption(stored: Sequence[Event], checkpoint_seq: int = 0) -> Resumption:
    """Return what knows these events, the first ``checkpoint_seq`` of them before a checkpoint."""
    job = Job(
        id="job",
        created_at=1.0,
        model="m",
        backend="b",
        request=CompletionRequest(prompts=("p",)),
        checkpoint_seq=checkpoint_seq,
    )
    return Resumption(job, [Record(seq, 1.0, event) for seq, event in enumerate(stored, 1)])


def fresh(stored: Sequence[Event], told: Sequence[Event], checkpoint_seq: int = 0) -> list[Event]:
    """Return what is new of the events that a run tells after a takeover."""
    resumed = resumption(stored, checkpoint_seq)
    return [event for event in map(resumed.fresh, told) if event is not None]


def deltas(*texts: str, **fields: object) -> list[Event]:
    return [ContentDelta(text, **fields) for text in texts]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "again",
    [
        ["ab", "cd", "ef"],
        ["abcdef"],
        ["a", "b", "c", "d", "e", "f"],
        ["abc", "def"],
        ["abcde", "f"],
    ],
)
@pytest.mark.parametrize("known", range(7))
def test_the_stored_text_is_not_told_again_however_it_is_cut(again, known):
    stored = [QUEUED, Started(), *deltas(*"abcdef"[:known])]
    new = fresh(stored, [Started(), *deltas(*again), ChoiceFinished(), Completed()])
    text = "".join(event.text for event in new if isinstance(event, ContentDelta))
    assert text == "abcdef"[known:]
    assert all(event.text for event in new if isinstance(event, ContentDelta))
    assert new[-2:] == [ChoiceFinished(), Completed()]


def test_each_choice_and_channel_has_a_text_of_its_own():
    stored = [
        QUEUED,
        *deltas("one", choice=0),
        *deltas("two", choice=1),
        *deltas("hm", choice=1, channel="reasoning"),
    ]
    told = [
        *deltas("hmm", choice=1, channel="reasoning"),
        *deltas("twofold", choice=1),
        *deltas("new", choice=2),
        *deltas("one", choice=0),
        Completed(),
    ]
    assert fresh(stored, told) == [
        *deltas("m", choice=1, channel="reasoning"),
        *deltas("fold", choice=1),
        *deltas("new", choice=2),
        Completed(),
    ]


@pytest.mark.parametrize("again", [["abX"], ["a", "X"], ["Xbcd"], ["", "abX"]])
def test_another_text_is_a_breach(again):
    resumed = resumption([QUEUED, *deltas("ab", "c")])
    with pytest.raises(ContractBreach, match=r"text of choice 0 \(content\) is another one"):
        for event in deltas(*again):
            resumed.fresh(event)


def test_an_end_before_all_was_repeated_is_a_breach():
    resumed = resumption([QUEUED, *deltas("ab", "c")])
    assert resumed.fresh(ContentDelta("ab")) is None
    with pytest.raises(ContractBreach, match="only 2 characters of choice 0"):
        resumed.fresh(Completed())


def test_logprobs_of_the_stored_text_are_dropped_with_it():
    tokens = [LogprobToken(text, -1.0) for text in ("ab", "cd", "ef")]
    stored = [QUEUED, ContentDelta("ab", logprobs=(tokens[0],))]
    told = [
        ContentDelta("abcd", logprobs=(tokens[0], tokens[1])),
        ContentDelta("ef", logprobs=(tokens[2],)),
    ]
    assert fresh(stored, told) == [
        ContentDelta("cd", logprobs=(tokens[1],)),
        ContentDelta("ef", logprobs=(tokens[2],)),
    ]


def test_what_has_a_name_of_its_own_is_told_once_whenever_it_was_stored():
    found = ResultFound("r", "Title", "https://example.org")
    cited = ResultFound("r", "Title", "https://example.org", citation_index=1)
    source = SourceStored("r", raw="raw", markdown="markdown")
    stored = [QUEUED, Started(), found, source, LoopFinished(1), ChoiceFinished(0)]
    told = [
        *(Started(), found, source, LoopFinished(1), ChoiceFinished(0)),
        *(cited, cited, LoopFinished(2), SourceStored("r", raw="newer"), ChoiceFinished(1)),
    ]
    for checkpoint_seq in (0, len(stored)):
        new = fresh(stored, told, checkpoint_seq)
        assert new == [cited, LoopFinished(2), SourceStored("r", raw="newer"), ChoiceFinished(1)]


@pytest.mark.parametrize(
    "event",
    [RESEARCHING, ProgressNoted("reading"), RequestLogged("https://e.org"), UsageCounted(3, 4)],
)
def test_other_events_are_dropped_once_if_they_came_after_the_checkpoint(event):
    stored = [QUEUED, Started(), event]
    assert fresh(stored, [Started(), event, event], checkpoint_seq=2) == [event]
    assert fresh(stored, [Started(), event, event], checkpoint_seq=3) == [event, event]


def test_what_was_never_stored_is_told():
    told = [Started(), RESEARCHING, *deltas("a"), ChoiceFinished(), Completed()]
    assert fresh([QUEUED], told) == told
