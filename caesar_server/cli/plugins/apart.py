"""The options of backends, checked in a process that is there for nothing else.

Only a plugin knows its options, and a master must import none: workers are forked from it, so those
of a later reload would run what was installed before, and under gevent what was never patched.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection

from caesar_server.cli.startup import find_backends
from caesar_server.errors import BackendLoadError
from caesar_server.settings import LoadedSettings, Settings

logger = logging.getLogger(__name__)

#: The master does nothing else meanwhile: it replaces no worker, and hears of no other signal.
_PATIENCE_S = 8.0


def wrong_options_apart(loaded: LoadedSettings, patience_s: float = _PATIENCE_S) -> list[str]:
    """Return what is wrong with the options that are set; each begins with a setting's name.

    What is missing is no mistake, and a backend that cannot be imported tells so in its worker.
    Where the check itself comes to no end the log says so, and nothing is wrong.

    :param patience_s: seconds to wait for all plugins.
    """
    if not any(_backends_with_options(loaded.settings)):
        return []
    try:
        return _told_by_child(loaded, patience_s)
    except OSError as error:  # such as too many open files
        logger.warning("the options of backends were not checked: %s", error)
        return []


def _told_by_child(loaded: LoadedSettings, patience_s: float) -> list[str]:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_tell, args=(loaded, sender))
    try:
        child.start()
    finally:
        sender.close()
    try:
        if receiver.poll(patience_s):
            found: list[str] = receiver.recv()
            return found
        logger.warning("the options of backends were not checked: that took %g s", patience_s)
    except EOFError:
        logger.warning("the options of backends were not checked: importing them ended the process")
    finally:
        child.kill()
        child.join()
        receiver.close()
    return []


def _backends_with_options(settings: Settings) -> Iterator[str]:
    yield from (name for name, options in settings.backends.items() if options)
    yield from (route.backend for route in settings.models.values() if route.options)


def reset_signals() -> None:
    """In a child: let signals do what they usually do, and not what they do in its parent."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _tell(loaded: LoadedSettings, sender: Connection) -> None:
    """In the child: send what is wrong."""
    reset_signals()
    # what fails is logged by the workers, for which it matters
    logging.disable()
    registry = find_backends(loaded)
    problems: dict[str, None] = {}
    for name in _backends_with_options(loaded.settings):
        if name not in registry.names:
            continue  # it is not allowed, or not installed: nobody can tell what its options are
        with suppress(BackendLoadError):
            problems.update(dict.fromkeys(registry.wrong_options(name)))
    sender.send(list(problems))
