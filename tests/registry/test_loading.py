"""Each backend is loaded on first use, once, and whatever is wrong with it stays its own affair."""

from __future__ import annotations

import functools
import logging
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from caesar_server.contract import (
    BackendUnavailableError,
    Model,
    OptionsError,
    RateLimitedError,
    option,
)
from caesar_server.errors import BackendLoadError, SettingsError, ShuttingDownError
from caesar_server.registry import Registry
from caesar_server.settings import ModelRoute, Settings

WITHIN_S = 60

HEAD = "from caesar_server.contract import *\nfrom dataclasses import dataclass\n"
RUN = "\n    def run(self, request, context): yield Completed()\n"
DATACLASS = "@dataclass(frozen=True)\n"
CAPABLE = "from caesar_server.contract import Capabilities as C\n"
#: How a module is broken -> its source, a part of the reason and of the hint.
BROKEN = {
    "syntax": ("class (", "SyntaxError", "--verbose"),
    "missing_module": (
        "import no_such_module.part",
        "no_such_module",
        "pip install no_such_module",
    ),
    "raises": ("raise RuntimeError('why')", "the import raised RuntimeError", "--verbose"),
    "exits": ("import sys; sys.exit(3)", "the import raised SystemExit", "--verbose"),
    "no_class": ("Broken = 1", "is no class derived from", "fix the entry point"),
    "no_backend": ("class Broken: pass", "is no class derived from", "fix the entry point"),
    "no_name": ("", "the module broken_module has no Broken", "--verbose"),
    "too_new": (
        f"{HEAD}class Broken(Backend):\n    contract_version = 2{RUN}",
        "needs contract version 2, and this server has 1",
        "pip install --upgrade caesar-server",
    ),
    "odd_version": (
        f"{HEAD}class Broken(Backend):\n    contract_version = '1'{RUN}",
        "its contract_version is '1'",
        "set contract_version = 1",
    ),
    "no_capabilities": (
        f"{HEAD}class Broken(Backend):\n    capabilities = None{RUN}",
        "its capabilities are of type NoneType",
        "set capabilities = Capabilities(...)",
    ),
    "abstract": (f"{HEAD}class Broken(Backend): pass", "the constructor raised TypeError", "-v"),
    "constructor": (
        f"{HEAD}class Broken(Backend):\n    def __init__(self, options): 1/0{RUN}",
        "the constructor raised ZeroDivisionError",
        "--verbose",
    ),
    "no_schema": (
        f"{HEAD}class Broken(Backend):\n    options_schema = int{RUN}",
        "its options_schema is <class 'int'>, which is no dataclass",
        "@dataclass(frozen=True)",
    ),
    "wrong_hint": (
        f"{HEAD}{DATACLASS}class O:\n    size: 'Sise' = 1\n"
        f"class Broken(Backend):\n    options_schema = O{RUN}",
        "reading its options_schema raised NameError",
        "--verbose",
    ),
    "wrong_hint_in_a_table": (
        f"{HEAD}{DATACLASS}class I:\n    size: 'Sise' = 1\n{DATACLASS}class O:\n    i: I = I()\n"
        f"class Broken(Backend):\n    options_schema = O{RUN}",
        "reading its options_schema raised NameError",
        "--verbose",
    ),
    "accepts_letters": (
        f"{HEAD}{CAPABLE}class Broken(Backend):\n    capabilities = C(accepts=('chat')){RUN}",
        "its capabilities have accepts='chat', which is no set of names",
        "write accepts=frozenset({...})",
    ),
    "accepts_the_letters": (
        f"{HEAD}{CAPABLE}class Broken(Backend):\n    capabilities = C(accepts=set('hi')){RUN}",
        "its capabilities accept 'h', 'i', which is no kind of request",
        "some of completion, chat,",
    ),
    "ignores_letters": (
        f"{HEAD}{CAPABLE}class Broken(Backend):\n    capabilities = C(ignores='echo'){RUN}",
        "its capabilities have ignores='echo', which is no set of names",
        "write ignores=frozenset({...})",
    ),
    "async_run": (
        f"{HEAD}class Broken(Backend):\n    async def run(self, request, context): yield",
        "its run() is async",
        "write def run in place of async def",
    ),
    "async_open": (
        f"{HEAD}class Broken(Backend):\n    async def open(self): pass{RUN}",
        "its open() is async",
        "write def open in place of async def",
    ),
    "no_context": (
        f"{HEAD}class Broken(Backend):\n    def run(self, request): yield",
        "its run() cannot be called as run(request, context): too many positional arguments",
        "write def run(self, request, context)",
    ),
    "no_options": (
        f"{HEAD}class Broken(Backend):\n    def __init__(self): pass{RUN}",
        "its __init__() cannot be called as __init__(options): too many positional arguments",
        "write def __init__(self, options)",
    ),
    "no_method": (
        f"{HEAD}class Broken(Backend):\n    run = health = None",
        "its run is None",
        "write a method run()",
    ),
    "open": (
        f"{HEAD}class Broken(Backend):\n    def open(self): 1/0{RUN}",
        "open() raised ZeroDivisionError",
        "--verbose",
    ),
    "open_exits": (
        f"{HEAD}class Broken(Backend):\n    def open(self): raise SystemExit(3){RUN}",
        "open() raised SystemExit",
        "--verbose",
    ),
    "open_import": (
        f"{HEAD}class Broken(Backend):\n    def open(self): import heavy_library{RUN}",
        "the module heavy_library is missing",
        "pip install heavy_library, or pip install --force-reinstall caesar-backend-broken",
    ),
    "open_refuses": (
        f"{HEAD}class Broken(Backend):\n"
        f"    def open(self): raise BackendError('the key is expired'){RUN}",
        "open(): the key is expired",
        "",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_backend_is_explained_and_does_not_harm_others(site, good_module, kind) -> None:
    source, reason, hint = BROKEN[kind]
    site.add("caesar-backend-broken", {"broken": "broken_module:Broken"}, {"broken_module": source})
    site.add("caesar-backend-good", {"good": "good_mod:GoodBackend"}, {"good_mod": good_module})
    registry = Registry(site.candidates(), Settings(default_backend="good"))

    for _ in range(2):
        with pytest.raises(BackendLoadError) as caught:
            registry.resolve("broken/model")
        assert caught.value.status == 503
        assert "broken" in caught.value.message
        assert reason not in caught.value.message
    assert registry.resolve("good").name == "good"
    assert registry.resolve("anything").name == "good"

    broken, good = registry.reports()
    assert (broken.state, good.state) == ("failed", "loaded")
    assert broken.entry_point == "broken_module:Broken"
    assert (broken.distribution, broken.version) == ("caesar-backend-broken", "1.0")
    assert reason in broken.reason
    assert hint in (broken.hint or "")
    assert "broken" not in [model.id for model in registry.models()]
    registry.close()


def test_missing_module_of_the_entry_point_itself_is_told(site) -> None:
    site.add("gone", {"gone": "gone_module.inner:Gone"})
    registry = Registry(site.candidates(), Settings())
    with pytest.raises(BackendLoadError):
        registry.load("gone")
    (report,) = registry.reports()
    assert report.reason == "the module gone_module is missing"
    assert report.hint == "pip install --force-reinstall gone"


def test_unexpected_exception_is_logged_whole_and_kept_out_of_the_reason(site, caplog) -> None:
    source = f"{HEAD}class Bad(Backend):\n    def open(self): raise OSError('pw=hush'){RUN}"
    site.add("bad", {"bad": "bad_module:Bad"}, {"bad_module": source})
    registry = Registry(site.candidates(), Settings())
    with pytest.raises(BackendLoadError):
        registry.load("bad")
    (report,) = registry.reports()
    assert "hush" not in report.reason
    assert report.detail == "pw=hush"
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.exc_info is not None
    assert "bad 1.0" in record.getMessage()


@dataclass(frozen=True)
class GreetingOptions:
    greeting: str = option("Hello", help="The word to begin with.")
    size: int = option(1, help="How many.", minimum=1, maximum=3)
    api_key: str | None = option(None, help="A key.", secret=True)


def test_options_come_typed_from_the_settings(backend_class) -> None:
    greeter = backend_class(options_schema=GreetingOptions)
    settings = Settings(backends={"greeter": {"greeting": "Hi", "size": "2"}})
    registry = Registry.of({"greeter": greeter}, settings)
    assert registry.load("greeter").options == GreetingOptions("Hi", 2)
    registry.close()


def test_wrong_options_fail_the_backend_with_all_of_them(backend_class) -> None:
    greeter = backend_class(options_schema=GreetingOptions)
    options = {"greting": "Hi", "size": 9, "api_key": 5}
    registry = Registry.of({"greeter": greeter}, Settings(backends={"greeter": options}))
    with pytest.raises(BackendLoadError):
        registry.resolve("greeter")
    (report,) = registry.reports()
    assert report.state == "failed"
    assert "backends.greeter.greting: unknown; did you mean" in report.reason
    assert "backends.greeter.size: expected 1 to 3, got 9" in report.reason
    assert "backends.greeter.api_key: expected string, got another value" in report.reason
    assert "caesar-server backends greeter" in report.hint


@dataclass(frozen=True)
class ModelOptions:
    path: str = option(help="Where it is.")
    size: int = option(1, help="How many.")


def test_options_that_are_set_are_checked_without_making_anything(backend_class) -> None:
    def fail(self, options) -> None:
        raise AssertionError("made")

    made = {"__init__": fail}
    backends = {
        "greeter": backend_class(options_schema=GreetingOptions, **made),
        "model": backend_class(options_schema=ModelOptions, **made),
        "odd": backend_class(options_schema=int, **made),
    }
    settings = Settings(
        default_backend="greeter",
        backends={"greeter": {"greting": "Hi", "size": 9}, "odd": {"a": 1}},
        models={
            "fine": ModelRoute(backend="model", options={"path": "x"}),
            "part": ModelRoute(backend="model", options={"sze": 1}),
            "more": ModelRoute(backend="greeter", options={"api_key": 5}),
        },
    )
    registry = Registry.of(backends, settings)
    assert registry.wrong_options("greeter") == (
        "backends.greeter.greting: unknown; did you mean backends.greeter.greeting?",
        "backends.greeter.size: expected 1 to 3, got 9",
        "models.more.options.api_key: expected string, got another value",
    )
    assert registry.wrong_options("model") == (
        "models.part.options.sze: unknown; did you mean models.part.options.size?",
    )
    with pytest.raises(BackendLoadError):
        registry.wrong_options("odd")


@dataclass(frozen=True)
class SpanOptions:
    low: int = option(1, help="The least.")
    high: int = option(9, help="The most.")

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


def test_options_that_do_not_go_together_are_told_without_a_traceback(
    backend_class, caplog
) -> None:
    settings = Settings(backends={"span": {"low": 10}})
    registry = Registry.of({"span": backend_class(options_schema=SpanOptions)}, settings)
    assert registry.wrong_options("span") == ("backends.span: low is above high",)
    with pytest.raises(BackendLoadError):
        registry.resolve("span")
    (report,) = registry.reports()
    assert report.reason == "its options are wrong: backends.span: low is above high"
    assert "Traceback" not in caplog.text


def test_options_that_open_finds_wrong_are_told_without_a_traceback(backend_class, caplog) -> None:
    def open_(self) -> None:
        raise OptionsError(["folder: /nowhere: No such file or directory"])

    registry = Registry.of({"reader": backend_class(open=open_)})
    with pytest.raises(BackendLoadError):
        registry.resolve("reader")
    (report,) = registry.reports()
    assert report.reason == "its options are wrong: folder: /nowhere: No such file or directory"
    assert report.hint == "caesar-server backends reader prints its options"
    assert "Traceback" not in caplog.text


def _exit(self) -> Sequence[Model]:
    sys.exit(2)


@pytest.mark.parametrize(
    "models",
    [
        _exit,
        lambda self: 1 / 0,
        lambda self: None,
        lambda self: ["m"],
        lambda self: [Model(5)],
        lambda self: [Model("m", created=1.5)],
        lambda self: [Model("m", owned_by=None)],
    ],
)
def test_models_that_cannot_be_listed_are_left_out(backend_class, models, caplog) -> None:
    backends = {"good": backend_class(), "odd": backend_class(models=models)}
    registry = Registry.of(backends, Settings(default_backend="good"))
    assert [model.id for model in registry.models()] == ["caesar-research", "good"]
    assert "backend odd: models() failed" in caplog.text


@pytest.mark.parametrize(
    "unreadable", [Model("half a \ud83d"), Model("two\nlines"), Model("m", owned_by="\0")]
)
def test_a_model_that_cannot_be_printed_takes_no_other_along(backend_class, unreadable, caplog):
    backends = {"odd": backend_class(models=lambda self: [Model("a"), unreadable, Model("b")])}
    registry = Registry.of(backends, Settings(default_backend="odd"))
    assert [model.id for model in registry.models()] == ["caesar-research", "odd/a", "odd/b"]
    assert "backend odd: left out, for they cannot be printed" in caplog.text


def test_a_decorator_may_give_what_a_method_takes_besides(backend_class):
    def with_session(method):
        @functools.wraps(method)
        def called(self, request, context):
            return method(self, request, context, "session")

        return called

    class Decorated(backend_class()):
        @with_session
        def run(self, request, context, session):
            yield from ()

        @staticmethod
        def models():
            return [Model("m")]

    registry = Registry.of({"odd": Decorated}, Settings(default_backend="odd"))
    assert [model.id for model in registry.models()] == ["caesar-research", "odd/m"]
    assert registry.report("odd").state != "failed"


class Counter:
    """Counts the calls of a backend's ``open``, which may be held up and may fail."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.calls = 0
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self._outcomes = list(outcomes)

    @property
    def method(self) -> Callable[[object], None]:
        """The ``open`` of a class."""
        return lambda backend: self._open()

    def _open(self) -> None:
        self.calls += 1
        self.entered.set()
        assert self.go_on.wait(WITHIN_S)
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if outcome is not None:
            raise outcome


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as executor:
        yield executor


def test_second_asker_waits_and_gets_the_same_backend(backend_class, pool) -> None:
    counter = Counter()
    registry = Registry.of({"slow": backend_class(open=counter.method)})
    asked = [pool.submit(registry.resolve, "slow") for _ in range(8)]
    assert counter.entered.wait(WITHIN_S)
    assert not any(future.done() for future in asked)
    counter.go_on.set()
    assert len({id(future.result(WITHIN_S).backend) for future in asked}) == 1
    assert counter.calls == 1
    registry.close()


def test_slow_open_holds_up_neither_another_backend_nor_the_lists(backend_class, pool) -> None:
    counter = Counter()
    backends = {"slow": backend_class(open=counter.method), "fast": backend_class()}
    registry = Registry.of(backends, Settings(default_backend="fast"))
    slow = pool.submit(registry.resolve, "slow")
    assert counter.entered.wait(WITHIN_S)
    assert registry.resolve("fast").name == "fast"
    assert {model.id for model in registry.models()} == {"caesar-research", "fast", "slow"}
    assert {report.name: report.state for report in registry.reports()} == {
        "fast": "loaded",
        "slow": "available",
    }
    assert set(registry.loaded()) == {"fast"}
    counter.go_on.set()
    slow.result(WITHIN_S)
    registry.close()


def test_transient_failure_is_tried_again_with_a_new_object(backend_class) -> None:
    counter = Counter(BackendUnavailableError("the database is away"), None)
    counter.go_on.set()
    registry = Registry.of({"flaky": backend_class(open=counter.method)})
    with pytest.raises(BackendLoadError):
        registry.resolve("flaky")
    assert registry.reports()[0].reason == "open(): the database is away"
    assert "flaky" in [model.id for model in registry.models()]
    assert registry.resolve("flaky").name == "flaky"
    assert (registry.reports()[0].state, registry.reports()[0].reason) == ("loaded", None)
    assert counter.calls == 2
    registry.close()


def test_those_who_waited_for_an_attempt_share_its_failure(
    backend_class, pool, monkeypatch
) -> None:
    asked = queue.SimpleQueue()

    class TellingLock:
        """Tells when a thread asks for it."""

        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            asked.put(threading.get_ident())
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    counter = Counter(*[RateLimitedError("later")] * 8)
    registry = Registry.of({"flaky": backend_class(open=counter.method)})
    monkeypatch.setattr(registry._instances["flaky"], "_open_lock", TellingLock())
    futures = [pool.submit(registry.resolve, "flaky") for _ in range(4)]
    assert len({asked.get(timeout=WITHIN_S) for _ in futures}) == 4
    counter.go_on.set()
    for future in futures:
        with pytest.raises(BackendLoadError):
            future.result(WITHIN_S)
    assert counter.calls == 1


def test_close_reaches_every_open_backend_and_no_other(backend_class, caplog) -> None:
    closed = []

    def close(name, error=None):
        def method(self):
            closed.append(name)
            if error:
                raise error

        return method

    backends = {
        "a": backend_class(close=close("a", RuntimeError("stuck"))),
        "b": backend_class(close=close("b")),
        "c": backend_class(close=close("c")),
    }
    registry = Registry.of(backends, Settings(default_backend="a"))
    registry.load("a")
    registry.load("b")
    registry.close()
    registry.close()
    assert closed == ["a", "b"]
    assert "stuck" in caplog.text
    assert registry.loaded() == {}
    for name in backends:
        with pytest.raises(ShuttingDownError):
            registry.resolve(name)


def test_close_waits_for_an_open_that_is_under_way(backend_class, pool) -> None:
    counter, closed = Counter(), threading.Event()
    backend = backend_class(open=counter.method, close=lambda self: closed.set())
    registry = Registry.of({"slow": backend})
    opening = pool.submit(registry.resolve, "slow")
    assert counter.entered.wait(WITHIN_S)
    closing = pool.submit(registry.close)
    assert not closed.is_set()
    counter.go_on.set()
    opening.result(WITHIN_S)
    closing.result(WITHIN_S)
    assert closed.is_set()


def test_strict_names_all_that_failed_and_all_that_are_shadowed(site, good_module) -> None:
    site.add("good", {"good": "good_module:GoodBackend"}, {"good_module": good_module})
    site.add("also-good", {"good": "good_module:GoodBackend"})
    site.add("bad", {"bad": "bad_module:Bad"}, {"bad_module": "import nowhere"})
    site.add("bad-open", {"ill": "ill_module:Broken"}, {"ill_module": BROKEN["open"][0]})
    settings = Settings(
        default_backend="good",
        models={"x": ModelRoute(backend="good", options={"a": 1})},
    )
    registry = Registry(site.candidates(), settings)
    with pytest.raises(SettingsError) as caught:
        registry.load_all()
    registry.close()
    assert len(caught.value.problems) == 4
    for words in (
        "backend good (good_module:GoodBackend) is shadowed",
        "backend bad (bad_module:Bad) is failed: the module nowhere is missing",
        "backend ill (ill_module:Broken) is failed: open() raised ZeroDivisionError",
        "the route models.x fails: its options are wrong: models.x.options.a: unknown",
    ):
        assert any(words in problem for problem in caught.value.problems), words


def test_strict_before_a_fork_opens_nothing(backend_class) -> None:
    opened = []
    registry = Registry.of({"one": backend_class(open=lambda self: opened.append(self))})
    registry.load_all(open_backends=False)
    assert opened == []
    registry.load_all()
    assert len(opened) == 1
    registry.close()
