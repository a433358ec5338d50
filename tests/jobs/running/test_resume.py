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


def test_an_event_of_the_server_is_none_of_the_backends():
    assert fresh([QUEUED], [QUEUED]) == [QUEUED]


def test_what_results_were_before_is_not_told_again():
    first, second = (ResultFound("r", title, "https://example.org") for title in ("One", "Two"))
    stored = [QUEUED, first, second]
    for checkpoint_seq in (0, len(stored)):
        assert fresh(stored, [first, second], checkpoint_seq) == []
        assert fresh(stored, [first, second, first], checkpoint_seq) == [first]


#: Each kind of event, those without a name also twice the same.
ALL = [
    Started(),
    RESEARCHING,
    ProgressNoted("reading"),
    RESEARCHING,
    RequestLogged("https://e.org"),
    RequestLogged("https://e.org"),
    ResultFound("r", "Title", "https://example.org"),
    SourceStored("r", raw="raw"),
    LoopFinished(1),
    UsageCounted(3, 4),
    ResultFound("r", "Title", "https://example.org", citation_index=1),
    UsageCounted(3, 4),
    *deltas("a", "b"),
    ChoiceFinished(),
    UsageCounted(3, 4),
    Completed(),
]


class Attempts:
    """Attempts at a job whose backend tells :data:`ALL`; what stands in the store meanwhile."""

    def __init__(self) -> None:
        self.stored: list[Event] = [QUEUED]
        self._job = Job(
            id="job",
            created_at=1.0,
            model="m",
            backend="b",
            request=CompletionRequest(prompts=("p",)),
        )
        #: How many of the events are behind the checkpoint.
        self._done = 0

    def run(self, *, saves: int | None = None, lost: int = len(ALL)) -> None:
        """Run one.

        :param saves: it stores a checkpoint once it has told so many of the events.
        :param lost: it is lost once it has told so many.
        """
        records = [Record(seq, 1.0, event) for seq, event in enumerate(self.stored, 1)]
        resumed = Resumption(self._job, records)
        for number, event in enumerate(ALL[:lost]):
            if number == saves:
                self._save(number, resumed)
            # a backend repeats what is in its checkpoint only if that has a name
            if number >= self._done or not isinstance(event, UNNAMED):
                new = resumed.fresh(event)
                self.stored += [] if new is None else [new]
        if lost == saves:
            self._save(lost, resumed)

    def _save(self, number: int, resumed: Resumption) -> None:
        self._done = number
        self._job = self._job.changed(
            checkpoint_seq=len(self.stored), unrepeated=resumed.unrepeated
        )


UNNAMED = (StatusChanged, ProgressNoted, RequestLogged, UsageCounted)


@pytest.mark.parametrize("first", range(len(ALL)))
def test_nothing_is_told_twice_however_often_a_run_is_lost_while_it_repeats(first):
    """The first two save at any place, and are lost anywhere behind it."""
    ends = [(saves, lost) for lost in range(len(ALL)) for saves in (*range(lost + 1), None)]
    for saves in (*range(first + 1), None):
        for second in ends:
            if saves is None or second[0] is None or second[0] >= saves:
                attempts = Attempts()
                attempts.run(saves=saves, lost=first)
                attempts.run(saves=second[0], lost=second[1])
                attempts.run()
                assert attempts.stored == [QUEUED, *ALL], (saves, first, *second)


def test_what_is_never_repeated_hides_nothing_that_comes_later():
    """What a run tells may depend on the time; then nothing like it ever comes again."""
    stored = [QUEUED, Started(), ProgressNoted("after 2 s")]
    job = Job(
        id="job", created_at=1.0, model="m", backend="b", request=CompletionRequest(prompts=("p",))
    )
    records = [Record(seq, 1.0, event) for seq, event in enumerate(stored, 1)]
    second = Resumption(job, records)
    for event in (ProgressNoted("after 3 s"), UsageCounted(3, 4)):
        assert second.fresh(event) == event
        records.append(Record(len(records) + 1, 1.0, event))
    saved = job.changed(checkpoint_seq=len(records), unrepeated=second.unrepeated)
    third = Resumption(saved, records)
    assert third.fresh(UsageCounted(3, 4)) == UsageCounted(3, 4)
    assert third.unrepeated == (3,)


def test_what_was_never_stored_is_told():
    told = [Started(), RESEARCHING, *deltas("a"), ChoiceFinished(), Completed()]
    assert fresh([QUEUED], told) == told
