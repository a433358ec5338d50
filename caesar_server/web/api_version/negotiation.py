"""Which version a request speaks, and the header ``API-Version`` of every answer.

The request's own header comes first, then the version that its job remembers, then the one that
its API key is pinned to, then the setting ``api_version``, then the newest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from flask import Flask, Response

from caesar_server.errors import ValidationFailedError
from caesar_server.web.access import auth
from caesar_server.web.api_version.known import default_version
from caesar_server.web.api_version.version import Version, Versions
from caesar_server.web.errors import printable
from caesar_server.web.incoming import answering, incoming

HEADER = "API-Version"
_ENVIRON_NAME = "HTTP_API_VERSION"
#: The version of the clients that say ``compute_units`` and name no version.
COMPUTE_UNITS_VERSION = "2025-08-08"

_EXTENSION = "caesar_server.api_version"
#: Of a header that is no version, so much is quoted.
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class _Offer:
    """What an app speaks, and what it speaks unless somebody says otherwise."""

    versions: Versions
    default: Version


def register(app: Flask, versions: Versions, default_date: str | None) -> None:
    """Make ``app`` refuse unknown versions and name the version of each answer.

    Must come after the check of keys, and as early as possible otherwise: its header is then on
    whatever is answered.

    :param default_date: the version of requests for which nobody names one; None: the newest.
    :raises SettingsError: if that one is not known.
    """
    default = default_version(versions, default_date)
    app.extensions[_EXTENSION] = _Offer(versions, default)

    @app.before_request
    def refuse_unknown_version() -> None:
        named = _named()
        if not named and auth.caller().api_version is None:
            incoming().version = default  # as nearly always; what a view notes takes its place
        if named and asked_version() is None and not auth.is_for_operator():
            raise ValidationFailedError(
                f'Unsupported API version "{printable(named[:_SHOWN])}"; '
                f"known: {', '.join(versions.dates)}",
                param=HEADER,
            )

    @app.after_request
    def show_version(response: Response) -> Response:
        response.headers[HEADER] = current_version().date
        return response


def asked_version() -> Version | None:
    """Return the version that the header of the current request names, or None."""
    return _offer().versions.find(_named())


def current_version() -> Version:
    """Return the version that the current request speaks: the one that its answer names."""
    return incoming().version or version_for(None)


def note_version(version: Version) -> None:
    """Let the answer to the current request name another version, in which it is rendered."""
    incoming().version = version


def version_for(remembered: str | None) -> Version:
    """Return the version in which to show a job to the current request.

    :param remembered: the job's ``api_version``; one that is not known any more counts as None.
    """
    offer = _offer()
    named, pin = _named(), auth.caller().api_version
    if remembered is None and pin is None and not named:
        return offer.default
    found = (offer.versions.find(date) for date in (named, remembered, pin))
    return next(filter(None, found), offer.default)


def version_to_remember(*, compute_units: bool) -> str | None:
    """Return the version that a job which the current request creates shall remember, or None.

    :param compute_units: whether the request said ``compute_units``.  Clients that do so know no
        header, and read the answer in the form of the version that had this word.
    """
    if compute_units and asked_version() is None:
        return COMPUTE_UNITS_VERSION
    return None


def _named() -> str:
    """Return what the header of the current request says; empty counts as absent."""
    # not by the headers' mapping: this is asked twice for each request
    value: str = incoming().environ.get(_ENVIRON_NAME, "")
    return value.strip()


def _offer() -> _Offer:
    return cast(_Offer, answering().extensions[_EXTENSION])
