"""From a model name to the name of a backend: pure, nothing is loaded."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from caesar_server.errors import ModelNotFoundError, SettingsError
from caesar_server.settings import ModelRoute, Settings

#: The name under which clients ask for "the research API", whatever answers.
GENERIC_MODEL = "caesar-research"
#: Backends that are the default where the settings name none, best first.
USUAL_DEFAULTS = ("research", "mock")

_GLOB_CHARACTERS = frozenset("*?[")
_LONGEST_NAME = 100
_MADE_UP = (
    "default_backend is not set and the backend research is not there: the mock answers, with "
    "made-up text"
)


class Target(NamedTuple):
    """Where a request goes.

    :param backend: the backend's name.
    :param model: the model name that it is given; empty for its own default.
    :param pattern: the entry of the ``models`` table that decided, or None.
    """

    backend: str
    model: str
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Routing:
    """The rules by which names are looked up.

    :param names: the backends that may be asked.
    :param default: the one for all names that nothing else claims.
    :param routes: the ``models`` table.
    :param reject: refuse names that nothing claims.
    """

    names: frozenset[str]
    default: str
    routes: Mapping[str, ModelRoute]
    reject: bool = False

    def target(self, model: str) -> Target:
        """Return where a request for ``model`` goes.

        In this order: an exact name of the ``models`` table, the generic name, a glob of the table
        in the order of the file, ``NAME`` or ``NAME/anything``, the default backend.

        :raises ModelNotFoundError: if nothing claims the name and such names are refused.
        """
        if model in self.routes:
            return self._routed(model, model)
        if model == GENERIC_MODEL:
            return Target(self.default, "")
        for pattern in self.routes:
            if fnmatch.fnmatchcase(model, pattern):
                return self._routed(model, pattern)
        name, _, rest = model.partition("/")
        if name in self.names:
            return Target(name, rest)
        if self.reject:
            raise ModelNotFoundError(self._not_found(model), param="model")
        return Target(self.default, model)

    def claims(self, model: str) -> bool:
        """Return whether something but the default backend claims the name."""
        return (
            model == GENERIC_MODEL
            or model.partition("/")[0] in self.names
            or any(fnmatch.fnmatchcase(model, pattern) for pattern in self.routes)
        )

    def _routed(self, model: str, pattern: str) -> Target:
        route = self.routes[pattern]
        return Target(route.backend, model if route.model is None else route.model, pattern)

    def exact_names(self) -> Iterator[str]:
        """Yield the names of the ``models`` table that are no globs."""
        return (name for name in self.routes if not _GLOB_CHARACTERS & set(name))

    def _not_found(self, model: str) -> str:
        known = dict.fromkeys((GENERIC_MODEL, *self.exact_names(), *sorted(self.names)))
        shown = model if len(model) <= _LONGEST_NAME else f"{model[:_LONGEST_NAME]}..."
        return f"No backend answers to the model {shown!r}; {nearest(shown, known)}"


def choose_default(
    settings: Settings, names: Iterable[str], extras: Iterable[str]
) -> tuple[str, str | None]:
    """Return the default backend, and a warning if it is one that makes its answers up.

    :param names: the backends that may be asked.
    :param extras: those that ``extra_backends`` names, in its order.
    :raises SettingsError: if none is the obvious one.
    """
    names = tuple(names)
    if settings.default_backend is not None:
        return settings.default_backend, None
    for name in (*extras, *USUAL_DEFAULTS, *(names if len(names) == 1 else ())):
        if name in names:
            return name, _MADE_UP if name == "mock" else None
    if not names:
        raise SettingsError(["no backend is installed and allowed (see allowed_backends)"])
    raise SettingsError([f"default_backend: must be set to one of {', '.join(sorted(names))}"])


def check_names(settings: Settings, names: Iterable[str], disabled: Iterable[str]) -> None:
    """Check that each backend which the settings send requests to is there.

    :param names: the backends that may be asked.
    :param disabled: installed, but not allowed.
    :raises SettingsError: for each that is not.
    """
    names, disabled = tuple(names), tuple(disabled)
    wanted = {
        f"models.{pattern}.backend": route.backend for pattern, route in settings.models.items()
    }
    if settings.default_backend is not None:
        wanted = {"default_backend": settings.default_backend, **wanted}
    problems = [
        f"{setting}: {name} is not in allowed_backends"
        if name in disabled
        else f"{setting}: no backend is called {name!r}; {nearest(name, names)}"
        for setting, name in wanted.items()
        if name not in names
    ]
    if problems:
        raise SettingsError(problems)


def needless_settings(settings: Settings, installed: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each name in the settings that no installed backend has."""
    installed = sorted(installed)
    named = [
        *(("allowed_backends", name) for name in settings.allowed_backends),
        *((f"backends.{name}", name) for name in settings.backends),
    ]
    for setting, name in named:
        if name not in installed:
            yield f"{setting}: no backend is called {name!r}; {nearest(name, installed)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'echo'?``, or the list of all names that are known."""
    known = tuple(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(known) or 'none'}"
