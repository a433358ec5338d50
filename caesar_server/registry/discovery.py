"""What is installed: backends by entry point, found without importing any of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from caesar_server.entry_points import BACKENDS, announced, normalised
from caesar_server.errors import SettingsError
from caesar_server.registry.files import load_class, module_name_of

ENTRY_POINT_GROUP = BACKENDS
#: The distribution whose own backends nobody can replace.
SERVER_DISTRIBUTION = "caesar-server"

# One underscore at a time: two of them step into a table in a variable's name.
_NAME = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_EXTRA = re.compile(r"(?:(?P<name>[^=]+)=)?(?P<value>[\w.]+:(?:[\w.]+\.)?(?P<cls>\w+))")
_FILE = re.compile(r"(?:(?P<name>\w+)=)?(?P<value>(?P<path>.+\.py)(?::(?P<cls>\w+))?)")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A class that may become a backend.

    :param name: the backend's name.
    :param entry_point: ``module:Class``, or ``path/to/file.py[:Class]``.
    :param distribution: the package that brings it, or None if the settings or a caller name it.
    :param version: of that package.
    :param load: imports the class; may raise anything.
    :param file: the file that it is run from in place, or None.
    """

    name: str
    entry_point: str
    distribution: str | None
    version: str | None
    load: Callable[[], object] = field(repr=False, compare=False)
    file: Path | None = None

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
    return tuple(
        Candidate(one.name, one.value, one.distribution, one.version, one.load)
        for one in announced(BACKENDS)
    )


def extra_candidates(specs: Iterable[str]) -> tuple[Candidate, ...]:
    """Return candidates for ``[NAME=]module:Class`` and ``[NAME=]path/to/file.py[:Class]``.

    Without a name it is made of the class's, or else of the file's: ``HelloWorldBackend`` and
    ``hello_world.py`` are ``hello_world``.

    :raises SettingsError: if one of them is not of that form.
    """
    problems: list[str] = []
    found: list[Candidate] = []
    for spec in specs:
        try:
            found.append(_extra_candidate(spec))
        except ValueError as error:
            problems.append(f"extra_backends: {error}")
    if problems:
        raise SettingsError(problems)
    return tuple(found)


def names_file(spec: str) -> bool:
    """Return whether a spec of :func:`extra_candidates` is one of a file."""
    return _FILE.fullmatch(spec) is not None


def _extra_candidate(spec: str) -> Candidate:
    """Return the candidate for one spec.

    :raises ValueError: with a sentence.
    """
    if match := _FILE.fullmatch(spec):
        # shells know no ``~`` behind ``NAME=``, nor does a file of settings
        path = Path(os.path.expanduser(match["path"])).absolute()  # noqa: PTH111
        cls = match["cls"]
        name = match["name"] or (_name_of(cls) if cls else _name_of_file(path))
        module_name_of(path)  # refuses what could not be imported
        load: Callable[[], object] = lambda: load_class(path, cls)  # noqa: E731
    elif match := _EXTRA.fullmatch(spec):
        path = None
        name = match["name"] or _name_of(match["cls"])
        load = metadata.EntryPoint(name, match["value"], BACKENDS).load
    else:
        raise ValueError(f"expected [NAME=]module:Class or [NAME=]file.py[:Class], got {spec!r}")
    if not is_valid_name(name):
        raise ValueError(_invalid(name))
    return Candidate(name, match["value"], None, None, load, path)


def _name_of(class_name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name.removesuffix("Backend"))
    return words.lower() or "backend"


def _name_of_file(path: Path) -> str:
    return path.stem.lower().removesuffix("_backend")


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
    name = normalised(candidate.distribution)
    return (0 if name == SERVER_DISTRIBUTION else 2), name
