"""The rules for the events of one run, as a small state machine."""

from __future__ import annotations

import math
import reprlib
import typing

from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import (
    EVENT_TYPES,
    Channel,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    Failed,
    FinishReason,
    RunningStatus,
    Started,
    StatusChanged,
    UsageCounted,
)

_EVENT_CLASSES = frozenset(EVENT_TYPES.values())
_RUNNING: tuple[str, ...] = typing.get_args(RunningStatus)
_CHANNELS: tuple[str, ...] = typing.get_args(Channel)
_REASONS: tuple[str, ...] = typing.get_args(FinishReason)


class ContractBreach(Exception):
    """A backend broke a rule of the contract; the message says which and how to keep it."""


class Invariant:
    """Checks the events of one run one by one.  Not safe for threads.

    That a terminal event comes at all is for whoever sees the run end.

    :param choices: how many choices the request has.
    """

    def __init__(self, choices: int) -> None:
        self._open = set(range(choices))
        self._choices = choices
        self._started = False
        self._text_seen = False
        self._ended = False

    def check(self, event: Event) -> None:
        """Take the next event.

        :raises ContractBreach: if it may not come now.
        """
        if (
            type(event) is ContentDelta
            and event.logprobs is None
            and type(event.text) is str
            and type(event.choice) is int
            and event.choice in self._open
            and event.channel in _CHANNELS
            and not self._ended
        ):
            # what nearly all of them are
            self._text_seen = True
            return
        if type(event) not in _EVENT_CLASSES:
            raise ContractBreach(
                f"run() yielded {reprlib.repr(event)}, which is no event of the contract; "
                "yield instances of the classes in caesar_server.contract.events"
            )
        name = type(event).__name__
        if self._ended:
            raise ContractBreach(f"{name} came after the terminal event; end run() there")
        if isinstance(event, ContentDelta):
            self._check_open(event.choice, name)
            _check_delta(event)
            self._text_seen = True
        elif isinstance(event, ChoiceFinished):
            self._check_open(event.choice, name)
            _check_word(name, "reason", event.reason, _REASONS)
            self._open.discard(event.choice)
        elif isinstance(event, UsageCounted):
            _check_usage(event)
        elif isinstance(event, Started):
            self._check_started()
        elif isinstance(event, StatusChanged):
            if event.status not in _RUNNING:
                raise ContractBreach(
                    f"StatusChanged({reprlib.repr(event.status)}) is not a backend's to report; "
                    f"use one of {', '.join(_RUNNING)}, or yield Completed or Failed"
                )
        elif isinstance(event, Completed):
            self._check_all_finished()
            self._ended = True
        elif isinstance(event, Failed):
            check_error(event.error)
            self._ended = True

    def _check_open(self, choice: int, name: str) -> None:
        if type(choice) is int and 0 <= choice < self._choices:
            if choice not in self._open:
                raise ContractBreach(
                    f"{name} of choice {choice} came after its ChoiceFinished; "
                    "yield ChoiceFinished once, after the last delta of its choice"
                )
        elif self._choices:
            raise ContractBreach(
                f"{name} names choice {reprlib.repr(choice)}; "
                f"number the request's choices 0 to {self._choices - 1}"
            )
        else:
            raise ContractBreach(
                f"{name} came, but the request has no choices; answer in Completed(details)"
            )

    def _check_started(self) -> None:
        if self._started:
            raise ContractBreach("Started came twice; yield it once at most")
        if self._text_seen:
            raise ContractBreach("Started came after the first ContentDelta; yield it before")
        self._started = True

    def _check_all_finished(self) -> None:
        if self._open:
            missing = min(self._open)
            raise ContractBreach(
                f"Completed came before choice {missing} was finished; "
                f"yield ChoiceFinished(choice={missing}) first"
            )


def check_error(error: object) -> None:
    """Check that an error can be told to a client as an error.

    :raises ContractBreach: if it cannot: with status 200 it would pass for an answer.
    """
    if not isinstance(error, ErrorInfo):
        raise ContractBreach(f"Failed holds {reprlib.repr(error)}; give it an ErrorInfo")
    if type(error.status) is not int or not 400 <= error.status <= 599:
        raise ContractBreach(
            f"an error has status {reprlib.repr(error.status)}; give it one from 400 to 599"
        )
    for field in ("message", "code", "type", "param"):
        text = getattr(error, field)
        if not isinstance(text, str) and not (field == "param" and text is None):
            raise ContractBreach(f"an error has the {field} {reprlib.repr(text)}; give it a str")
    wait_s = error.retry_after_s
    if wait_s is not None and not (_is_number(wait_s) and 0 <= wait_s < math.inf):
        raise ContractBreach(
            f"an error has retry_after_s {reprlib.repr(wait_s)}; give it seconds from 0 on, or None"
        )


def _check_delta(event: ContentDelta) -> None:
    if type(event.text) is not str:
        raise ContractBreach(
            f"ContentDelta holds {reprlib.repr(event.text)}; its text must be a str "
            "(IncrementalUtf8 makes it of bytes)"
        )
    _check_word("ContentDelta", "channel", event.channel, _CHANNELS)


def _check_word(name: str, field: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ContractBreach(
            f"{name} has the {field} {reprlib.repr(value)}; use one of {', '.join(known)}"
        )


def _check_usage(event: UsageCounted) -> None:
    for count in (event.prompt_tokens, event.completion_tokens):
        if type(count) is not int or count < 0:
            raise ContractBreach(
                f"UsageCounted counts {reprlib.repr(count)} tokens; give whole numbers from 0 on"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
