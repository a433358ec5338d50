"""Reading fixture files and folders of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from caesar_server.mock.files.problems import FixturesError, Problem
from caesar_server.mock.files.rules import SETTINGS, Content, content_of
from caesar_server.mock.files.text.document import Document, failure
from caesar_server.mock.files.text.json_text import read_json
from caesar_server.mock.model.rule import Rule

YAML_SUFFIXES = frozenset({".yaml", ".yml"})
#: Files of a folder that are read; a file that is named itself may be called anything.
SUFFIXES = frozenset({".json", *YAML_SUFFIXES})
MAX_FILES = 10_000
MAX_BYTES = 8 * 1024 * 1024

#: What tells one state of a file from the next.
Stamp: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixtures:
    """What files say together.

    :param rules: in the order of the files, which is that of their names, and within each.
    :param settings: those of :data:`~caesar_server.mock.files.rules.SETTINGS` that are in one.
    :param files: those that were read.
    """

    rules: tuple[Rule, ...] = ()
    settings: Mapping[str, Any]
    files: Sequence[Path] = ()


def load_fixtures(*paths: Path) -> Fixtures:
    """Read files and folders.

    A folder stands for the files in it and in folders below whose names end in ``.yaml``, ``.yml``
    or ``.json``, in alphabetical order; names that begin with a dot are left out, links are
    followed.

    :raises FixturesError: with every problem of every file and its place.
    """
    return load_texts(find_all(paths))


def load_texts(files: Mapping[Path, str]) -> Fixtures:
    """Read files.

    :param files: with what each is called in messages and ids of rules.
    :raises FixturesError: as :func:`load_fixtures`.
    """
    problems: list[Problem] = []
    contents: list[tuple[Document, Content]] = []
    for path, name in files.items():
        try:
            document = read_document(path, name)
            contents.append((document, content_of(document)))
        except FixturesError as error:
            problems += error.problems
    settings = _settings(contents, problems)
    if problems:
        raise FixturesError(problems)
    rules = tuple(rule for _, content in contents for rule in content.rules)
    return Fixtures(rules=rules, settings=settings, files=tuple(files))


def find_all(roots: Iterable[Path]) -> dict[Path, str]:
    """Return the files that paths stand for, each once, with what to call them.

    A file is called as in its folder, or by its whole path if another one is called so.

    :raises FixturesError: as :func:`find_files`, with the problems of all paths.
    """
    found: dict[Path, str] = {}
    seen: set[Path] = set()
    names: set[str] = set()
    problems: list[Problem] = []
    for root in roots:
        try:
            files = find_files(root)
        except FixturesError as error:
            problems += error.problems
            continue
        for path, name in files:
            if path.resolve() not in seen:
                seen.add(path.resolve())
                found[path] = str(path) if name in names else name
                names.add(found[path])
    if problems:
        raise FixturesError(problems)
    return found


def find_files(root: Path) -> list[tuple[Path, str]]:
    """Return the files that a path stands for, with what to call them: a folder's from there.

    :raises FixturesError: if there are none, or too many.
    """
    try:
        # not `is_dir`, which hides why something cannot be looked at
        if not stat.S_ISDIR(root.stat().st_mode):
            return [(root, root.name)]
        named = ((path, path.relative_to(root).as_posix()) for path in _walk(root))
        found = sorted(named, key=lambda pair: pair[1])
    except OSError as error:
        raise failure(str(root), f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a null character
        raise failure(repr(str(root)), f"is no path: {error}") from None
    if not found:
        raise failure(str(root), f"has no file that ends in {', '.join(sorted(SUFFIXES))}")
    if len(found) > MAX_FILES:
        raise failure(str(root), f"has {len(found)} files; at most {MAX_FILES} are read")
    return found


def read_document(path: Path, name: str) -> Document:
    """Read one file: UTF-8, a byte order mark is allowed.

    :raises FixturesError: if it cannot be read or parsed.
    """
    text = _decode(name, read_bytes(path, name))
    if path.suffix.lower() not in YAML_SUFFIXES:
        return read_json(name, text)
    try:
        from caesar_server.mock.files.text.yaml_text import read_yaml
    except ImportError as error:
        if error.name != "yaml":
            raise
        message = "YAML needs PyYAML: pip install 'caesar-server[mock]', or write the file as JSON"
        raise failure(name, message) from None
    return read_yaml(name, text)


def stamp_of(path: Path) -> Stamp | None:
    """Return what changes when a file does, or None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _walk(root: Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the files in a folder and in those below, links to others included.

    :param above: the real paths of the folders around it, for a link may lead back to one.
    """
    real = os.path.realpath(root)
    if real in above:
        return
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = Path(entry.path)
            if entry.is_dir():
                yield from _walk(path, (*above, real))
            elif path.suffix.lower() in SUFFIXES:
                yield path


def read_bytes(path: Path, name: str) -> bytes:
    """Return the content of a file.

    :raises FixturesError: if it cannot be read, or is too large.
    """
    try:
        # not blocking: somebody may have put a pipe there
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise failure(name, "is no file")
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise failure(name, f"cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_BYTES:
        raise failure(name, f"is larger than {MAX_BYTES} bytes")
    return content


def _decode(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        place = (before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise failure(name, "is not UTF-8", place) from None


def _settings(
    contents: Sequence[tuple[Document, Content]], problems: list[Problem]
) -> dict[str, Any]:
    """Return the settings of all files; two that differ are a problem."""
    found: dict[str, Any] = {}
    said_by: dict[str, Document] = {}
    for document, content in contents:
        for name in SETTINGS:
            if name not in content.settings:
                continue
            value = content.settings[name]
            if name in found and found[name] != value:
                other = said_by[name]
                message = f"differs from {other.name}:{other.line((name,))}"
                problems.append(document.located(Problem(message, (name,))))
            found.setdefault(name, value)
            said_by.setdefault(name, document)
    return found
