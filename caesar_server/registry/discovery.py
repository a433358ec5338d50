"""What is installed: backends by entry point, found without importing any of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import metadata

from caesar_server.errors import SettingsError

ENTRY_POINT_GROUP = "caesar_server.backends"
#: The distribution whose own backends nobody can replace.
SERVER_DISTRIBUTION = "caesar-server"

# One underscore at a time: two of them step into a table in a variable's name.
_NAME = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_EXTRA = re.compile(r"(?:(?P<name>[^=]+)=)?(?P<value>[\w.]+:(?:[\w.]+\.)?(?P<cls>\w+))")
_logger = logging.getLogger("caesar_server.registry")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A class that may become a backend.

    :param name: the backend's name.
    :param entry_point: ``module:Class``.
    :param distribution: the package that brings it, or None if the settings or a caller name it.
    :param version: of that package.
    :param load: imports the class; may raise anything.
    """

    name: str
    entry_point: str
    distribution: str | None
    version: str | None
    load: Callable[[], object] = field(repr=False, compare=False)

    @property
    def origin(self) -> str:
        """Where it comes from, in words."""
        if self.distribution is None:
            return f"extra_backends ({self.entry_point})"
        return f"{self.distribution} {self.version}"


def is_valid_name(name: str) -> bool:
    """Return whether a backend may have this name: words of ``a-z0-9`` joined by ``_``."""
    return _NAME.fullmatch(name) is not None


def discover() -> tuple[Candidate, ...]:
    """Return the backends of the installed distributions, importing none.

    A distribution whose metadata cannot be read is left out with a warning.
    """
    found: list[Candidate] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        try:
            candidates = list(_candidates(distribution))
        except Exception:
            # its name stands in the metadata, too; the folder's name is the next best
            where = getattr(distribution, "_path", distribution)
            _logger.warning("the entry points of %s cannot be read", where, exc_info=True)
            continue
        # The same one may be on the path twice (an editable install); Python imports the first.
        name = _normalised(candidates[0].distribution) if candidates else ""
        if name and name not in seen:
            seen.add(name)
            found += candidates
    return tuple(found)


def _candidates(distribution: metadata.Distribution) -> Iterator[Candidate]:
    # Looked at first, since parsing the metadata of everything installed takes long.
    if ENTRY_POINT_GROUP not in (distribution.read_text("entry_points.txt") or ""):
        return
    for point in distribution.entry_points.select(group=ENTRY_POINT_GROUP):
        yield Candidate(
            point.name, point.value, distribution.name, distribution.version, point.load
        )


def extra_candidates(specs: Iterable[str]) -> tuple[Candidate, ...]:
    """Return candidates for ``[NAME=]module:Class`` strings.

    Without a name it is made of the class's: ``HelloWorldBackend`` is ``hello_world``.

    :raises SettingsError: if one of them is not of that form.
    """
    problems: list[str] = []
    found: list[Candidate] = []
    for spec in specs:
        match = _EXTRA.fullmatch(spec)
        name = (match["name"] or _name_of(match["cls"])) if match else ""
        if match is None:
            problems.append(f"extra_backends: expected [NAME=]module:Class, got {spec!r}")
        elif not is_valid_name(name):
            problems.append(f"extra_backends: {_invalid(name)}")
        else:
            point = metadata.EntryPoint(name, match["value"], ENTRY_POINT_GROUP)
            found.append(Candidate(name, point.value, None, None, point.load))
    if problems:
        raise SettingsError(problems)
    return tuple(found)


def _name_of(class_name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name.removesuffix("Backend"))
    return words.lower() or "backend"


def _invalid(name: str) -> str:
    return f"{name!r} cannot be a backend's name; use a-z and 0-9, words joined by one underscore"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Who gets which name.

    :param winners: by name.
    :param shadowed: each with the one that has its name.
    :param invalid: each with the reason why its name is not allowed.
    """

    winners: dict[str, Candidate] = field(default_factory=dict)
    shadowed: list[tuple[Candidate, Candidate]] = field(default_factory=list)
    invalid: list[tuple[Candidate, str]] = field(default_factory=list)


def rank(candidates: Iterable[Candidate]) -> Ranking:
    """Give each name to one candidate.

    The server's own distribution comes first, then what the settings name, then the others in the
    order of their distributions' names: so the result does not depend on the path's order.
    """
    ranking = Ranking()
    for candidate in sorted(candidates, key=_precedence):
        winner = ranking.winners.get(candidate.name)
        if not is_valid_name(candidate.name):
            ranking.invalid.append((candidate, _invalid(candidate.name)))
        elif winner is None:
            ranking.winners[candidate.name] = candidate
        else:
            ranking.shadowed.append((candidate, winner))
    return ranking


def _precedence(candidate: Candidate) -> tuple[int, str]:
    if candidate.distribution is None:
        return 1, ""
    name = _normalised(candidate.distribution)
    return (0 if name == SERVER_DISTRIBUTION else 2), name


def _normalised(distribution: str | None) -> str:
    return re.sub(r"[-_.]+", "-", distribution or "").lower()
