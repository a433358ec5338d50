"""What is told to a client whose call no rule matches."""

from __future__ import annotations

from collections.abc import Sequence

from caesar_server.contract import ErrorInfo
from caesar_server.errors import NoFixtureMatchError
from caesar_server.mock.model.rule import Nearest


def nothing_matched(scope: str, nearest: Sequence[Nearest]) -> ErrorInfo:
    """Return the error, which names the rules that came closest and what the call lacks for each.

    :param scope: the scope's name.
    """
    where = f"the scope {scope!r}" if scope else "the default scope"
    message = f"No rule of {where} matches this call"
    if nearest:
        message += "; nearest: " + "; ".join(map(_told, nearest))
    else:
        message += ", since it has no reply rules"
    return NoFixtureMatchError(message).info()


def _told(near: Nearest) -> str:
    return f"{near.rule.label}: " + (", ".join(near.failed) or "it was used up meanwhile")
