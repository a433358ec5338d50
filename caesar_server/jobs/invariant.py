"""The rules for the events of one run, as a small state machine."""

from __future__ import annotations

import reprlib
import typing

from caesar_server.contract.events import (
    EVENT_TYPES,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    Failed,
    RunningStatus,
    Started,
    StatusChanged,
)

_EVENT_CLASSES = frozenset(EVENT_TYPES.values())
_RUNNING: tuple[str, ...] = typing.get_args(RunningStatus)


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
            self._text_seen = True
        elif isinstance(event, ChoiceFinished):
            self._check_open(event.choice, name)
            self._open.discard(event.choice)
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
