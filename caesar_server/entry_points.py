"""What the installed distributions announce, found without importing any of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from importlib import metadata

#: Classes of backends, by the backend's name.
BACKENDS = "caesar_server.backends"
#: Click commands, by the name under ``caesar-server``.
COMMANDS = "caesar_server.commands"
#: Files with defaults for the server's settings, as ``package:file.toml``.
SETTINGS_DEFAULTS = "caesar_server.settings_defaults"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Announcement:
    """One entry point.

    :param group: one of the groups above.
    :param value: ``module:attribute``.
    :param distribution: the package that makes it.
    :param version: of that package.
    :param load: imports what it names; may raise anything.
    """

    group: str
    name: str
    value: str
    distribution: str
    version: str
    load: Callable[[], object] = field(repr=False, compare=False)

    @property
    def origin(self) -> str:
        """The package and its version."""
        return f"{self.distribution} {self.version}"


def announced(*groups: str) -> tuple[Announcement, ...]:
    """Return the entry points of some groups, in the order of the import path.

    A distribution whose metadata cannot be read is left out with a warning.
    """
    found: list[Announcement] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        try:
            announcements = list(_announcements(distribution, groups))
        except Exception:
            # its name stands in the metadata, too; the folder's name is the next best
            where = getattr(distribution, "_path", distribution)
            _logger.warning("the entry points of %s cannot be read", where, exc_info=True)
            continue
        # The same one may be on the path twice (an editable install); Python imports the first.
        name = normalised(announcements[0].distribution) if announcements else ""
        if name and name not in seen:
            seen.add(name)
            found += announcements
    return tuple(found)


def _announcements(
    distribution: metadata.Distribution, groups: Collection[str]
) -> Iterator[Announcement]:
    # Looked at first, since parsing the metadata of everything installed takes long.
    text = distribution.read_text("entry_points.txt") or ""
    if not any(group in text for group in groups):
        return
    # Parsed once: each use of the attributes name and version would parse it again.
    about = distribution.metadata
    for point in distribution.entry_points:
        if point.group in groups:
            yield Announcement(
                point.group, point.name, point.value, about["Name"], about["Version"], point.load
            )


def normalised(distribution: str | None) -> str:
    """Return the form of a distribution's name in which two spellings of it are equal.

    >>> normalised("Caesar_Backend.Echo")
    'caesar-backend-echo'
    """
    return re.sub(r"[-_.]+", "-", distribution or "").lower()
