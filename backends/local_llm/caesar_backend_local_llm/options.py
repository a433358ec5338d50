"""What an operator may set under ``[backends.local_llm]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from caesar_server.contract import option

#: When a model is loaded.
LoadMoment = Literal["lazy", "start"]
#: The longest context that a model gets without being asked for: its memory grows with it.
USUAL_CONTEXT_TOKENS = 4096


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """What may be set for all models, and again for one of them."""

    n_ctx: int | None = option(
        None,
        help="Longest prompt and answer together; unset: what the model was trained for, at most "
        f"{USUAL_CONTEXT_TOKENS}.",
        unit="tokens",
        minimum=8,
        maximum=10_000_000,
    )
    instances: int | None = option(
        None,
        help="Requests that are answered at once; each takes memory for its own context, the "
        "weights are shared.  Unset: 1.",
        minimum=1,
        maximum=256,
    )
    n_threads: int | None = option(
        None,
        help="Threads that one request computes with; more than the cores that are free make it "
        "much slower.  Unset: 1.",
        minimum=1,
        maximum=512,
    )
    queue: int | None = option(
        None,
        help="Requests that may wait for an instance; more are answered with 429.  Unset: 32.",
        minimum=0,
        maximum=10_000,
    )
    wait_s: float | None = option(
        None,
        help="How long one may wait for an instance, before it is answered with 503.  Unset: 60.",
        unit="s",
        minimum=0,
        maximum=86400,
    )
    load: LoadMoment | None = option(
        None,
        help="When a model is loaded: lazy, for its first request, or start, when the backend is "
        "opened.  Unset: lazy.",
    )
    unload_after_s: float | None = option(
        None,
        help="Idle time after which its memory is given back; 0: never.  Unset: 0.",
        unit="s",
        minimum=0,
        maximum=31_536_000,
    )
    batch_tokens: int | None = option(
        None,
        help="Tokens of a prompt that are computed at once.  Unset: 128.",
        unit="tokens",
        minimum=1,
        maximum=8192,
    )
    reuse_prompts: bool | None = option(
        None,
        help="Keep what was computed for a prompt, for the next one that begins the same; the "
        "answers are the same with and without.  Unset: true.",
    )
    grammars: bool | None = option(
        None,
        help="Whether requests may have a JSON schema, grammar or regular expression to follow.  "
        "Unset: true.",
    )
    gpu_layers: int | None = option(
        None,
        help="Layers that a GPU computes, if llama-cpp-python was built for one; -1: all.  "
        "Unset: 0.",
        minimum=-1,
        maximum=10_000,
    )
    mmap: bool | None = option(
        None,
        help="Map the file into memory, so that all processes share one copy of it.  Unset: true.",
    )
    mlock: bool | None = option(
        None, help="Keep the weights from being swapped out.  Unset: false."
    )
    temperature: float | None = option(
        None,
        help="For requests without one.  Unset: what the file recommends, or 1.",
        minimum=0,
        maximum=2,
    )
    top_p: float | None = option(
        None,
        help="For requests without one.  Unset: what the file recommends, or 1.",
        minimum=0,
        maximum=1,
    )
    top_k: int | None = option(
        None,
        help="For requests without one; 0: off.  Unset: what the file recommends, or 0.",
        minimum=0,
        maximum=1_000_000,
    )
    min_p: float | None = option(
        None,
        help="For requests without one; 0: off.  Unset: what the file recommends, or 0.",
        minimum=0,
        maximum=1,
    )
    repeat_penalty: float | None = option(
        None,
        help="For requests without one; 1: off.  Unset: what the file recommends, or 1.",
        minimum=0.01,
        maximum=100,
    )
    max_tokens: int | None = option(
        None,
        help="Longest answer of requests without a limit.  Unset: as much as the context holds.",
        unit="tokens",
        minimum=1,
    )


@dataclass(frozen=True, kw_only=True)
class ModelOptions(CommonOptions):
    """One model, under ``[backends.local_llm.models.NAME]``."""

    path: str = option(
        help="The GGUF file; of a model in several files the first.",
        example="/srv/models/smollm2.gguf",
    )
    chat_template: str | None = option(
        None,
        help="Jinja template that makes a chat into text, or chatml; unset: the file's own.",
        example="chatml",
    )
    chat_template_file: str | None = option(
        None,
        help="File that holds the template.",
        example="/srv/models/template.jinja",
    )


@dataclass(frozen=True, kw_only=True)
class LocalLlmOptions(CommonOptions):
    """The options of the backend ``local_llm``: defaults for all models, and the models."""

    models: Mapping[str, ModelOptions] = option(
        default_factory=dict,
        help="The models, each under the name that requests use: local_llm/NAME.  local_llm alone "
        "is the first of them.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """How one model is run: its own options over those of the backend over the defaults."""

    name: str
    path: str
    chat_template: str | None = None
    chat_template_file: str | None = None
    n_ctx: int | None = None
    instances: int = 1
    n_threads: int = 1
    queue: int = 32
    wait_s: float = 60.0
    load: LoadMoment = "lazy"
    unload_after_s: float = 0.0
    batch_tokens: int = 128
    reuse_prompts: bool = True
    grammars: bool = True
    gpu_layers: int = 0
    mmap: bool = True
    mlock: bool = False
    #: Sampling defaults that are set, by name.
    sampling: Mapping[str, float] = field(default_factory=dict)
    max_tokens: int | None = None


_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty")


def plans(options: LocalLlmOptions) -> tuple[ModelPlan, ...]:
    """Return how each model is run, in the order of the settings."""
    return tuple(_plan(name, model, options) for name, model in options.models.items())


def _plan(name: str, model: ModelOptions, options: LocalLlmOptions) -> ModelPlan:
    chosen: dict[str, Any] = {
        one.name: value
        for one in fields(CommonOptions)
        if (value := _first(getattr(model, one.name), getattr(options, one.name))) is not None
    }
    sampling: dict[str, float] = {key: chosen.pop(key) for key in _SAMPLING if key in chosen}
    plan = ModelPlan(
        name=name,
        path=model.path,
        chat_template=model.chat_template,
        chat_template_file=model.chat_template_file,
        sampling=sampling,
    )
    return replace(plan, **chosen)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
