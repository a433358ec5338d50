from __future__ import annotations

import dataclasses

import pytest

from caesar_backend_local_llm import LocalLlmBackend, LocalLlmOptions, ModelOptions
from caesar_backend_local_llm.options import CommonOptions, ModelPlan, plans
from caesar_server.contract import OptionsError
from caesar_server.contract.options import parse_options


def plan(options: dict) -> ModelPlan:
    (found,) = plans(parse_options(LocalLlmOptions, options))
    return found


def test_nothing_but_a_path_is_needed() -> None:
    found = plan({"models": {"x": {"path": "x.gguf"}}})
    assert found == ModelPlan(name="x", path="x.gguf")
    # more threads than cores that are free make it many times slower
    assert (found.n_threads, found.instances, found.load) == (1, 1, "lazy")


def test_a_model_overrides_the_backend() -> None:
    found = plan(
        {
            "instances": 2,
            "queue": 5,
            "temperature": 0.5,
            "mmap": False,
            "models": {"x": {"path": "x", "queue": 0, "top_p": 0.9, "temperature": 0}},
        }
    )
    assert (found.instances, found.queue, found.mmap) == (2, 0, False)
    assert found.sampling == {"temperature": 0, "top_p": 0.9}


def test_every_option_reaches_the_plan() -> None:
    known = {field.name for field in dataclasses.fields(ModelPlan)}
    options = {field.name for field in dataclasses.fields(ModelOptions)}
    sampling = {"temperature", "top_p", "top_k", "min_p", "repeat_penalty"}
    assert options - sampling == known - {"name", "sampling"}
    defaults = ModelPlan(name="x", path="x")
    for field in dataclasses.fields(CommonOptions):
        if field.name in known and (value := getattr(defaults, field.name)) is not None:
            text = f"{value:g}" if type(value) is float else str(value).lower()
            help_ = next(iter(field.metadata.values())).help
            assert f"Unset: {text}." in help_, field.name


@pytest.mark.parametrize(
    "options",
    [
        {"models": {"x": {}}},
        {"models": {"x": {"path": "x", "threads": 2}}},
        {"instances": 0},
        {"n_threads": 0},
        {"wait_s": -1},
        {"load": "never"},
    ],
)
def test_wrong_options(options) -> None:
    with pytest.raises(OptionsError):
        parse_options(LocalLlmOptions, options)


def test_what_it_declares() -> None:
    backend = LocalLlmBackend()
    # one that keeps the event loop of gevent from running is refused there
    assert backend.capabilities.cpu_bound
    assert backend.capabilities.suffix
    assert not LocalLlmBackend.capabilities.suffix
