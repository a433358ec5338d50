"""Whether a backend keeps the contract: a suite of rules as plain functions.

Each rule has an id, a sentence and a reason; it is tried on the backend itself, through the
interface that the server uses.  It needs no pytest; ``caesar-server check NAME`` prints its report,
and :class:`caesar_server.testing.BackendConformance` makes tests of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from caesar_server.contract import Backend
from caesar_server.jobs.context import Caller
from caesar_server.testing.conformance.rule import (
    Fail,
    Inapplicable,
    Outcome,
    Report,
    Result,
    Rule,
    Skip,
)
from caesar_server.testing.conformance.rules import (
    class_rules,
    durable_rules,
    event_rules,
    file_rules,
    media_rules,
    research_rules,
    run_rules,
    sampling_rules,
    server_rules,
    usage_rules,
)
from caesar_server.testing.conformance.subject import Hang, Subject

__all__ = ["RULES", "Report", "Result", "Rule", "check_backend"]

#: All rules, in an order in which each comes after those that it needs.
RULES: tuple[Rule, ...] = (
    class_rules.contract_version,
    class_rules.capabilities,
    class_rules.methods,
    class_rules.options_schema,
    class_rules.options_defaults,
    class_rules.options_accepted,
    class_rules.options_unknown_refused,
    class_rules.init_is_cheap,
    class_rules.models_before_open,
    run_rules.opens,
    class_rules.health_value,
    run_rules.typed_errors,
    event_rules.types,
    event_rules.values,
    event_rules.json_round_trip,
    event_rules.whole_characters,
    event_rules.terminal,
    event_rules.started_first,
    event_rules.choices,
    event_rules.choices_finished,
    event_rules.statuses,
    event_rules.channels,
    event_rules.citations,
    research_rules.citations_resolve,
    run_rules.accepts,
    research_rules.transformed,
    run_rules.refuses,
    run_rules.immediate,
    sampling_rules.n_choices,
    sampling_rules.best_of,
    sampling_rules.several_prompts,
    sampling_rules.echo_prompt,
    sampling_rules.suffix,
    sampling_rules.token_prompts,
    sampling_rules.stop_sequence,
    sampling_rules.max_tokens,
    sampling_rules.seed,
    sampling_rules.logprobs,
    usage_rules.usage_counted,
    usage_rules.usage_prompt_once,
    usage_rules.usage_sums,
    usage_rules.eight_at_once,
    usage_rules.same_answers,
    file_rules.read,
    file_rules.untouched,
    file_rules.any_bytes,
    media_rules.taken,
    run_rules.recovers,
    run_rules.cancel_before_start,
    run_rules.cancel_between_events,
    run_rules.cancel_while_working,
    run_rules.deadline_kept,
    durable_rules.checkpoint_first,
    durable_rules.state_json,
    durable_rules.fenced,
    run_rules.health_ok,
    run_rules.closes,
    run_rules.reopens,
    durable_rules.resumes,
    server_rules.fold_is_stream,
    run_rules.leaves_nothing,
)


def check_backend(
    backend_class: type[Backend],
    options: Mapping[str, object] | None = None,
    *,
    call_timeout_s: float = 30.0,
    caller: Caller | None = None,
) -> Report:
    """Try every rule on a backend and return what came of it.

    Takes seconds for a fast backend.  Asks it about seventy short questions, so a backend that pays
    for its answers pays for these.  Never hangs: the first call that does not return in time fails
    its rule by name, and the rules after it are skipped; its thread goes on, for want of a way to
    end it.

    :param options: as an operator would write them in the settings file.
    :param call_timeout_s: seconds that any single call may take.
    :param caller: what ``context.call`` does in its runs: a function of model, request and context
        that yields events; None: the backend calls no others.
    """
    subject = Subject(backend_class, options or {}, call_timeout_s, caller)
    outcomes: dict[str, Outcome] = {}
    unusable: set[str] = set()
    hanging = ""
    for rule in RULES:
        missing = [needed for needed in rule.needs if needed in unusable]
        if hanging:
            outcomes[rule.id] = Skip(f"the backend hangs since {hanging}")
        elif missing:
            outcomes[rule.id] = Skip(f"it needs {missing[0]}")
            unusable.add(rule.id)
        else:
            outcomes[rule.id], hung = _try(rule, subject)
            hanging = rule.id if hung else ""
            if isinstance(outcomes[rule.id], Fail):
                unusable.add(rule.id)
    name = f"{backend_class.__module__}:{backend_class.__qualname__}"
    return Report(name, tuple(Result.of(rule, outcomes[rule.id]) for rule in RULES))


def _try(rule: Rule, subject: Subject) -> tuple[Outcome, bool]:
    """Return the outcome of a rule, and whether the backend hangs."""
    try:
        return rule.check(subject), False
    except Inapplicable as why:
        return Skip(str(why)), False
    except Hang as hang:
        return Fail(str(hang), "an end"), True
    except Exception as error:  # noqa: BLE001 - whatever a backend raises is the rule's outcome
        return Fail(f"{type(error).__name__}: {error}", "no exception"), False
