"""Documents that are right, and nearly right, drawn by Hypothesis."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.one_of(
    st.integers(-3, 700),
    st.sampled_from([0.0, 0.5, 1.0, 2.0, -0.5, 1e9, 1e18, 10**20, 2**53, 86400, 86401]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


def objects(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(required, optional=optional)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


SHARE = st.sampled_from([0, 0.25, 1, 1.0])
SECONDS = st.sampled_from([0, 0.5, 3, 86400])
COUNT = st.sampled_from([1, 2, 3.0, 1000])
OPERATORS = objects(
    {},
    {
        "exact": st.one_of(TEXT, SCALARS),
        "contains": st.one_of(TEXT, st.lists(TEXT, max_size=2)),
        "regex": st.sampled_from(["a", "^b+$", "(?i)c"]),
        "glob": TEXT,
        "anything": st.just(True),
        "absent": st.just(True),
        "ignore_case": st.booleans(),
    },
)
#: Plain values in which operators may stand for others.
VALUE = st.recursive(
    st.one_of(SCALARS, OPERATORS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=4,
)
NAMED = st.one_of(st.dictionaries(TEXT, VALUE, max_size=2), OPERATORS)


def or_operators(plain: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(plain, OPERATORS)


WHEN = objects(
    {},
    {
        "prompt": or_operators(TEXT),
        "messages": or_operators(st.lists(VALUE, max_size=2)),
        "query": or_operators(TEXT),
        "model": or_operators(st.sampled_from(["gpt-*", "m"])),
        "metadata": NAMED,
        "headers": st.dictionaries(TEXT, st.one_of(st.none(), TEXT, OPERATORS), max_size=2),
        "path": or_operators(st.one_of(TEXT.map("/{}".format), st.sampled_from(["*", "?a/b"]))),
        "method": or_operators(st.sampled_from(["POST", "get"])),
        "stream": or_operators(st.booleans()),
        "attempt": or_operators(COUNT),
        "turn": or_operators(COUNT),
        "body": NAMED,
        "jmespath": st.one_of(
            st.just("model == 'm'"), st.lists(st.just("messages[0]"), max_size=2)
        ),
    },
)
PACING = objects(
    {},
    {
        "first_chunk_s": SECONDS,
        "tokens_per_s": maybe(st.sampled_from([0.5, 50])),
        "jitter": SHARE,
        "unit": st.sampled_from(["character", "word", "token"]),
        "size": COUNT,
    },
)
RESULT = objects(
    {"title": TEXT, "url": TEXT},
    {
        "id": maybe(TEXT),
        "score": maybe(SHARE),
        "citation_index": maybe(COUNT),
        "raw": maybe(TEXT),
        "markdown": maybe(TEXT),
    },
)
CHOICE = objects(
    {},
    {
        "text": st.just("ab"),
        "logprobs": maybe(
            st.just([{"token": "a", "logprob": -0.5}, {"token": "b", "top": {"c": -1}}])
        ),
        "finish_reason": maybe(st.sampled_from(["stop", "length", "content_filter"])),
    },
)
QUESTION = objects({"question": TEXT}, {"options": st.lists(TEXT, max_size=2)})
REQUEST = objects(
    {"url": TEXT},
    {
        "method": TEXT,
        "response_status": maybe(st.sampled_from([99, 100, 200, 599, 600])),
        "duration_ms": COUNT,
        "request_body": TEXT,
        "provider": TEXT,
        "result": maybe(st.just(0)),
    },
)
POLLS = st.sampled_from([0, 1, 3.0])
REPLY = objects(
    {},
    {
        "queued_polls": POLLS,
        "polls_per_status": POLLS,
        "requests": st.lists(REQUEST, max_size=2),
        "loops": maybe(POLLS),
        "questions": st.lists(QUESTION, max_size=2),
        "statuses": st.lists(st.sampled_from(["searching", "summarizing"]), max_size=2),
        "progress": st.lists(TEXT, max_size=2),
        "results": st.lists(RESULT, max_size=2),
        "text": st.one_of(TEXT, st.lists(TEXT, max_size=2)),
        "template": maybe(st.just("{{ call.prompt }}")),
        "choices": st.lists(CHOICE.filter(lambda one: len(one) != 1), max_size=2),
        "transformed": maybe(TEXT),
        "chunks": maybe(COUNT),
        "pacing": maybe(PACING),
        "usage": maybe(objects({}, {"prompt_tokens": maybe(COUNT), "completion_tokens": COUNT})),
        "error": maybe(
            objects({"message": TEXT}, {"status": st.sampled_from([400, 429, 599]), "code": TEXT})
        ),
    },
)
FAULT = objects(
    {
        "kind": st.sampled_from(
            ["status", "delay", "hang", "reset", "error_frame", "early_hints", "slow_drip", "crlf"]
        )
    },
    {
        "after_chunks": COUNT,
        "status": maybe(st.sampled_from([199, 200, 204, 429, 599])),
        "body": JSON,
        "headers": st.dictionaries(
            st.sampled_from(["x-a", "X-B", "Content-Length", "bad name", "connection"]),
            st.sampled_from(["v", "", "é", "€", "a\nb", "a\n"]),
            max_size=2,
        ),
        "message": maybe(TEXT),
        "code": maybe(TEXT),
        "retry_after_s": maybe(SECONDS),
        "delay_s": maybe(SECONDS),
        "content_type": maybe(st.sampled_from(["text/plain", "a\nb"])),
        "count": maybe(COUNT),
        "probability": SHARE,
    },
)
ANY_REPLY = st.one_of(TEXT, REPLY)
_WHAT = st.one_of(
    objects({"reply": ANY_REPLY}, {}),
    objects({"replies": st.lists(ANY_REPLY, max_size=2)}, {}),
    objects({"fault": FAULT}, {}),
    objects({"faults": st.lists(FAULT, max_size=2)}, {}),
)
RULE = st.builds(
    lambda what, rest: {**rest, **what},
    _WHAT,
    objects(
        {},
        {
            "name": TEXT,
            "when": WHEN,
            "times": maybe(COUNT),
            "skip": COUNT,
            "priority": st.integers(-5, 5),
        },
    ),
)
RULES_FILE = objects(
    {"rules": st.lists(RULE, max_size=2)},
    {
        "$schema": TEXT,
        "seed": st.integers(-5, 5),
        "fallback": st.one_of(st.sampled_from(["echo", "error"]), REPLY),
        "strict": st.booleans(),
        "pacing": PACING,
        "faults": st.lists(FAULT, max_size=2),
    },
)
REPLIES_FILE = st.dictionaries(TEXT, ANY_REPLY, max_size=3)


@st.composite
def mutated(draw: st.DrawFn, documents: st.SearchStrategy[Any]) -> Any:
    """Draw a document with one value changed, taken out or added somewhere."""
    document = copy.deepcopy(draw(documents))  # parts of it are Hypothesis's own
    holders = list(_holders(document))
    if not holders:
        return draw(JSON)
    holder = draw(st.sampled_from(holders))
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    change = draw(st.sampled_from(["replace", "remove", "add"] if keys else ["add"]))
    if change == "add" and isinstance(holder, dict):
        holder[draw(st.one_of(TEXT, st.sampled_from(_WORDS)))] = draw(JSON)
    elif change == "add":
        holder.append(draw(JSON))
    elif change == "remove":
        del holder[draw(st.sampled_from(keys))]
    else:
        holder[draw(st.sampled_from(keys))] = draw(st.one_of(JSON, OPERATORS))
    return document


_WORDS = ["text", "reply", "fault", "faults", "times", "kind", "exact", "absent", "rules", "error"]


def _holders(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        yield value
        for member in value.values() if isinstance(value, dict) else value:
            yield from _holders(member)
