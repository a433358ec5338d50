"""The backends of a process: which one answers, its loading on first use, its end."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from caesar_server.contract import Backend, Model
from caesar_server.entry_points import normalised
from caesar_server.errors import BackendLoadError, SettingsError
from caesar_server.registry.discovery import (
    SERVER_DISTRIBUTION,
    Candidate,
    discover,
    extra_candidates,
    rank,
)
from caesar_server.registry.loading import Instance, LoadFailedError, Plugin
from caesar_server.registry.report import BackendReport, State, report_on
from caesar_server.registry.routing import (
    GENERIC_MODEL,
    Routing,
    Target,
    check_names,
    choose_default,
    needless_settings,
)
from caesar_server.settings import Settings

_logger = logging.getLogger("caesar_server.registry")


class ResolvedBackend(NamedTuple):
    """The backend that answers to a model name.

    :param name: the backend's name.
    :param model: the model name to give it; empty for its own default.
    """

    name: str
    model: str
    backend: Backend


class Registry:
    """The installed backends: found at once, loaded when first asked for, each on its own.

    Making it imports no plugin and starts no thread.  All methods may be called from any thread;
    one backend that takes long to open does not hold up another one.

    :ivar warnings: what the operator should know though the server works, one sentence each.
    """

    def __init__(self, candidates: Iterable[Candidate], settings: Settings) -> None:
        """:raises SettingsError: if the settings name a backend that is not there."""
        ranking = rank(candidates)
        allowed = settings.allowed_backends or tuple(ranking.winners)
        self._plugins = {
            name: Plugin(candidate, cooperative=settings.worker_class == "gevent")
            for name, candidate in sorted(ranking.winners.items())
            if name in allowed
        }
        disabled = [winner for name, winner in ranking.winners.items() if name not in allowed]
        check_names(settings, self._plugins, [candidate.name for candidate in disabled])
        extras = [candidate.name for candidate in extra_candidates(settings.extra_backends)]
        default, warning = choose_default(settings, self._plugins, extras)
        conflicts = [_conflict(*pair) for pair in ranking.shadowed]
        self.warnings: tuple[str, ...] = (
            *conflicts,
            *needless_settings(settings, ranking.winners),
            *([warning] if warning else []),
        )
        for sentence in self.warnings:
            _logger.warning("%s", sentence)
        self._routing = Routing(
            names=frozenset(self._plugins),
            default=default,
            routes=settings.models,
            reject=settings.unknown_model == "reject",
        )
        self._instances = {
            name: Instance(plugin, settings.backends.get(name, {}), f"backends.{name}.")
            for name, plugin in self._plugins.items()
        }
        self._routed = self._instances_of_routes()
        #: Reports on what can never be asked.
        self._unavailable = [
            *(report_on(one, "disabled", "it is not in allowed_backends") for one in disabled),
            *(report_on(one, "failed", reason) for one, reason in ranking.invalid),
            *(_shadowed(*pair) for pair in ranking.shadowed),
        ]

    @classmethod
    def from_entry_points(cls, settings: Settings) -> Registry:
        """Return a registry of everything installed and of ``extra_backends``.

        :raises SettingsError: if the settings name a backend that is not there.
        """
        return cls((*discover(), *extra_candidates(settings.extra_backends)), settings)

    @classmethod
    def of(
        cls, backends: Mapping[str, type[Backend]], settings: Settings | None = None
    ) -> Registry:
        """Return a registry of these classes alone, by name.

        :raises SettingsError: if the settings name a backend that is not there.
        """
        return cls(
            [_candidate(name, backend) for name, backend in backends.items()],
            settings or Settings(),
        )

    def _instances_of_routes(self) -> dict[str, Instance]:
        """Make an instance for each route with options; equal ones are shared."""
        found: dict[str, Instance] = {}
        for pattern, route in self._routing.routes.items():
            if not route.options:
                continue
            base = self._instances[route.backend]
            made = Instance(
                base.plugin, {**base.options, **route.options}, f"models.{pattern}.options."
            )
            found[pattern] = next(
                (
                    other
                    for other in (base, *found.values())
                    if other.plugin is made.plugin and other.options == made.options
                ),
                made,
            )
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The backends that may be asked, in alphabetical order."""
        return tuple(self._plugins)

    @property
    def default(self) -> str:
        """The name of the backend for all names that nothing else claims."""
        return self._routing.default

    def claims(self, model: str) -> bool:
        """Return whether the ``models`` table or a backend's name claims ``model``."""
        return self._routing.claims(model)

    def resolve(self, model: str) -> ResolvedBackend:
        """Return the backend that answers to ``model``, loading it if need be.

        In this order: an exact name of the ``models`` table, the generic name, a glob of the table,
        ``NAME`` or ``NAME/anything``, the default backend.

        :raises ModelNotFoundError: if no name matches and ``unknown_model`` is ``reject``.
        :raises BackendLoadError: if the backend cannot be loaded.
        :raises ShuttingDownError: after :meth:`close`.
        """
        target = self._routing.target(model)
        opened = _open(target.backend, self._instance_for(target))
        return ResolvedBackend(target.backend, target.model, opened)

    def _instance_for(self, target: Target) -> Instance:
        return self._routed.get(target.pattern or "", self._instances[target.backend])

    def models(self) -> tuple[Model, ...]:
        """Return the models to list, without opening a backend; a broken one is left out.

        The generic name, then ``NAME`` or ``NAME/id`` of each backend's models, then the exact
        names of the ``models`` table.
        """
        found = {GENERIC_MODEL: Model(GENERIC_MODEL)}
        for name, instance in self._instances.items():
            for model in _models_of(name, instance):
                found.setdefault(model.id, model)
        for name in self._routing.exact_names():
            instance = self._routed.get(name, self._instances[self._routing.routes[name].backend])
            if _can_be_made(instance):
                found.setdefault(name, Model(name))
        return tuple(found.values())

    def model(self, name: str) -> Model | None:
        """Return the model that a client may ask for by this name, or None; opens no backend.

        That is one of :meth:`models`, or a name that the ``models`` table or a backend's name
        claims.  Of a backend that lists its models by id no others are known.
        """
        listed = next((model for model in self.models() if model.id == name), None)
        if listed is not None or not self.claims(name):
            return listed
        target = self._routing.target(name)
        instance = self._instance_for(target)
        if not _can_be_made(instance):
            return None
        ids = {model.id for model in _models_of(target.backend, instance)} - {target.backend}
        known = not (ids and target.model) or f"{target.backend}/{target.model}" in ids
        return Model(name) if known else None

    def backend_class(self, name: str) -> type[Backend]:
        """Return the class of a backend, imported but not made.

        :raises KeyError: if ``name`` is not in :attr:`names`.
        :raises BackendLoadError: if it cannot be imported or is no backend for this server.
        """
        try:
            return self._plugins[name].load()
        except LoadFailedError as error:
            raise _load_error(name) from error

    def wrong_options(self, name: str) -> tuple[str, ...]:
        """Return what is wrong with the options that are set for a backend and its routes.

        Each begins with a setting's name, as ``backends.NAME.option``.  What is missing is no
        mistake: a route may have it.  The class is imported, and nothing is made of it.

        :raises KeyError: if ``name`` is not in :attr:`names`.
        :raises BackendLoadError: if it cannot be imported or is no backend for this server, or has
            no proper ``options_schema``.
        """
        base = self._instances[name]
        asked = [(base, base.options)]
        for pattern, instance in self._routed.items():
            route = self._routing.routes[pattern]
            if route.backend == name:
                asked.append((instance, route.options))
        try:
            found = [problem for one, names in asked for problem in one.wrong_options(names)]
        except LoadFailedError as error:
            raise _load_error(name) from error
        return tuple(dict.fromkeys(found))

    def load(self, name: str) -> Backend:
        """Return the open backend, loading it if need be.

        :raises KeyError: if ``name`` is not in :attr:`names`.
        :raises BackendLoadError: if it cannot be loaded.
        :raises ShuttingDownError: after :meth:`close`.
        """
        return _open(name, self._instances[name])

    def load_all(self, *, open_backends: bool = True) -> None:
        """Load every backend, as ``strict_plugins`` wants it.

        :param open_backends: also open them; False before a fork, where that must not be done.
        :raises SettingsError: naming all that failed and all that are shadowed.
        """
        for instance in (*self._instances.values(), *self._routed.values()):
            try:
                _ = instance.open() if open_backends else instance.make()
            except LoadFailedError:
                continue  # the reports below tell it, with all others
        problems = [
            f"strict_plugins: {report.sentence}"
            for report in self.reports()
            if report.reason and report.state != "disabled"
        ]
        if problems:
            raise SettingsError(problems)

    def refuse_cpu_bound_default(self) -> None:
        """Import the default backend, to refuse it if it declares ``cpu_bound`` under gevent.

        :raises SettingsError: in that case alone; whatever else fails may still be put right.
        """
        plugin = self._plugins[self.default]
        with suppress(LoadFailedError):  # kept by the plugin
            plugin.load()
        if plugin.failure is not None and plugin.failure.unfit:
            raise SettingsError([f"worker_class: {self.report(self.default).sentence}"])

    def loaded(self) -> Mapping[str, Backend]:
        """Return the open backends by name; those of a route with options as ``models.PATTERN``."""
        routed = {f"models.{pattern}": instance for pattern, instance in self._routed.items()}
        return {
            name: backend
            for name, instance in {**self._instances, **routed}.items()
            if (backend := instance.opened) is not None
        }

    def reports(self) -> tuple[BackendReport, ...]:
        """Return the state of everything that was found, by name, without loading anything."""
        found = [*map(self.report, self._plugins), *self._unavailable]
        return tuple(sorted(found, key=lambda report: report.name))

    def report(self, name: str) -> BackendReport:
        """Return the state of the backend that may be asked by this name.

        :raises KeyError: if ``name`` is not in :attr:`names`.
        """
        candidate, instance = self._plugins[name].candidate, self._instances[name]
        if (failure := instance.failure) is not None:
            return report_on(candidate, "failed", failure.reason, failure.hint, failure.detail)
        state: State = "available" if instance.opened is None else "loaded"
        for pattern, routed in self._routed.items():
            if routed.plugin is instance.plugin and (failure := routed.failure) is not None:
                reason = f"the route models.{pattern} fails: {failure.reason}"
                return report_on(candidate, state, reason, failure.hint, failure.detail)
        return report_on(candidate, state)

    def close(self) -> None:
        """Close every open backend.  What ``close`` of one raises is logged; the others go on."""
        for instance in (*self._instances.values(), *self._routed.values()):
            instance.close()


