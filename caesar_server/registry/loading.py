"""From a candidate to an open backend, or to the reason why not: each on its own, on first use."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from caesar_server.contract import Backend, BackendError, OptionsError
from caesar_server.contract.options import parse_options
from caesar_server.errors import ShuttingDownError
from caesar_server.registry.class_checks import class_problem, read_options_schema
from caesar_server.registry.discovery import Candidate
from caesar_server.registry.files import BackendFileError

_logger = logging.getLogger("caesar_server.registry")

#: What a plugin may raise while it is loaded; SystemExit because scripts call ``sys.exit``.
_RAISED = (Exception, SystemExit)
_LONGEST_DETAIL = 500


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why a backend cannot be used, for the operator.

    :param hint: what to do about it, or None.
    :param detail: the text of an exception that nobody expected, or None.
    :param transient: whether opening it again may succeed.
    :param unfit: whether nothing is wrong with it but the ``worker_class`` it would run in.
    """

    reason: str
    hint: str | None = None
    detail: str | None = None
    transient: bool = False
    unfit: bool = False


class LoadFailedError(Exception):
    """Loading failed; ``failure`` says why."""

    def __init__(self, failure: LoadFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Plugin:
    """The class behind a candidate, imported on first use and at most once.  Safe for threads.

    :param cooperative: refuse a class that declares ``cpu_bound``: its threads would be greenlets,
        of which none runs while one computes.
    """

    def __init__(self, candidate: Candidate, *, cooperative: bool = False) -> None:
        self.candidate = candidate
        self._cooperative = cooperative
        self._lock = threading.Lock()
        self._outcome: type[Backend] | LoadFailure | None = None

    @property
    def failure(self) -> LoadFailure | None:
        """Why the class cannot be had, or None."""
        return self._outcome if isinstance(self._outcome, LoadFailure) else None

    def load(self) -> type[Backend]:
        """Return the class.

        :raises LoadFailedError: if it cannot be imported or is no backend for this server.
        """
        with self._lock:
            if self._outcome is None:
                try:
                    self._outcome = _backend_class(self.candidate, self._cooperative)
                except LoadFailedError as error:
                    self._outcome = error.failure
            if isinstance(self._outcome, LoadFailure):
                raise LoadFailedError(self._outcome)
            return self._outcome


class Instance:
    """One backend object: a plugin's class with one set of options.  Safe for threads.

    :ivar opened: the backend while it is open, else None.
    """

    def __init__(self, plugin: Plugin, options: Mapping[str, Any], prefix: str) -> None:
        """:param prefix: begins the names of options in messages, such as ``backends.echo.``."""
        self.plugin = plugin
        self.options = options
        self.opened: Backend | None = None
        self._prefix = prefix
        self._made: Backend | None = None
        self._failure: LoadFailure | None = None
        self._attempts = 0
        self._closed = False
        # Two locks, so that the models of a backend can be listed while it takes long to open.
        self._make_lock = threading.Lock()
        self._open_lock = threading.Lock()

    @property
    def failure(self) -> LoadFailure | None:
        """Why it could not be made or opened, or None."""
        return self._failure or self.plugin.failure

    def wrong_options(self, names: Collection[str]) -> list[str]:
        """Return what is wrong with the options of these names, or with all of them together.

        Each begins with a setting's name.

        :raises LoadFailedError: if the class cannot be had, or says nothing of its options.
        """
        try:
            _parsed(self.plugin, self.options, self._prefix)
        except OptionsError as error:
            return [
                problem
                for problem in error.problems
                if not problem.startswith(self._prefix)
                or re.split("[.:]", problem.removeprefix(self._prefix), maxsplit=1)[0] in names
            ]
        return []

    def make(self) -> Backend:
        """Return the backend, made of its validated options, open or not.

        :raises LoadFailedError: if the class, its options or its constructor fail.
        """
        with self._make_lock:
            if self._made is None:
                if (failure := self._failure) is not None and not failure.transient:
                    raise LoadFailedError(failure)
                try:
                    self._made = _make(self.plugin, self.options, self._prefix)
                except LoadFailedError as error:
                    self._failure = error.failure
                    raise
            return self._made

    def open(self) -> Backend:
        """Return the backend, open; who comes while it is being opened waits for the outcome.

        A failure is final, unless ``open`` raised a transient ``BackendError``: then the next one
        who comes tries again, with a new object.

        :raises LoadFailedError: if it cannot be made or opened.
        :raises ShuttingDownError: after :meth:`close`.
        """
        if (backend := self.opened) is not None:
            return backend
        attempts = self._attempts
        with self._open_lock:
            if self._closed:
                raise ShuttingDownError("The server is shutting down")
            if self.opened is None:
                waited = self._attempts != attempts
                if (failure := self._failure) is not None and (waited or not failure.transient):
                    raise LoadFailedError(failure)
                try:
                    self.opened = self._open()
                    self._failure = None
                finally:
                    # Counted at its end: who comes while it goes on is one who waited for it.
                    self._attempts += 1
            return self.opened

    def _open(self) -> Backend:
        backend = self.make()
        try:
            backend.open()
        except _RAISED as error:
            self._made = None
            self._failure = failure_of(error, self.plugin.candidate, "open()")
            raise LoadFailedError(self._failure) from error
        return backend

    def close(self) -> None:
        """Close the backend if it is open; waits for an ``open`` that is under way."""
        with self._open_lock:
            self._closed = True
            backend, self.opened = self.opened, None
            if backend is None:
                return
            try:
                backend.close()
            except _RAISED:
                _logger.exception("backend %s: close() failed", self.plugin.candidate.name)


def _backend_class(candidate: Candidate, cooperative: bool) -> type[Backend]:
    try:
        cls = candidate.load()
    except _RAISED as error:
        raise LoadFailedError(failure_of(error, candidate, "the import")) from error
    if not isinstance(cls, type) or not issubclass(cls, Backend):
        raise _failed(
            candidate,
            f"{candidate.entry_point} is no class derived from caesar_server.contract.Backend",
            f"fix the entry point of {candidate.origin}",
        )
    if (problem := class_problem(cls)) is not None:
        raise _failed(candidate, problem.reason, problem.hint)
    try:
        read_options_schema(cls)
    except Exception as error:
        failure = failure_of(error, candidate, "reading its options_schema")
        raise LoadFailedError(failure) from error
    if cooperative and cls.capabilities.cpu_bound:
        raise _failed(
            candidate,
            "it keeps a core busy, which holds up all other requests under worker_class gevent",
            "serve it with --worker-class gthread",
            unfit=True,
        )
    return cls


def _parsed(plugin: Plugin, options: Mapping[str, Any], prefix: str) -> Any:
    schema = plugin.load().options_schema
    try:
        return parse_options(schema, options, prefix=prefix)
    except OptionsError:
        raise
    except Exception as error:
        # What its dataclass does with good options.
        failure = failure_of(error, plugin.candidate, "making its options")
        raise LoadFailedError(failure) from error


def _make(plugin: Plugin, options: Mapping[str, Any], prefix: str) -> Backend:
    cls, candidate = plugin.load(), plugin.candidate
    try:
        parsed = _parsed(plugin, options, prefix)
    except OptionsError as error:
        raise _wrong_options(error, candidate) from error
    try:
        return cls(parsed)
    except _RAISED as error:
        raise LoadFailedError(failure_of(error, candidate, "the constructor")) from error


def failure_of(error: BaseException, candidate: Candidate, what: str) -> LoadFailure:
    """Log what a plugin raised and return it as words for the operator.

    :param what: the step that failed, such as ``open()``.
    """
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _failed(candidate, *_missing_module(error.name, candidate)).failure
    if isinstance(error, BackendFileError):
        return _failed(candidate, error.reason, error.hint).failure
    if isinstance(error, BackendError):
        return _failed(candidate, f"{what}: {error.message}", transient=error.transient).failure
    if isinstance(error, OptionsError):
        return _wrong_options(error, candidate).failure
    reason = f"{what} raised {type(error).__name__}"
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        # The class that an entry point names, or what a plugin expects of another package.
        reason = f"the module {error.obj.__name__} has no {error.name}"
    _logger.error("backend %s (%s): %s", candidate.name, candidate.origin, reason, exc_info=error)
    return LoadFailure(
        reason,
        hint=f"caesar-server backends {_findable(candidate)} --verbose prints the traceback",
        detail=" ".join(str(error).split())[:_LONGEST_DETAIL] or None,
    )


def _wrong_options(error: OptionsError, candidate: Candidate) -> LoadFailedError:
    hint = f"caesar-server backends {candidate.name} prints its options"
    return _failed(candidate, f"its options are wrong: {error}", hint)


def _findable(candidate: Candidate) -> str:
    """Return what another command can find it by, one whose flags do not name it."""
    return candidate.entry_point if candidate.distribution is None else candidate.name


def _missing_module(missing: str, candidate: Candidate) -> tuple[str, str]:
    """Return reason and hint for a module that is not installed."""
    reason = f"the module {missing} is missing"
    module = candidate.entry_point.partition(":")[0]
    own = module == missing or module.startswith(f"{missing}.")
    if candidate.distribution is None:
        if own:
            return (
                reason,
                "correct the name, or start the server in the folder that holds the module",
            )
        return reason, f"pip install {missing.partition('.')[0]}"
    again = f"pip install --force-reinstall {candidate.distribution}"
    return reason, again if own else f"pip install {missing.partition('.')[0]}, or {again}"


def _failed(
    candidate: Candidate,
    reason: str,
    hint: str | None = None,
    *,
    transient: bool = False,
    unfit: bool = False,
) -> LoadFailedError:
    """Log a failure that needs no traceback and return it as an exception."""
    _logger.error("backend %s (%s): %s", candidate.name, candidate.origin, reason)
    return LoadFailedError(LoadFailure(reason, hint, transient=transient, unfit=unfit))
