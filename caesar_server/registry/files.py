"""A backend that is a file and no installed package: importing it, finding the class in it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import threading
from pathlib import Path
from types import ModuleType

from caesar_server.contract import Backend

#: Python's list of what it knows of folders is the process's, and two threads that clear it at once
#: fail: CPython 3.11 deletes keys of it that the other one has deleted.
_FORGETTING = threading.Lock()


class BackendFileError(Exception):
    """The file cannot be used as a backend.

    :param reason: why not, for the operator.
    :param hint: what to do about it.
    """

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def module_name_of(path: Path) -> str:
    """Return the name under which a file is imported.

    :raises ValueError: if no module can have it.
    """
    if not path.stem.isidentifier():
        raise ValueError(
            f"{path.name!r} cannot be imported; name the file with letters, digits and underscores"
        )
    return path.stem


def load_class(path: Path, class_name: str | None) -> type[Backend]:
    """Return the backend class in a file, importing it as the module of its name.

    The file may import others beside it; to this end its folder goes to the end of the import path.

    :param path: absolute.
    :param class_name: None takes the only backend class that the file defines.
    :raises BackendFileError: if there is no such file, or no such class, or no only one.
    """
    module = _import(path)
    defined = {
        name: item
        for name, item in vars(module).items()
        if inspect.isclass(item)
        and issubclass(item, Backend)
        and item.__module__ == module.__name__
        and not inspect.isabstract(item)
    }
    if class_name is not None:
        if class_name not in defined:
            raise BackendFileError(
                f"{path.name} defines no backend class {class_name}",
                f"it defines: {', '.join(sorted(defined)) or 'none'}",
            )
        return defined[class_name]
    if not defined:
        raise BackendFileError(
            f"{path.name} defines no class derived from caesar_server.contract.Backend "
            "that has a run()",
            "define one there; classes that are imported from elsewhere do not count",
        )
    if len(defined) > 1:
        names = sorted(defined)
        raise BackendFileError(
            f"{path.name} defines {len(defined)} backends: {', '.join(names)}",
            f"say which one: {path.name}:{names[0]}",
        )
    return next(iter(defined.values()))


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise BackendFileError(
            f"the file {path} does not exist", "correct the path; it starts in the current folder"
        )
    name, folder = module_name_of(path), str(path.parent)
    # At the end, so that a file called json.py does not take the place of Python's own for all.
    if folder not in sys.path:
        sys.path.append(folder)
    with _FORGETTING:
        importlib.invalidate_caches()
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path.resolve():
        other = spec.origin if spec else None
        raise BackendFileError(
            f"another module is called {name}: {other or 'one of the interpreter'}",
            f"rename {path.name}",
        )
    return importlib.import_module(name)
