"""The rules for the events of one run: a small state machine, and what each event holds."""

from __future__ import annotations

import math
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
    RunningStatus,
    Started,
    StatusChanged,
)
from caesar_server.errors import AnswerTooLongError
from caesar_server.jobs.running.values import (
    details_misfit,
    error_misfit,
    misfit_of,
    shown,
    tokens_misfit,
)

_EVENT_CLASSES = frozenset(EVENT_TYPES.values())
_RUNNING: tuple[str, ...] = typing.get_args(RunningStatus)
_CHANNELS: tuple[str, ...] = typing.get_args(Channel)


class ContractBreach(Exception):
    """A backend broke a rule of the contract; the message says which and how to keep it."""


class Invariant:
    """Checks the events of one run one by one, and their text together.  Not safe for threads.

    That a terminal event comes at all is for whoever sees the run end.

    :param choices: how many choices the request has.
    :param max_chars: how long the text of all choices and channels may be, and that of the tokens
        in their log probabilities; None: any length.
    """

    def __init__(self, choices: int, max_chars: int | None = None) -> None:
        self._max_chars = max_chars
        self._chars_left: float = math.inf if max_chars is None else max_chars
        self._open = set(range(choices))
        self._choices = choices
        self._started = False
        self._text_seen = False
        self._ended = False

    def check(self, event: Event) -> None:
        """Take the next event.

        :raises ContractBreach: if it may not come now.
        :raises AnswerTooLongError: if the text is too long with it.
        """
        if (
            type(event) is ContentDelta
            and type(event.text) is str
            and type(event.choice) is int
            and event.choice in self._open
            and event.channel in _CHANNELS
            and (event.logprobs is None or tokens_misfit(event.logprobs) is None)
            and not self._ended
        ):
            # what nearly all of them are
            self._text_seen = True
            self._chars_left -= len(event.text)
            if self._chars_left < 0 or event.logprobs:
                self._check_length(event)
            return
        if type(event) not in _EVENT_CLASSES:
            raise ContractBreach(
                f"run() yielded {shown(event)}, which is no event of the contract; "
                "yield instances of the classes in caesar_server.contract.events"
            )
        name = type(event).__name__
        if self._ended:
            raise ContractBreach(f"{name} came after the terminal event; end run() there")
        if isinstance(event, ContentDelta):
            self._check_open(event.choice, name)
            self._text_seen = True
        elif isinstance(event, ChoiceFinished):
            self._check_open(event.choice, name)
        elif isinstance(event, Started):
            self._check_started()
        elif isinstance(event, StatusChanged):
            if event.status not in _RUNNING:
                raise ContractBreach(
                    f"StatusChanged({shown(event.status)}) is not a backend's to report; "
                    f"use one of {', '.join(_RUNNING)}, or yield Completed or Failed"
                )
        elif isinstance(event, Completed):
            self._check_all_finished()
        _check_values(event)
        if isinstance(event, ChoiceFinished):
            self._open.discard(event.choice)
        self._ended = isinstance(event, (Completed, Failed))

    def _check_length(self, delta: ContentDelta) -> None:
        """Check the length with a delta whose text was taken off; its tokens have text, too."""
        for token in delta.logprobs or ():
            self._chars_left -= len(token.token) + sum(len(other.token) for other in token.top)
        if self._chars_left < 0:
            raise AnswerTooLongError(
                f"The answer grew beyond max_answer_chars, {self._max_chars} characters over all "
                "choices; ask for fewer choices or for less text"
            )

    def _check_open(self, choice: int, name: str) -> None:
        if type(choice) is int and 0 <= choice < self._choices:
            if choice not in self._open:
                raise ContractBreach(
                    f"{name} of choice {choice} came after its ChoiceFinished; "
                    "yield ChoiceFinished once, after the last delta of its choice"
                )
        elif self._choices:
            raise ContractBreach(
                f"{name} names choice {shown(choice)}; "
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
        raise ContractBreach(f"Failed holds {shown(error)}; give it an ErrorInfo")
    if (misfit := error_misfit(error)) is not None:
        raise ContractBreach(f"an error has {misfit}")


def _check_values(event: Event) -> None:
    """Check the fields by themselves: what is stored wrong cannot be read any more."""
    if isinstance(event, Failed):
        check_error(event.error)
        return
    misfit = misfit_of(event)
    if misfit is None and isinstance(event, (Started, Completed)):
        misfit = details_misfit(event)
    if misfit is not None:
        raise ContractBreach(f"{type(event).__name__} has {misfit}")
