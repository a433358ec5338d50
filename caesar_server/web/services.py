"""What the views of one app work with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from flask import Flask, Request

from caesar_server.contract.context import Clock, Forwarded
from caesar_server.jobs.files import Files
from caesar_server.jobs.runner import Runner
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.store.base import Store
from caesar_server.store.blobs.base import BlobStore
from caesar_server.web.access.keyring import Keyring
from caesar_server.web.api_version.version import Versions
from caesar_server.web.gone import SocketWatch
from caesar_server.web.incoming import answering
from caesar_server.web.limiting.places import Places
from caesar_server.web.observing.metrics import ServerMetrics

logger = logging.getLogger(__name__)

EXTENSION = "caesar_server"


class Stamp(NamedTuple):
    """What a new job is told apart by.

    :param id: a UUID.
    :param created_at: Unix seconds.
    """

    id: str
    created_at: float


@dataclass(frozen=True)
class Services:
    """The parts of one app; ``create_app`` makes them, views get them with :func:`services`.

    :param blobs: the bytes of uploaded files.
    :param files: resolves the ids of files.
    :param versions: the API versions that are spoken.
    :param settled: called with a job's id before the job is read for somebody who polls it; returns
        at once but in a mock, where it waits until the job stands as it will for some time.
    :param attach_repeats: whether a request that a client sends again is answered by the job of the
        first; not in a mock.
    :param stamp: makes id and creation time of the job for the current request.
    :param forwarded: makes what backends may see of the current request.
    :param closers: what ends the parts, in the order in which they must end.
    """

    settings: Settings
    registry: Registry
    store: Store
    runner: Runner
    clock: Clock
    watch: SocketWatch
    keyring: Keyring
    places: Places
    metrics: ServerMetrics
    blobs: BlobStore
    files: Files
    versions: Versions
    settled: Callable[[str], None]
    attach_repeats: bool
    stamp: Callable[[], Stamp]
    forwarded: Callable[[Request], Forwarded]
    closers: Sequence[Callable[[], None]]

    def start(self) -> None:
        """Begin to look for jobs that wait or whose process is lost.

        For hosts, in each process once it has forked.  An app that is never told so begins with its
        first job of a durable backend.
        """
        self.runner.start()

    def close(self) -> None:
        """Cancel what runs, then close all parts.  May be called more than once."""
        for close in self.closers:
            try:
                close()
            except Exception:
                logger.exception("a part of the server could not be closed")


def services() -> Services:
    """Return the parts of the app that handles the current request."""
    return services_of(answering())


def services_of(app: Flask) -> Services:
    """Return the parts of ``app``."""
    return cast(Services, app.extensions[EXTENSION])
