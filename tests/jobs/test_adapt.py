"""Making a request fit a backend, or saying why it cannot be done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesar_server.contract import (
    BrainstormRequest,
    Capabilities,
    ChatRequest,
    CompletionRequest,
    FollowUpRequest,
    InvalidRequestError,
    Message,
    Part,
    ResearchParameters,
    ResearchRequest,
    Sampling,
    Source,
)
from caesar_server.contract.request import RequestKind
from caesar_server.jobs.adapt import fit

KINDS = get_args(RequestKind)


def say(role: str, text: str) -> Message:
    return Message(role=role, parts=(Part(text=text),))


SAMPLING = Sampling(max_tokens=9, temperature=0.5, stop=("END",), seed=7, logit_bias={5: 1.0})
PARAMETERS = ResearchParameters(reasoning_loops=3, excluded_domains=("x.org",))
SHAPED = replace(PARAMETERS, system_prompt="Be brief.")

COMPLETION = CompletionRequest(
    prompts=("Why?",),
    model="m",
    sampling=SAMPLING,
    parameters=PARAMETERS,
    user="u",
    extra={"e": 1},
)
CHAT = ChatRequest(
    messages=(
        say("system", "Be kind."),
        say("user", "Hello"),
        say("assistant", "Hi"),
        say("user", "Why?"),
    ),
    model="m",
    sampling=SAMPLING,
    parameters=PARAMETERS,
    tools=({"type": "function"},),
    user="u",
    extra={"e": 1},
)
RESEARCH = ResearchRequest(query="Why?", model="m", parameters=PARAMETERS)
FOLLOW_UP = FollowUpRequest(
    content="And then?",
    query="Why?",
    answer="Because [1].",
    model="m",
    sources=(
        Source(
            id="a",
            title="Reasons",
            url="https://r.org",
            citation_index=1,
            markdown="# Reasons\n\nFor all of it.",
        ),
        Source(id="b", title="Uncited", url="https://u.org", markdown="Nothing of this."),
    ),
    history=(say("user", "Really?"), say("assistant", "Yes.")),
    snippets=("a passage",),
    excluded_domains=("x.org",),
    synthesis_model="gpt-5.2",
)
BRAINSTORM = BrainstormRequest(query="Why?", model="m")
REQUESTS = {
    request.type: request for request in (COMPLETION, CHAT, RESEARCH, FOLLOW_UP, BRAINSTORM)
}

TASK = (
    "Answer a follow-up question about this research. Cite its sources by their numbers, as in [1]."
)
BACKGROUND = (
    "Question: Why?\n\n"
    "Answer: Because [1].\n\n"
    "Sources:\n[1] Reasons <https://r.org>{excerpt}\n\n"
    "Passages:\na passage"
)
WITH_EXCERPT = BACKGROUND.format(excerpt=": # Reasons For all of it.")
SINCE_THEN = "Since then:\nuser: Really?\nassistant: Yes."
TO_COMPLETE = (
    f"{TASK}\n\n{WITH_EXCERPT}\n\n{SINCE_THEN}\n\nFollow-up question: And then?\n\nAnswer:"
)
TO_SEARCH_FOR = (
    "And then?\n\nThis question follows up on earlier research.\n\n"
    f"{BACKGROUND.format(excerpt='')}\n\n{SINCE_THEN}"
)
ASKED_ON = ResearchParameters(excluded_domains=("x.org",), model="gpt-5.2")
AUTO = replace(ASKED_ON, auto=True)

ADAPTED = {
    ("completion", "chat"): ChatRequest(
        messages=(say("user", "Why?"),),
        model="m",
        sampling=SAMPLING,
        parameters=PARAMETERS,
        user="u",
        extra={"e": 1},
    ),
    ("completion", "research"): RESEARCH,
    ("chat", "research"): RESEARCH,
    ("chat", "completion"): COMPLETION,
    ("research", "chat"): ChatRequest(
        messages=(say("user", "Why?"),), model="m", parameters=PARAMETERS
    ),
    ("research", "completion"): CompletionRequest(
        prompts=("Why?",), model="m", parameters=PARAMETERS
    ),
    ("follow_up", "chat"): ChatRequest(
        messages=(
            say("system", f"{TASK}\n\n{WITH_EXCERPT}"),
            *FOLLOW_UP.history,
            say("user", "And then?"),
        ),
        model="m",
        parameters=AUTO,
    ),
    ("follow_up", "research"): ResearchRequest(query=TO_SEARCH_FOR, model="m", parameters=ASKED_ON),
    ("follow_up", "completion"): CompletionRequest(
        prompts=(TO_COMPLETE,), model="m", parameters=AUTO
    ),
}


def able(*kinds: str, **flags: Any) -> Capabilities:
    return Capabilities(accepts=frozenset(kinds), **flags)  # type: ignore[arg-type]


def everything(*kinds: str) -> Capabilities:
    flags = ("n", "best_of", "logprobs", "echo", "suffix", "token_prompts")
    return able(*kinds, **dict.fromkeys(flags, True))


def refusal(request: Any, capabilities: Capabilities) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refused:
        fit(request, capabilities, "llama")
    error = refused.value
    assert "'llama'" in error.message
    assert error.info().status == 400
    return error


@pytest.mark.parametrize("accepted", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_request_and_every_kind_that_is_taken(kind, accepted):
    request, capabilities = REQUESTS[kind], able(accepted)
    if kind == accepted:
        assert fit(request, capabilities, "llama") is request
    elif (kind, accepted) in ADAPTED:
        assert fit(request, capabilities, "llama") == ADAPTED[kind, accepted]
    else:
        error = refusal(request, capabilities)
        assert (error.param, error.info().code) == ("model", "unsupported_request")
        assert f"does not take {kind} requests; it takes: {accepted}" in error.message


@pytest.mark.parametrize(
    ("kind", "accepted", "chosen"),
    [
        ("completion", ("chat", "research"), "chat"),
        ("chat", ("research", "completion"), "research"),
        ("research", ("chat", "completion"), "chat"),
        ("follow_up", ("completion", "research", "chat"), "chat"),
        ("follow_up", ("completion", "research"), "research"),
        *((kind, KINDS, kind) for kind in KINDS),
    ],
)
def test_the_kind_that_loses_least_is_chosen(kind, accepted, chosen):
    assert fit(REQUESTS[kind], able(*accepted), "llama").type == chosen


def test_a_backend_that_takes_nothing_refuses_all():
    for request in REQUESTS.values():
        refusal(request, able())


@pytest.mark.parametrize("request_", [COMPLETION, RESEARCH])
def test_a_system_prompt_becomes_a_message(request_):
    fitted = fit(replace(request_, parameters=SHAPED), able("chat"), "llama")
    assert fitted.messages == (say("system", "Be brief."), say("user", "Why?"))
    assert fitted.parameters == SHAPED


def test_a_follow_up_to_nothing_but_an_answer_is_short():
    plain = FollowUpRequest(content="And then?", query="Why?", answer="So.")
    assert fit(plain, able("completion"), "llama").prompts == (
        "Answer a follow-up question about this research.\n\nQuestion: Why?\n\nAnswer: So.\n\n"
        "Follow-up question: And then?\n\nAnswer:",
    )


def test_many_long_sources_share_the_room_for_their_text():
    sources = tuple(
        Source(
            id=str(n), title="T", url="https://u.org", citation_index=n, markdown=f"s{n} " * 9_000
        )
        for n in range(1, 21)
    )
    asked = replace(FOLLOW_UP, sources=sources, history=())
    (prompt,) = fit(asked, able("completion"), "llama").prompts
    assert len(prompt) < 8_000
    assert all(f"[{n}] T <https://u.org>: s{n} s{n}" in prompt for n in range(1, 21))
    assert "s20 s20" not in fit(asked, able("research"), "llama").query


def test_the_last_user_message_is_the_question():
    chat = ChatRequest(messages=(say("user", "a"), say("user", "b"), say("assistant", "c")))
    assert fit(chat, able("completion"), "llama").prompts == ("b",)
    assert fit(chat, able("research"), "llama").query == "b"


@pytest.mark.parametrize("accepted", ["completion", "research"])
@pytest.mark.parametrize("messages", [(), (say("system", "a"), say("assistant", "b"))])
def test_a_chat_without_a_question_is_refused(accepted, messages):
    with pytest.raises(InvalidRequestError, match="at least one user message") as refused:
        fit(ChatRequest(messages=messages), able(accepted), "llama")
    assert refused.value.param == "messages"


WITH_FILE = ChatRequest(
    messages=(
        Message(role="user", parts=(Part(text="Read"), Part(file_id="f1"), Part(text="this"))),
    )
)


def reads_files(*accepts: RequestKind) -> Capabilities:
    return Capabilities(accepts=frozenset(accepts), files=True)


def test_the_files_of_all_questions_go_along_with_research():
    earlier = Message(role="user", parts=(Part(text="First"), Part(file_id="f0")))
    chat = replace(WITH_FILE, messages=(earlier, say("assistant", "Yes."), *WITH_FILE.messages))
    fitted = fit(chat, reads_files("research"), "llama")
    assert (fitted.query, fitted.file_ids) == ("Read\nthis", ("f0", "f1"))


def test_the_files_of_research_become_parts_of_a_chat():
    fitted = fit(replace(RESEARCH, file_ids=("f1", "f2")), reads_files("chat"), "llama")
    assert [part.file_id for part in fitted.messages[-1].parts] == [None, "f1", "f2"]
    assert fitted.messages[-1].text == RESEARCH.query


@pytest.mark.parametrize("request_", [WITH_FILE, replace(RESEARCH, file_ids=("f1",))])
def test_who_reads_files_gets_the_request_as_it_is(request_):
    assert fit(request_, reads_files("chat", "research"), "llama") == request_


# What would be lost without a word is refused, unless the backend ignores it


@pytest.mark.parametrize("accepted", ["chat", "completion", "research"])
def test_files_that_would_be_lost_are_refused(accepted):
    error = refusal(replace(RESEARCH, file_ids=("f1",)), able(accepted))
    assert (error.param, error.info().code) == ("files", "unsupported_parameter")


@pytest.mark.parametrize("accepted", ["chat", "completion", "research"])
def test_files_of_a_message_that_would_be_lost_are_refused(accepted):
    error = refusal(WITH_FILE, able(accepted))
    assert (error.param, error.info().code) == ("messages", "unsupported_parameter")


def test_a_prompt_has_no_room_for_files():
    assert refusal(WITH_FILE, reads_files("completion")).param == "messages"
    assert refusal(replace(RESEARCH, file_ids=("f1",)), reads_files("completion")).param == "files"


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (COMPLETION, "metadata.collection_ids"),
        (CHAT, "metadata.collection_ids"),
        (RESEARCH, "collection_ids"),
    ],
)
@pytest.mark.parametrize("accepted", ["chat", "completion", "research"])
def test_collections_go_to_who_reads_files_alone(request_, param, accepted):
    asked = replace(request_, parameters=ResearchParameters(collection_ids=("c1",)))
    error = refusal(asked, able(accepted))
    assert (error.param, error.info().code) == (param, "unsupported_parameter")
    fitted = fit(asked, reads_files(accepted), "llama")
    assert fitted.parameters.collection_ids == ("c1",)


def test_files_may_be_ignored():
    ignoring = replace(able("chat"), ignores=frozenset({"files"}))
    assert fit(WITH_FILE, ignoring, "llama") == WITH_FILE


ASKS = {
    "n": Sampling(n=2),
    "best_of": Sampling(best_of=2),
    "logprobs": Sampling(logprobs=0),
}
SAMPLING_CASES = [
    (kind, accepted, name)
    for kind in ("completion", "chat")
    for accepted in ("completion", "chat", "research")
    for name in ASKS
]


def asking(kind: str, name: str) -> CompletionRequest | ChatRequest:
    if kind == "completion":
        return CompletionRequest(prompts=("Why?",), sampling=ASKS[name])
    return ChatRequest(messages=(say("user", "Why?"),), sampling=ASKS[name])


@pytest.mark.parametrize(("kind", "accepted", "name"), SAMPLING_CASES)
def test_a_sampling_parameter_that_it_cannot_honour_is_refused(kind, accepted, name):
    error = refusal(asking(kind, name), able(accepted))
    assert (error.param, error.info().code) == (name, "unsupported_parameter")
    assert error.message.startswith(f"{name}: ")


@pytest.mark.parametrize(("kind", "accepted", "name"), SAMPLING_CASES)
def test_a_sampling_parameter_that_it_can_honour_is_kept(kind, accepted, name):
    capabilities = able(accepted, **{name: True})
    if accepted == "research":  # whose requests have no place for it
        assert refusal(asking(kind, name), capabilities).param == name
    else:
        assert fit(asking(kind, name), capabilities, "llama").sampling == ASKS[name]


@pytest.mark.parametrize(("kind", "accepted", "name"), SAMPLING_CASES)
def test_a_sampling_parameter_that_it_ignores_is_dropped(kind, accepted, name):
    fitted = fit(asking(kind, name), able(accepted, ignores=frozenset({name})), "llama")
    assert fitted.type == accepted
    assert fitted.choices == 1
    if accepted != "research":
        assert fitted.sampling == Sampling()


def test_best_of_n_is_no_more_than_n():
    request = CompletionRequest(prompts=("p",), sampling=Sampling(n=3, best_of=3))
    assert fit(request, able("completion", n=True), "llama").sampling == Sampling(n=3)
    with_best_of = able("completion", n=True, best_of=True)
    assert fit(request, with_best_of, "llama") is request
    # without n there are no three of which to take the best three
    without_n = able("completion", ignores=frozenset({"n"}))
    assert fit(request, without_n, "llama").sampling == Sampling()


def test_the_others_are_always_accepted_as_they_are():
    request = CompletionRequest(
        prompts=("p",),
        sampling=replace(
            SAMPLING, top_p=0.1, frequency_penalty=1.0, presence_penalty=1.0, n=1, best_of=None
        ),
    )
    assert fit(request, able("completion"), "llama") is request


COMPLETION_ASKS = {
    "echo": {"echo": True},
    "suffix": {"suffix": ""},
}


@pytest.mark.parametrize("accepted", ["completion", "chat", "research"])
@pytest.mark.parametrize("name", COMPLETION_ASKS)
def test_what_only_a_completion_has_is_refused_dropped_or_kept(name, accepted):
    request = CompletionRequest(prompts=("Why?",), **COMPLETION_ASKS[name])
    error = refusal(request, able(accepted))
    assert (error.param, error.info().code) == (name, "unsupported_parameter")
    plain = CompletionRequest(prompts=("Why?",))
    ignoring = able(accepted, ignores=frozenset({name}))
    assert fit(request, ignoring, "llama") == fit(plain, able(accepted), "llama")
    if accepted == "completion":
        assert fit(request, able(accepted, **{name: True}), "llama") is request
    else:
        assert refusal(request, able(accepted, **{name: True})).param == name


@pytest.mark.parametrize("accepted", ["completion", "chat", "research"])
@pytest.mark.parametrize(
    ("prompts", "flag"), [(("a", "b"), "prompts"), (((1, 2),), "token_prompts")]
)
def test_prompts_that_it_cannot_take_are_refused(prompts, flag, accepted):
    request = CompletionRequest(prompts=prompts)
    error = refusal(request, able(accepted, prompts=False, token_prompts=False))
    assert (error.param, error.info().code) == ("prompt", "unsupported_parameter")
    capable = able(accepted, **{flag: True})
    if accepted == "completion":
        assert fit(request, capable, "llama") is request
    else:
        assert refusal(request, capable).param == "prompt"


samplings = st.builds(
    Sampling,
    n=st.integers(1, 3),
    best_of=st.none() | st.integers(1, 5),
    logprobs=st.none() | st.integers(0, 5),
    seed=st.none() | st.integers(0, 9),
)
questions = st.one_of(
    st.builds(
        CompletionRequest,
        prompts=st.lists(st.text() | st.just((1, 2)), min_size=1, max_size=2).map(tuple),
        sampling=samplings,
        echo=st.booleans(),
        suffix=st.none() | st.just("s"),
    ),
    st.builds(ChatRequest, messages=st.just((say("user", "Why?"),)), sampling=samplings),
)
capabilities_ = st.builds(
    Capabilities,
    accepts=st.frozensets(st.sampled_from(KINDS), min_size=1),
    prompts=st.booleans(),
    n=st.booleans(),
    best_of=st.booleans(),
    logprobs=st.booleans(),
    echo=st.booleans(),
    suffix=st.booleans(),
    token_prompts=st.booleans(),
    ignores=st.frozensets(st.sampled_from(["n", "best_of", "logprobs", "echo", "suffix"])),
)


@settings(deadline=None)
@given(questions, capabilities_)
def test_a_backend_never_gets_what_it_did_not_ask_for(request, capabilities):
    try:
        fitted = fit(request, capabilities, "llama")
    except InvalidRequestError as error:
        param = error.param
        fitted = None
    if fitted is None:
        assert param in {"model", "prompt", "n", "best_of", "logprobs", "echo", "suffix"}
        assert param not in capabilities.ignores
        return
    assert fitted.type in capabilities.accepts
    sampling = getattr(fitted, "sampling", Sampling())
    assert capabilities.n or sampling.n == 1
    assert capabilities.best_of or sampling.best_of is None
    assert capabilities.logprobs or sampling.logprobs is None
    if isinstance(fitted, CompletionRequest):
        assert capabilities.echo or not fitted.echo
        assert capabilities.suffix or fitted.suffix is None
        assert capabilities.prompts or len(fitted.prompts) == 1
        assert capabilities.token_prompts or all(isinstance(p, str) for p in fitted.prompts)
    # nothing was lost that is not declared to be ignored
    if "n" not in capabilities.ignores:
        assert fitted.choices == request.choices
    if request.sampling.logprobs is not None and "logprobs" not in capabilities.ignores:
        assert fitted.sampling.logprobs == request.sampling.logprobs
