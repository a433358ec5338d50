"""What a request asks of a model, checked, before it waits for its turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from caesar_backend_local_llm.engine.grammars.grammar import Grammar, GrammarError, Grammars
from caesar_backend_local_llm.engine.grammars.trial import TrialsBusyError
from caesar_backend_local_llm.engine.sampler import SamplingRules
from caesar_backend_local_llm.engine.vocabulary import Vocabulary
from caesar_backend_local_llm.generation.extras import (
    Constraint,
    constraint_of,
    field_of,
    number_of,
)
from caesar_backend_local_llm.generation.prompts import Prompt, prompts_of
from caesar_backend_local_llm.loaded import LoadedModel
from caesar_server.contract import (
    BackendUnavailableError,
    ChatRequest,
    CompletionRequest,
    InvalidRequestError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request to a model.

    :param prompts: what to continue, at least one.
    :param n: choices a prompt.
    :param candidates: how many are generated for each prompt, at least ``n``; the best are choices.
    :param seed: of the first candidate; the next has one more.  None: by chance.
    :param logprobs: alternatives to describe at each token; None: nothing is described.
    :param grammar: what each text must follow, at its beginning, or None.
    :param grammar_param: the field of the request that it comes from.
    :param ignore_end: go on after the model has ended.
    """

    prompts: Sequence[Prompt]
    rules: SamplingRules
    n: int
    candidates: int
    seed: int | None
    stops: Sequence[str]
    logprobs: int | None
    grammar: Grammar | None
    grammar_param: str | None
    ignore_end: bool


def ask_of(request: CompletionRequest | ChatRequest, model: LoadedModel) -> Ask:
    """Return what ``request`` asks.

    :raises InvalidRequestError: if it cannot be asked of this model.
    :raises BackendUnavailableError: if too many grammars of others are being compiled.
    :raises BackendError: if the model's chat template fails.
    """
    sampling, extra = request.sampling, request.extra
    constraint = constraint_of(extra, allowed=model.plan.grammars)
    return Ask(
        rules=_rules(request, model),
        n=sampling.n,
        candidates=max(sampling.n, sampling.best_of or 1),
        seed=sampling.seed,
        stops=sampling.stop,
        logprobs=sampling.logprobs,
        ignore_end=bool(field_of(extra, "ignore_eos", bool, "true or false")),
        prompts=prompts_of(request, model),
        # last, because it takes longest
        grammar=None if constraint is None else _compiled(constraint, model.grammars),
        grammar_param=None if constraint is None else constraint.param,
    )


def _rules(request: CompletionRequest | ChatRequest, model: LoadedModel) -> SamplingRules:
    """Return the request's sampling, over the operator's, over the file's, over the API's."""
    sampling, extra = request.sampling, request.extra
    bias = sampling.logit_bias
    _check_bias(bias, model.vocabulary)
    repeat = number_of(extra, "repeat_penalty", 0.01, 100)
    if repeat is None:
        repeat = number_of(extra, "repetition_penalty", 0.01, 100)
    asked = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": number_of(extra, "top_k", -1, 1_000_000),
        "min_p": number_of(extra, "min_p", 0, 1),
        "repeat_penalty": repeat,
    }
    chosen = {
        **model.recommended,
        **model.plan.sampling,
        **{name: value for name, value in asked.items() if value is not None},
    }
    plain = SamplingRules()
    return SamplingRules(
        temperature=chosen.get("temperature", plain.temperature),
        top_p=chosen.get("top_p", plain.top_p),
        top_k=max(0, int(chosen.get("top_k", plain.top_k))),  # -1 means off, as with vLLM
        min_p=chosen.get("min_p", plain.min_p),
        repeat_penalty=chosen.get("repeat_penalty", plain.repeat_penalty),
        frequency_penalty=sampling.frequency_penalty or 0.0,
        presence_penalty=sampling.presence_penalty or 0.0,
        logit_bias=bias,
    )


def _check_bias(bias: Mapping[int, float], vocabulary: Vocabulary) -> None:
    for token in bias:
        if not 0 <= token < vocabulary.size:
            raise InvalidRequestError(
                f"logit_bias: expected token ids from 0 to {vocabulary.size - 1}, got {token}",
                param="logit_bias",
            )


def _compiled(constraint: Constraint, grammars: Grammars) -> Grammar:
    try:
        return grammars.compiled(constraint.grammar)
    except GrammarError as error:
        raise InvalidRequestError(
            f"{constraint.param}: no usable grammar: {error}", param=constraint.param
        ) from error
    except TrialsBusyError as error:
        raise BackendUnavailableError(
            "Too many new grammars are being compiled; try again", code="grammars_busy"
        ) from error
