"""The files of a new backend's distribution: which there are, and whether its name can be had."""

from __future__ import annotations

import importlib.util
import shutil
from importlib import metadata, resources
from pathlib import Path
from string import Template

from caesar_server import __version__
from caesar_server.registry import discover, is_valid_name

#: Longer ones would make lines of the files too long.
LONGEST_NAME = 28


class NameRefusedError(ValueError):
    """A backend cannot have this name; the message is a sentence that says why."""


def files_of(name: str) -> dict[Path, str]:
    """Return the content of each file by its path in the distribution's folder; pure.

    :param name: the backend's name, valid.
    """
    package = f"caesar_backend_{name}"
    distribution = _distribution(name)
    values = {
        "name": name,
        "package": package,
        "class_name": "".join(word.capitalize() for word in name.split("_")),
        "distribution": distribution,
        "underline": "=" * len(distribution),
        "server_version": __version__,
    }
    sources = {
        "pyproject.toml": "pyproject.toml",
        "setup.cfg": "setup.cfg",
        "README.rst": "README.rst",
        f"{package}/__init__.py": "package_init.py",
        f"{package}/backend.py": "package_backend.py",
        f"{package}/options.py": "package_options.py",
        "tests/test_backend.py": "test_backend.py",
        "tests/test_conformance.py": "test_conformance.py",
    }
    made = {Path(path): _filled(source, values) for path, source in sources.items()}
    return {**made, Path(package, "py.typed"): ""}


def _filled(source: str, values: dict[str, str]) -> str:
    folder = resources.files("caesar_server.cli.plugins") / "templates"
    return Template((folder / f"{source}.txt").read_text("utf-8")).substitute(values)


def _distribution(name: str) -> str:
    return f"caesar-backend-{name.replace('_', '-')}"


def check_name(name: str) -> None:
    """Return if a new backend can have the name.

    :raises NameRefusedError: if it is no valid one, or something installed has it.
    """
    if not is_valid_name(name) or not name[0].isalpha():
        raise NameRefusedError(
            f"{name!r} cannot be the name of a new backend; use a-z and 0-9, a letter first, "
            f"words joined by one underscore{_suggestion(name)}"
        )
    if len(name) > LONGEST_NAME:
        raise NameRefusedError(f"{name!r} is too long: {len(name)} characters of {LONGEST_NAME}")
    for candidate in discover():
        if candidate.name == name:
            raise NameRefusedError(
                f"a backend called {name!r} is installed already, by {candidate.origin}"
            )
    if (version := _installed_version(_distribution(name))) is not None:
        raise NameRefusedError(f"{_distribution(name)} {version} is installed already")
    package = f"caesar_backend_{name}"
    if importlib.util.find_spec(package) is not None:
        raise NameRefusedError(f"a Python package called {package} is installed already")


def _suggestion(name: str) -> str:
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in name).lower().split()
    suggested = "_".join(words)
    fits = is_valid_name(suggested) and suggested[0].isalpha()
    return f"; {suggested!r} would do" if fits else ""


def _installed_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def write(folder: Path, files: dict[Path, str]) -> None:
    """Write the files into a new folder, or nothing at all.

    :raises FileExistsError: if ``folder`` exists, whatever it is.
    :raises OSError: if something cannot be written.
    """
    folder.mkdir()
    try:
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, "utf-8", newline="\n")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
