"""A backend that does what a test tells it, step by step, and counts what happens to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

from caesar_server.contract import (
    Backend,
    Cancelled,
    Capabilities,
    Context,
    Event,
    Health,
    Model,
    Request,
)

#: What a scripted backend can do unless the test says otherwise: nearly everything, so that the
#: server refuses nothing on its behalf.
PERMISSIVE: Mapping[str, Any] = MappingProxyType(
    {
        "accepts": frozenset({"completion", "chat", "research", "follow_up", "brainstorm"}),
        "n": True,
        "best_of": True,
        "logprobs": True,
        "echo": True,
        "suffix": True,
        "token_prompts": True,
        "max_tokens": True,
        "stop": True,
        "seed": True,
        "usage": True,
        "files": True,
        "images": True,
        "audio": True,
        "citations": True,
        "channels": frozenset({"content", "transformed", "reasoning"}),
    }
)


class Gate:
    """A point of a script where a run waits until the test opens it, or the run is cancelled.

    One gate may be shared by several runs; once open it stays open.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self._arrived = 0
        self._awaited = 0

    def open(self) -> None:
        """Let the runs that wait here, and all later ones, go on."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def wait_until_reached(self, timeout_s: float = 60.0) -> None:
        """Block until a run has arrived here; each call waits for one arrival more.

        :param timeout_s: real seconds.
        :raises TimeoutError: if none arrives in time.
        """
        with self._changed:
            self._awaited += 1
            if not self._changed.wait_for(lambda: self._arrived >= self._awaited, timeout_s):
                raise TimeoutError(f"no run reached the gate within {timeout_s} s")

    def pass_through(self, context: Context) -> None:
        """Block as a socket would: nothing but opening the gate or ``on_cancel`` ends it.

        :raises Cancelled: if the run is cancelled while it waits.
        """
        cancelled = threading.Event()

        def wake() -> None:
            with self._changed:
                cancelled.set()
                self._changed.notify_all()

        with context.on_cancel(wake), self._changed:
            self._arrived += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._open or cancelled.is_set())
        context.raise_if_cancelled()


#: What a step may do in place of being an event: it gets the run's context and may return an event,
#: several, or none.
StepFunction: TypeAlias = Callable[[Context], Event | Iterable[Event] | None]
#: One step of a script: an event to yield, an exception to raise, a gate to wait at, or a function.
Step: TypeAlias = Event | BaseException | Gate | StepFunction


class Script:
    """What a scripted backend does in each run, and what was seen of it.  Safe for threads.

    :param steps: the steps of every run, or a function that makes them from the request; its result
        may be endless.
    :param heeds_cancel: look at ``context.cancelled`` before each step, as a good backend does.
    """

    def __init__(
        self,
        steps: Iterable[Step] | Callable[[Request], Iterable[Step]],
        *,
        heeds_cancel: bool = True,
    ) -> None:
        self._steps = steps if callable(steps) else tuple(steps)
        self._heeds_cancel = heeds_cancel
        self._changed = threading.Condition()
        #: How often the backend was opened and closed.
        self.opens = 0
        self.closes = 0
        #: The requests in the order in which their runs began.
        self.requests: list[Request] = []
        #: Events that were yielded and taken.
        self.yielded = 0
        #: Runs that are over, in whatever way.
        self.ended = 0
        #: Runs whose iterator was closed before its end.
        self.closed = 0
        #: Runs that ended because they noticed a cancel.
        self.cancels = 0

    @property
    def runs(self) -> int:
        """How many runs have begun."""
        return len(self.requests)

    def play(self, request: Request, context: Context) -> Iterator[Event]:
        """Do one run."""
        self._note(lambda: self.requests.append(request))
        try:
            steps = self._steps(request) if callable(self._steps) else self._steps
            for step in steps:
                if self._heeds_cancel:
                    context.raise_if_cancelled()
                for event in perform(step, context):
                    yield event
                    self.count("yielded")
        except GeneratorExit:
            self.count("closed")
            raise
        except Cancelled:
            self.count("cancels")
            raise
        finally:
            self.count("ended")

    def wait_for(self, condition: Callable[[Script], bool], timeout_s: float = 60.0) -> None:
        """Block until ``condition`` of this script holds; it is looked at when a counter changes.

        :param timeout_s: real seconds.
        :raises TimeoutError: if it does not come to hold in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self), timeout_s):
                raise TimeoutError(f"not within {timeout_s} s: {self}")

    def __repr__(self) -> str:
        names = ("opens", "closes", "runs", "yielded", "ended", "closed", "cancels")
        counts = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return f"<Script {counts}>"

    def count(self, name: str) -> None:
        """Add one to the counter ``name``."""
        self._note(lambda: setattr(self, name, getattr(self, name) + 1))

    def _note(self, change: Callable[[], None]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()


def perform(step: Step, context: Context) -> Iterable[Event]:
    """Do one step of a script and return its events."""
    if isinstance(step, BaseException):
        raise step
    if isinstance(step, Gate):
        step.pass_through(context)
        return ()
    if not callable(step):
        return (step,)
    result = step(context)
    if result is None:
        return ()
    return result if isinstance(result, Iterable) else (result,)


class ScriptedBackend(Backend):
    """Plays :attr:`script`; make a class of your own with :func:`scripted_backend`."""

    capabilities = Capabilities(**PERMISSIVE)
    #: Belongs to the class, so that a test can look at it although a registry makes the instance.
    script: ClassVar[Script] = Script(())
    listed: ClassVar[Sequence[Model]] = (Model(),)
    state: ClassVar[Health] = Health()

    def open(self) -> None:
        self.script.count("opens")

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        return self.script.play(request, context)

    def models(self) -> Sequence[Model]:
        return self.listed

    def health(self) -> Health:
        return self.state

    def close(self) -> None:
        self.script.count("closes")


def scripted_backend(
    steps: Iterable[Step] | Callable[[Request], Iterable[Step]],
    *,
    heeds_cancel: bool = True,
    models: Sequence[Model] = (Model(),),
    health: Health = Health(),  # noqa: B008 - a frozen value
    **capabilities: Any,
) -> type[ScriptedBackend]:
    """Return a backend class that can be registered and whose ``script`` a test can look at.

    >>> from caesar_server.contract import ChoiceFinished, Completed, ContentDelta
    >>> hello = scripted_backend([ContentDelta("hello"), ChoiceFinished(), Completed()])
    >>> hello.script.runs
    0

    :param steps: see :class:`Script`.
    :param heeds_cancel: see :class:`Script`.
    :param models: what ``models()`` returns.
    :param health: what ``health()`` returns.
    :param capabilities: fields of :class:`~caesar_server.contract.Capabilities` that differ from
        :data:`PERMISSIVE`.
    """
    return type(
        "ScriptedBackend",
        (ScriptedBackend,),
        {
            "__module__": __name__,
            "capabilities": Capabilities(**{**PERMISSIVE, **capabilities}),
            "script": Script(steps, heeds_cancel=heeds_cancel),
            "listed": tuple(models),
            "state": health,
        },
    )