def _candidate(name: str, backend: type[Backend]) -> Candidate:
    entry_point = f"{backend.__module__}:{backend.__qualname__}"
    return Candidate(name, entry_point, None, None, lambda: backend)


def _open(name: str, instance: Instance) -> Backend:
    try:
        return instance.open()
    except LoadFailedError as error:
        raise _load_error(name) from error


def _load_error(name: str) -> BackendLoadError:
    return BackendLoadError(
        f"The backend {name!r} could not be loaded; on the server, the log tells why, and "
        f"'caesar-server backends {name}' if it is installed"
    )


def _models_of(name: str, instance: Instance) -> Sequence[Model]:
    """Return the models of a backend with their full names; none if it is broken."""
    try:
        models = [_with_full_name(name, model) for model in instance.make().models()]
    except LoadFailedError:
        return ()  # logged when it failed, and told in the reports
    except (Exception, SystemExit):  # a sys.exit() would end the whole process
        _logger.exception("backend %s: models() failed", name)
        return ()
    # What cannot be printed, as half a character, many clients cannot read: not one model then.
    listed = [one for one in models if one.id.isprintable() and one.owned_by.isprintable()]
    if len(listed) < len(models):
        left_out = [one.id for one in models if one not in listed]
        _logger.warning("backend %s: left out, for they cannot be printed: %r", name, left_out)
    return listed


