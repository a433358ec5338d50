"""A mock server inside the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from caesar_server.app import create_app
from caesar_server.contract.options import OptionsError, parse_options
from caesar_server.errors import SettingsError
from caesar_server.mock.files import load_into
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.scopes import Scopes, check_scope_name
from caesar_server.settings import Settings
from caesar_server.testing.live import LiveServer
from caesar_server.testing.mock.caesar_mock import CaesarMock
from caesar_server.testing.mock.checking import as_paths, as_switch, as_text, as_whole
from caesar_server.testing.mock.making import as_fallback, as_faults, make

#: As many requests at once as the setting allows: 200 parallel tests are nothing special, and a
#: thread is only made when it is needed.
_THREADS = 4096
#: Of the setting ``store``.
_USERS_STORE = "sqlite"
#: Settings that are arguments of :func:`mock_server`, too.
_MANNER = {"mock_seed": "seed", "mock_strict": "strict", "mock_fallback": "fallback"}


class MockServer:
    """Runs while a ``with`` or ``async with`` block lasts, or from :meth:`start` to :meth:`stop`.

    Once only: its jobs and rules end with it.  See :func:`mock_server`.
    """

    def __init__(
        self, scopes: Scopes, settings: Settings, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.host = host
        self._scopes = scopes
        self._live = LiveServer(create_app(settings, mock=scopes), host=host, port=port)
        self._mock = CaesarMock(self, scopes.get())
        self._started = False

    @property
    def base_url(self) -> str:
        """``http://HOST:PORT``, once started."""
        return self._live.base_url

    def start(self) -> CaesarMock:
        """Begin to serve; return the mock of the server's own scope, the one without a name.

        :raises RuntimeError: if it was started before.
        :raises OSError: if the port is taken.
        """
        if self._started:
            raise RuntimeError(
                "a mock server starts only once; make another one with mock_server()"
            )
        self._live.start()
        self._started = True
        return self._mock

    def stop(self) -> None:
        """End everything that is under way and all threads; may be called more than once."""
        self._live.stop()

    def scope(self, name: str) -> CaesarMock:
        """Return the mock of a scope, which is made if it is not there.

        :raises ValueError: if the name cannot stand in a path.
        """
        return CaesarMock(self, self._scopes.get(check_scope_name(as_text("scope", name))))

    def free_name(self, wanted: str) -> str:
        """Return ``wanted``, with a number behind it if a scope is called so already.

        The scope is made, so nobody who asks at the same time is given the same name.
        """
        return self._scopes.make(wanted).name

    def give_up(self, name: str) -> None:
        """Remove a scope with all that is in it; that without a name is emptied."""
        self._scopes.remove(name)

    def __enter__(self) -> CaesarMock:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        if exc is None:
            self._mock.check()

    async def __aenter__(self) -> CaesarMock:
        return self.start()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Clients of this event loop may have answers under way, which only end if it goes on.
        await asyncio.to_thread(self.stop)
        if exc is None:
            self._mock.check()


def mock_server(
    *,
    fixtures: str | Path | Sequence[str | Path] | None = None,
    strict: bool | None = None,
    seed: int | None = None,
    fallback: Literal["echo", "error"] | Reply | Mapping[str, Any] | None = None,
    pacing: Pacing | Mapping[str, Any] | None = None,
    faults: Iterable[Fault | Mapping[str, Any]] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    settings: Mapping[str, object] | None = None,
) -> MockServer:
    """Return a mock server for a ``with`` block, which gives its :class:`CaesarMock`::

        with mock_server(seed=7) as mock:
            mock.on(prompt="Hi").reply("Hello")
            run_my_app(base_url=mock.base_url + "/compat")

    Neither environment nor files of the machine have a say in it, and any API key is taken.  What
    is given wins over what the fixture files say.

    :param fixtures: a file with rules, a folder of such files, or several of them.
    :param strict: whether a request that no rule answers is a 404.
    :param seed: what ids, times, jitter and chances are drawn from.
    :param fallback: what such a request gets: ``echo`` (its prompt), ``error`` or a reply.
    :param pacing: how fast replies are told.
    :param faults: what goes wrong in each answer.
    :param host: address to listen on; outside loopback every machine may call.
    :param port: 0 takes a free one.
    :param settings: settings of the server by name, such as ``{"max_prompts": 1}``.
    :raises ValueError: naming the field, if something is wrong with these values.
    """
    given: dict[str, Any] = {
        "strict": None if strict is None else as_switch("strict", strict),
        "seed": None if seed is None else as_whole("seed", seed),
        "fallback": None if fallback is None else as_fallback(fallback),
        "pacing": None if pacing is None else make("pacing", Pacing, pacing),
        "faults": None if faults is None else as_faults(faults),
    }
    manner = {name: value for name, value in given.items() if value is not None}
    paths = () if fixtures is None else as_paths("fixtures", fixtures)
    as_whole("port", port, 0)
    found = _settings({} if settings is None else settings, as_text("host", host))
    for name in _MANNER.keys() & (settings or {}).keys():
        manner.setdefault(_MANNER[name], getattr(found, name))
    try:
        return MockServer(make_scopes(found, manner, paths), found, host=host, port=port)
    except SettingsError as error:
        raise ValueError("; ".join(f"settings: {problem}" for problem in error.problems)) from error


def make_scopes(settings: Settings, manner: Mapping[str, Any], fixtures: Sequence[Path]) -> Scopes:
    """Return the scopes of a server.

    :param manner: what was given, which wins over what the fixture files say.
    :raises ValueError: if the files, or what was given, cannot be used.
    """
    scopes = Scopes.of(settings)
    scopes.set_manner(replace(scopes.manner, **manner))
    if fixtures:
        load_into(scopes, *fixtures, over=manner)
    return scopes


def _settings(given: Any, host: str) -> Settings:
    """Return the settings of a server in a test.

    :raises ValueError: with all that is wrong.
    """
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ValueError(f"settings: expected values by name, got {given!r}")
    if given.get("store") == _USERS_STORE:
        raise ValueError(
            f"settings: store: {_USERS_STORE!r} is the file in the user's folder, which a mock in "
            "a test leaves alone; expected 'memory', which is usual, or a database: "
            "'sqlite:////PATH'"
        )
    usual = {"threads": _THREADS, "host": host, "insecure": True, "log_level": "warning"}
    try:
        return parse_options(Settings, {**usual, **given})
    except OptionsError as error:
        raise ValueError("; ".join(f"settings: {problem}" for problem in error.problems)) from error
