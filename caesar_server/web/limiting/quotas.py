"""What an account may have: jobs in progress, and reasoning loops a month.

Caesar's limits of accounts (https://docs.caesar.xyz, "Rate limits"): five jobs in progress and 200
loops of completed jobs a month, on ``POST /research`` and the two compat routes.
"""

from __future__ import annotations

import logging
import math

from flask import Flask, Response

from caesar_server.contract.context import Clock
from caesar_server.errors import LoopsUsedUpError, TooManyJobsError
from caesar_server.settings import Settings
from caesar_server.store.base import StoreError
from caesar_server.store.quotas import (
    Quota,
    QuotaExceededError,
    Standing,
    month_end,
    month_of,
)
from caesar_server.web.access.auth import caller
from caesar_server.web.access.keys import KeyLimits, effective_limits
from caesar_server.web.errors import render_error
from caesar_server.web.services import services

logger = logging.getLogger(__name__)

#: When to look again whether a job has ended, in seconds.
_ASK_AGAIN_S = 5.0


def quota_of_caller() -> Quota | None:
    """Return what the caller's account may have; None for no limit, as where there are no keys."""
    who = caller()
    if not who.key_id:
        return None
    parts = services()
    limits = effective_limits(who.limits, parts.settings)
    quota = _quota(limits, parts.clock)
    return None if quota.jobs_in_progress is None and quota.loops is None else quota


def _quota(limits: KeyLimits, clock: Clock) -> Quota:
    return Quota(
        month=month_of(clock.time()),
        jobs_in_progress=limits.jobs_in_progress,
        loops=limits.loops_per_month,
    )


def standing_headers(quota: Quota | None) -> dict[str, str]:
    """Return the headers that tell how the caller's account stands; none without a quota.

    Nor if the store cannot tell now: what they are told with was done.
    """
    if quota is None:
        return {}
    parts = services()
    try:
        standing = parts.store.standing(caller().account, quota.month)
    except StoreError as error:
        logger.warning("how an account stands cannot be told: %s", error)
        return {}
    return _headers(quota, standing, parts.clock.time())


def _headers(quota: Quota, standing: Standing, now: float) -> dict[str, str]:
    headers = {}
    if quota.jobs_in_progress is not None:
        left = max(0, quota.jobs_in_progress - standing.jobs_in_progress)
        headers["x-ratelimit-limit-jobs"] = str(quota.jobs_in_progress)
        headers["x-ratelimit-remaining-jobs"] = str(left)
        # what a public client of Caesar shows: how many more jobs there is room for
        headers["x-ratelimit-remaining"] = str(left)
    if quota.loops is not None:
        left = max(0, quota.loops - standing.loops)
        headers["x-ratelimit-limit-loops"] = str(quota.loops)
        headers["x-ratelimit-remaining-loops"] = str(left)
        headers["x-ratelimit-reset-loops"] = f"{math.ceil(month_end(now) - now)}s"
    return headers


def register(app: Flask, settings: Settings) -> None:
    """Make ``app`` answer with 429 when a job is refused for its account's sake."""

    @app.errorhandler(QuotaExceededError)
    def refuse(error: QuotaExceededError) -> Response:
        clock = services().clock
        now = clock.time()
        info = (
            LoopsUsedUpError(retry_after_s=month_end(now) - now)
            if error.limit == "loops"
            else TooManyJobsError(retry_after_s=_ASK_AGAIN_S)
        ).info()
        response = render_error(info)
        quota = _quota(effective_limits(caller().limits, settings), clock)
        response.headers.update(_headers(quota, error.standing, now))
        if error.limit == "loops":
            response.headers["x-should-retry"] = "false"
        return response