def _with_full_name(name: str, model: object) -> Model:
    """Return a backend's model with its full name.

    :raises TypeError: if it is no ``Model`` of what JSON can carry.
    """
    if isinstance(model, Model):
        kinds = (type(model.id), type(model.created), type(model.owned_by))
        if kinds == (str, int, str):
            return replace(model, id=f"{name}/{model.id}" if model.id else name)
    raise TypeError(f"expected a Model of id (str), created (int), owned_by (str), got {model!r}")


def _can_be_made(instance: Instance) -> bool:
    try:
        instance.make()
    except LoadFailedError:
        return False
    return True


def _conflict(candidate: Candidate, winner: Candidate) -> str:
    return (
        f"two backends are called {winner.name}: that of {winner.origin} is used, that of "
        f"{candidate.origin} is not"
    )


def _shadowed(candidate: Candidate, winner: Candidate) -> BackendReport:
    hint = f"give it another name in extra_backends: OTHER_NAME={candidate.entry_point}"
    if candidate.distribution and winner.distribution:
        both = [candidate.distribution, winner.distribution]
        # nobody gets rid of the server to be rid of its mock
        able = [one for one in both if normalised(one) != SERVER_DISTRIBUTION]
        hint = f"uninstall {' or '.join(able)}, or {hint}"
    return report_on(candidate, "shadowed", f"{winner.origin} has its name", hint)
