"""Which backend a model name leads to, and which names are listed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from caesar_server.contract import Model, option
from caesar_server.errors import BackendLoadError, ModelNotFoundError, SettingsError
from caesar_server.registry import Registry
from caesar_server.settings import ModelRoute, Settings


@dataclass(frozen=True)
class Temperature:
    warm: bool = option(False, help="Whether it is warm.")
    size: int = option(1, help="How large.")


@pytest.fixture
def registry_of(backend_class):
    """Make a registry of backends that work, by name, with these settings."""
    made = []

    def make(*names: str, **settings: object) -> Registry:
        backend = backend_class(options_schema=Temperature)
        made.append(Registry.of(dict.fromkeys(names, backend), Settings(**settings)))
        return made[-1]

    yield make
    for registry in made:
        registry.close()


def resolve(registry: Registry, model: str) -> tuple[str, str]:
    resolved = registry.resolve(model)
    return resolved.name, resolved.model


ROUTES = {
    "gpt-4": ModelRoute(backend="upstream"),
    "gpt-*": ModelRoute(backend="echo", model="fixed"),
    "*": ModelRoute(backend="mock", model=""),
}


@pytest.mark.parametrize(
    ("model", "name", "given"),
    [
        ("gpt-4", "upstream", "gpt-4"),
        ("gpt-4o", "echo", "fixed"),
        ("GPT-4o", "mock", ""),
        ("echo", "mock", ""),
        ("caesar-research", "upstream", ""),
    ],
)
def test_table_comes_before_names_exact_ones_before_globs(registry_of, model, name, given) -> None:
    registry = registry_of("echo", "mock", "upstream", default_backend="upstream", models=ROUTES)
    assert resolve(registry, model) == (name, given)


def test_first_glob_in_the_order_of_the_file_wins(registry_of) -> None:
    routes = {"a*": ModelRoute(backend="echo"), "ab*": ModelRoute(backend="mock")}
    registry = registry_of("echo", "mock", default_backend="mock", models=routes)
    assert resolve(registry, "abc") == ("echo", "abc")


def test_exact_entry_of_the_table_can_take_the_generic_name(registry_of) -> None:
    routes = {"caesar-research": ModelRoute(backend="echo")}
    registry = registry_of("echo", "mock", default_backend="mock", models=routes)
    assert resolve(registry, "caesar-research") == ("echo", "caesar-research")


@pytest.mark.parametrize(
    ("model", "name", "given"),
    [
        ("echo", "echo", ""),
        ("echo/", "echo", ""),
        ("echo/a", "echo", "a"),
        ("echo/a/b", "echo", "a/b"),
        ("Echo/a", "mock", "Echo/a"),
        ("openai/gpt", "mock", "openai/gpt"),
        ("gpt", "mock", "gpt"),
        ("", "mock", ""),
        ("caesar-research", "mock", ""),
    ],
)
def test_name_of_a_backend_else_the_default(registry_of, model, name, given) -> None:
    assert resolve(registry_of("echo", "mock"), model) == (name, given)


def test_unknown_names_are_refused_where_that_is_set(registry_of) -> None:
    registry = registry_of(
        "echo", "mock", unknown_model="reject", models={"gpt-*": ModelRoute(backend="echo")}
    )
    assert resolve(registry, "caesar-research") == ("mock", "")
    assert resolve(registry, "echo/x") == ("echo", "x")
    assert resolve(registry, "gpt-9") == ("echo", "gpt-9")
    with pytest.raises(ModelNotFoundError, match="did you mean 'echo'") as caught:
        registry.resolve("ehco")
    assert (caught.value.status, caught.value.code, caught.value.param) == (
        404,
        "model_not_found",
        "model",
    )
    with pytest.raises(ModelNotFoundError, match="known: caesar-research, echo, mock"):
        registry.resolve("zzz")


def test_refusal_does_not_repeat_an_endless_name(registry_of) -> None:
    registry = registry_of("mock", unknown_model="reject")
    with pytest.raises(ModelNotFoundError) as caught:
        registry.resolve("x" * 1_000_000)
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("names", "settings", "default", "warns"),
    [
        (("echo", "mock", "research"), {}, "research", False),
        (("echo", "mock"), {}, "mock", True),
        (("echo", "mock", "research"), {"default_backend": "echo"}, "echo", False),
        (("mock",), {"default_backend": "mock"}, "mock", False),
        (("echo", "mock", "research"), {"allowed_backends": ("echo", "mock")}, "mock", True),
        (("only",), {}, "only", False),
    ],
)
def test_default_backend(registry_of, names, settings, default, warns) -> None:
    registry = registry_of(*names, **settings)
    assert registry.default == default
    assert any("made-up" in warning for warning in registry.warnings) == warns


@pytest.mark.parametrize(
    ("names", "settings", "problem"),
    [
        (("echo", "mock"), {"default_backend": "ehco"}, "default_backend: .*did you mean 'echo'"),
        (
            ("echo", "mock"),
            {"default_backend": "echo", "allowed_backends": ("mock",)},
            "default_backend: echo is not in allowed_backends",
        ),
        (
            ("echo", "mock"),
            {"models": {"gpt-*": ModelRoute(backend="moc")}},
            r"models\.gpt-\*\.backend: .*did you mean 'mock'",
        ),
        (("a", "b"), {}, "default_backend: must be set to one of a, b"),
        ((), {}, "no backend is installed"),
    ],
)
def test_settings_that_lead_nowhere_are_refused_at_once(
    registry_of, names, settings, problem
) -> None:
    with pytest.raises(SettingsError, match=problem):
        registry_of(*names, **settings)


def test_names_that_no_backend_has_are_warned_of(registry_of) -> None:
    registry = registry_of(
        "echo", backends={"ehco": {"warm": True}}, allowed_backends=("echo", "research")
    )
    assert registry.warnings == (
        "allowed_backends: no backend is called 'research'; known: echo",
        "backends.ehco: no backend is called 'ehco'; did you mean 'echo'?",
    )


def test_route_with_options_has_an_instance_of_its_own(registry_of) -> None:
    registry = registry_of(
        "local",
        backends={"local": {"size": 2}},
        models={
            "plain": ModelRoute(backend="local"),
            "same": ModelRoute(backend="local", options={"size": 2}),
            "warm": ModelRoute(backend="local", options={"warm": True}),
            "warm-*": ModelRoute(backend="local", options={"warm": True}),
        },
    )
    plain, warm = registry.resolve("plain").backend, registry.resolve("warm").backend
    assert plain.options == Temperature(False, 2)
    assert warm.options == Temperature(True, 2)
    assert registry.resolve("same").backend is plain is registry.resolve("local").backend
    assert registry.resolve("warm-1").backend is warm
    assert registry.loaded()["local"] is plain
    assert registry.loaded()["models.warm"] is warm


def test_route_with_wrong_options_harms_only_itself(registry_of) -> None:
    registry = registry_of(
        "local", models={"bad": ModelRoute(backend="local", options={"wram": True})}
    )
    with pytest.raises(BackendLoadError):
        registry.resolve("bad")
    assert resolve(registry, "local") == ("local", "")
    (report,) = registry.reports()
    assert report.state == "loaded"
    assert "models.bad.options.wram: unknown" in report.reason
    assert [model.id for model in registry.models()] == ["caesar-research", "local"]


def test_models_are_listed_without_opening(backend_class) -> None:
    def open_(self):
        raise AssertionError("opened")

    backends = {
        "many": backend_class(
            open=open_, models=lambda self: [Model(), Model("a", 5, "me"), Model("b/c")]
        ),
        "one": backend_class(open=open_),
        "ill": backend_class(open=open_, models=lambda self: 1 / 0),
        "odd": backend_class(open=open_, models=lambda self: ["gpt"]),
    }
    routes = {
        "gpt-4": ModelRoute(backend="one"),
        "gpt-*": ModelRoute(backend="one"),
        "one": ModelRoute(backend="many"),
    }
    registry = Registry.of(backends, Settings(default_backend="one", models=routes))
    assert [model.id for model in registry.models()] == [
        "caesar-research",
        "many",
        "many/a",
        "many/b/c",
        "one",
        "gpt-4",
    ]
    assert registry.models()[2] == Model("many/a", 5, "me")


@pytest.mark.parametrize("unknown_model", ["default", "reject"])
def test_model_is_found_by_each_name_that_is_claimed(backend_class, unknown_model) -> None:
    def fail(self):
        raise AssertionError("opened")

    backends = {
        "any": backend_class(open=fail),
        "two": backend_class(open=fail, models=lambda self: [Model("a", 5, "me"), Model("b")]),
        "ill": backend_class(open=fail, models=lambda self: 1 / 0),
        "broken": backend_class(__init__=fail),
    }
    routes = {
        "gpt-*": ModelRoute(backend="any"),
        "fix-*": ModelRoute(backend="two", model="a"),
        "two-*": ModelRoute(backend="two"),
        "bad-*": ModelRoute(backend="broken", model=""),
    }
    settings = Settings(default_backend="any", models=routes, unknown_model=unknown_model)
    registry = Registry.of(backends, settings)
    assert registry.model("two/a") == Model("two/a", 5, "me")
    for name in ("caesar-research", "any", "any/x/y", "two", "ill/x", "gpt-3", "fix-1"):
        assert registry.model(name) == Model(name)
    for name in ("llama", "llama/any", "two/c", "two-c", "broken/x", "bad-1", ""):
        assert registry.model(name) is None
