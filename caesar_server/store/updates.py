"""Updates that were sent to a running job, as a store keeps them."""

from __future__ import annotations

from typing import NamedTuple

from caesar_server.contract.context import Update


class JobEndedError(Exception):
    """The job has ended, so nothing can be said to it any more."""


class NumberedUpdate(NamedTuple):
    """An update of a job with its place among them.

    :param number: from 1, rising, not always without gaps.
    :param created_at: Unix seconds.
    """

    number: int
    created_at: float
    update: Update
