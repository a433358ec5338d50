"""What a backend is: a class with one method that must be written, :meth:`Backend.run`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from caesar_server.contract.context import Context
from caesar_server.contract.events import Channel, Told
from caesar_server.contract.request import Request, RequestKind

#: Raised by one when a change breaks existing backends; additions do not change it.
CONTRACT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend can do.  The server refuses or adapts what it cannot.

    A parameter whose silent loss would give wrong data (``n``, ``logprobs``, ``echo``, ``suffix``,
    ``best_of``, token prompts, images, audio) is answered with a 400 unless the flag is set; one
    that is in ``ignores`` is accepted without effect.  The others (``max_tokens``, ``temperature``,
    ``top_p``, ``stop``, ``seed``, penalties, ``logit_bias``) are always accepted; their flags tell
    the conformance suite that the backend honours them.

    :param accepts: the request types that ``run`` takes; the server turns others into one of them.
    :param prompts: whether one request may have several prompts.
    :param n: several choices a prompt.
    :param best_of: honours ``best_of``.
    :param logprobs: log probabilities in the deltas.
    :param echo: honours ``echo``.
    :param suffix: honours ``suffix``.
    :param token_prompts: takes prompts of token ids.
    :param max_tokens: honours ``max_tokens``.
    :param stop: honours ``stop``.
    :param seed: the same seed and request give the same text.
    :param usage: counts tokens itself (:class:`~caesar_server.contract.UsageCounted`); otherwise
        the server counts words.
    :param files: reads ``context.files``.
    :param images: takes chats with images; one whose models differ in that refuses them itself.
    :param audio: takes chats with recorded sound, likewise.
    :param citations: emits ``ResultFound`` with citation indices.
    :param durable: can go on from its own checkpoint in another process.
    :param cpu_bound: keeps a core busy while it runs.
    :param immediate: waits for nothing before it yields an empty list; see :meth:`Backend.run`.
    :param channels: the channels that it writes.
    :param ignores: parameter names that are accepted without effect, such as ``logprobs``.
    :param cancel_deadline_s: seconds within which ``run`` ends after a cancel.
    """

    accepts: frozenset[RequestKind] = frozenset({"completion"})
    prompts: bool = True
    n: bool = False
    best_of: bool = False
    logprobs: bool = False
    echo: bool = False
    suffix: bool = False
    token_prompts: bool = False
    max_tokens: bool = False
    stop: bool = False
    seed: bool = False
    usage: bool = False
    files: bool = False
    images: bool = False
    audio: bool = False
    citations: bool = False
    durable: bool = False
    cpu_bound: bool = False
    immediate: bool = False
    channels: frozenset[Channel] = frozenset({"content"})
    ignores: frozenset[str] = frozenset()
    cancel_deadline_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Model:
    """A model as ``GET /compat/models`` lists it.

    :param id: the name without the backend's: ``smollm2``, not ``local_llm/smollm2``; empty for the
        backend itself.
        It is of printable characters, as ``owned_by`` is.
    :param created: Unix seconds.
    """

    id: str = ""
    created: int = 0
    owned_by: str = "caesar-server"


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the backend can answer now.

    :param message: why not, for a person.
    """

    status: Literal["ok", "degraded", "down"] = "ok"
    message: str = ""


#: A frozen dataclass whose fields are made with :func:`caesar_server.contract.option`.
Options: TypeAlias = Any


@dataclass(frozen=True)
class NoOptions:
    """The options of a backend that has none: any option is refused."""


class Backend(ABC):
    """A plugin that answers requests.

    One instance serves a process for each set of options.  It is made with its validated options,
    opened once, asked from several threads at once and closed once.  ``__init__`` must be cheap:
    no files, sockets, threads or heavy imports before :meth:`open`.
    """

    #: The version of the contract that the class was written for.
    contract_version: ClassVar[int] = 1
    #: What it can do.
    capabilities: ClassVar[Capabilities] = Capabilities()
    #: The dataclass of its options.
    options_schema: ClassVar[type[Any]] = NoOptions

    def __init__(self, options: Options = None) -> None:
        self.options = self.options_schema() if options is None else options

    def open(self) -> None:  # noqa: B027 - a backend need not write it
        """Get ready: once per process, after the fork, before the first :meth:`run`.

        The place for heavy imports, connections and loading.

        :raises BackendError: or anything else: the backend is then listed as failed.
        """

    @abstractmethod
    def run(self, request: Request, context: Context) -> Iterator[Told]:
        """Yield the events of one answer, in the order of :mod:`caesar_server.contract.events`.

        An item is one event, or a list or tuple of events that are there at the same time: they
        then go on together, which costs a fraction of what they cost one by one.  To the client
        there is no difference.  A cancel is looked for after each item.

        Called from many threads at once.  The iterator is consumed in one thread and closed if the
        job ends early; ``finally`` blocks of a generator then run.  Look at ``context.cancelled``
        between steps and register ``context.on_cancel`` around calls that block.

        A backend that is ``immediate`` runs in the thread of a stream's request until it yields an
        empty list, and from then on perhaps in another thread, which also closes it.  Before it
        must wait for nothing: heartbeats and the end of a client would wait for it.

        :param request: of a type in ``capabilities.accepts``, and only with parameters that the
            capabilities allow.
        :raises BackendError: the job fails with it, as with a yielded ``Failed``.
        :raises Cancelled: passed through from the context.
        """

    def models(self) -> Sequence[Model]:
        """Return the models to list; may be called before :meth:`open` and must not block."""
        return (Model(),)

    def health(self) -> Health:
        """Return whether it can answer now; called often, so it must return within a second."""
        return Health()

    def close(self) -> None:  # noqa: B027 - likewise
        """Release what :meth:`open` took; no ``run`` is under way then.  May be opened again."""
