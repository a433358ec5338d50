"""``POST /compat/completions`` without a stream: what a client finds in the body."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from caesar_server.blueprints.compat.rendering.chunks import CompletionWire
from caesar_server.contract import (
    BackendUnavailableError,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Failed,
    InvalidRequestError,
    LogprobToken,
    ProgressNoted,
    RateLimitedError,
    RequestRejectedError,
    ResultFound,
    StatusChanged,
    TopLogprob,
    UsageCounted,
)

ANSWER = [
    ContentDelta("Paris"),
    ContentDelta(" it is."),
    UsageCounted(4, 3),
    ChoiceFinished(),
    Completed(),
]


def post(client: Any, **body: Any) -> Any:
    return client.post("/compat/completions", json={"model": "m", "prompt": "p", **body})


def test_the_body_has_the_documented_shape(make_client):
    body = post(make_client(ANSWER), model="caesar-research").json
    assert uuid.UUID(body.pop("id")).version == 4
    assert body == {
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "caesar-research",
        "choices": [
            {"text": "Paris it is.", "index": 0, "logprobs": None, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7},
    }


def test_created_is_an_integer(make_client):
    assert type(post(make_client(ANSWER)).json["created"]) is int


@pytest.mark.parametrize(
    "path", ["/compat/completions", "/v1/completions", "/compat/v1/completions"]
)
def test_every_alias_answers_alike(make_client, path):
    reply = make_client(ANSWER).post(path, json={"model": "m", "prompt": "p"})
    assert (reply.status_code, reply.json["choices"][0]["text"]) == (200, "Paris it is.")


def test_choices_of_several_prompts_are_numbered_prompt_by_prompt(make_client):
    def echo_each(request: CompletionRequest):
        for position, prompt in enumerate(request.prompts):
            for k in range(request.sampling.n):
                choice = position * request.sampling.n + k
                yield ContentDelta(f"{prompt}{k}", choice)
                yield ChoiceFinished(choice)
        yield Completed()

    choices = post(make_client(echo_each), prompt=["a", "b"], n=2).json["choices"]
    assert [(c["index"], c["text"]) for c in choices] == [
        (0, "a0"),
        (1, "a1"),
        (2, "b0"),
        (3, "b1"),
    ]


def test_choices_are_in_order_although_they_end_in_another(make_client):
    events = [
        ContentDelta("second", 1),
        ChoiceFinished(1, "length"),
        ContentDelta("first", 0),
        ChoiceFinished(0),
        Completed(),
    ]
    choices = post(make_client(events), n=2).json["choices"]
    assert [(c["index"], c["text"], c["finish_reason"]) for c in choices] == [
        (0, "first", "stop"),
        (1, "second", "length"),
    ]


def test_usage_adds_up_and_is_zero_on_request(make_client):
    events = [
        UsageCounted(2, 0),
        ContentDelta("x"),
        UsageCounted(0, 5),
        ChoiceFinished(),
        Completed(),
    ]
    assert post(make_client(events)).json["usage"]["total_tokens"] == 7
    assert post(make_client(events, compat_usage="zero")).json["usage"] == {
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "total_tokens": 0,
    }


def test_a_backend_that_counts_nothing_gets_its_words_counted(make_client):
    events = [ContentDelta("one tw"), ContentDelta("o three"), ChoiceFinished(), Completed()]
    client = make_client(events, capabilities={"usage": False})
    assert post(client, prompt=["a b", "c d e"][0]).json["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "total_tokens": 5,
    }


def test_no_probability_is_above_one(make_client):
    token = LogprobToken("a", 1e-7, (TopLogprob("a", 1e-7), TopLogprob("b\ud800", -2.0)))
    events = [ContentDelta("a", logprobs=(token,)), ChoiceFinished(), Completed()]
    client = make_client(events, capabilities={"logprobs": True})
    shown = post(client, logprobs=2).json["choices"][0]["logprobs"]
    assert (shown["token_logprobs"], shown["top_logprobs"]) == (
        [0.0],
        [{"a": 0.0, "b\ufffd": -2.0}],
    )
    chat = {"model": "m", "messages": [{"role": "user", "content": "p"}], "logprobs": True}
    (told,) = client.post("/v1/chat/completions", json=chat).json["choices"][0]["logprobs"][
        "content"
    ]
    assert (told["logprob"], [top["logprob"] for top in told["top_logprobs"]]) == (0.0, [0.0, -2.0])


def test_of_alternatives_with_the_same_text_the_best_is_shown(make_client):
    # tokens that are parts of characters have no text of their own
    top = (TopLogprob("\ufffd", -0.5), TopLogprob("a", -1.0), TopLogprob("\ufffd", -7.0))
    events = [
        ContentDelta("a", logprobs=(LogprobToken("a", -1.0, top),)),
        ChoiceFinished(),
        Completed(),
    ]
    client = make_client(events, capabilities={"logprobs": True})
    (shown,) = post(client, logprobs=3).json["choices"][0]["logprobs"]["top_logprobs"]
    assert shown == {"\ufffd": -0.5, "a": -1.0}


def test_logprobs_are_four_parallel_arrays_over_the_whole_text(make_client):
    first = LogprobToken("Pa", None)
    second = LogprobToken("ris", -0.5, (TopLogprob("ris", -0.5), TopLogprob("ul", -2.0)))
    events = [
        ContentDelta("Pa", logprobs=(first,)),
        ContentDelta("ris", logprobs=(second,)),
        ChoiceFinished(),
        Completed(),
    ]
    client = make_client(events, capabilities={"logprobs": True})
    assert post(client, logprobs=2).json["choices"][0]["logprobs"] == {
        "tokens": ["Pa", "ris"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [None, {"ris": -0.5, "ul": -2.0}],
        "text_offset": [0, 2],
    }


def test_references_list_the_cited_results_and_no_others(make_client):
    events = [
        StatusChanged("searching"),
        ResultFound("r1", "A [bold] title", "https://a.example/x_(y)", citation_index=1),
        ResultFound("r2", "Not cited", "https://b.example/", citation_index=2),
        ResultFound("r3", "", "https://c.example/", citation_index=3),
        ResultFound("r4", "No number", "https://d.example/"),
        ProgressNoted("Writing"),
        ContentDelta("First [3] then [1"),
        ContentDelta("], never [9]."),
        ChoiceFinished(),
        Completed(),
    ]
    text = post(make_client(events)).json["choices"][0]["text"]
    assert text == (
        "First [3] then [1], never [9].\n\n## References\n\n"
        "[1] [A \\[bold\\] title](https://a.example/x_%28y%29)\n"
        "[3] [https://c.example/](https://c.example/)"
    )


def test_a_result_that_comes_again_replaces_the_first(make_client):
    events = [
        ResultFound("r1", "Old", "https://a.example/"),
        ContentDelta("See [1]."),
        ResultFound("r1", "New", "https://a.example/", citation_index=1),
        ChoiceFinished(),
        Completed(),
    ]
    assert "[1] [New](https://a.example/)" in post(make_client(events)).json["choices"][0]["text"]


@pytest.mark.parametrize(
    ("channels", "system_prompt", "text"),
    [
        ({"content", "transformed"}, "As JSON", "{}"),
        ({"content", "transformed"}, None, "plain"),
        ({"content"}, "As JSON", "plain"),
    ],
)
def test_the_text_is_the_transformed_one_if_asked_for_and_declared(
    make_client, channels, system_prompt, text
):
    events = [
        ContentDelta("plain"),
        ContentDelta("{}", channel="transformed"),
        ContentDelta("hm", channel="reasoning"),
        ChoiceFinished(),
        Completed(),
    ]
    client = make_client(events, capabilities={"channels": frozenset(channels)})
    body = post(client, metadata={"system_prompt": system_prompt}).json
    assert body["choices"][0]["text"] == text


@pytest.mark.parametrize(
    ("error", "status", "code", "param", "retried"),
    [
        (InvalidRequestError("no", param="suffix"), 400, "invalid_value", "suffix", None),
        (RequestRejectedError("gone", status=410, code="gone"), 410, "gone", None, None),
        (RateLimitedError("slow", retry_after_s=1.5), 429, "rate_limit_exceeded", None, "true"),
        (BackendUnavailableError("down"), 503, "backend_unavailable", None, "true"),
        (ZeroDivisionError("secret"), 500, "internal_error", None, None),
    ],
)
def test_a_failure_has_its_own_status_and_four_keys(
    make_client, error, status, code, param, retried
):
    reply = post(make_client([error]))
    assert reply.status_code == status
    assert reply.content_type == "application/json"
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}
    assert (reply.json["error"]["code"], reply.json["error"]["param"]) == (code, param)
    assert reply.headers.get("x-should-retry") == retried
    assert "secret" not in reply.text


def test_a_delay_is_told_in_seconds_and_milliseconds(make_client):
    reply = post(make_client([RateLimitedError("slow", retry_after_s=1.5)]))
    assert (reply.headers["retry-after"], reply.headers["retry-after-ms"]) == ("2", "1500")


@pytest.mark.parametrize("wait_s", [2**31, 1e308])
def test_a_delay_is_one_that_a_timer_can_wait_for(make_client, wait_s):
    reply = post(make_client([RateLimitedError("slow", retry_after_s=wait_s)]))
    assert reply.status_code == 429
    assert reply.headers["retry-after"] == "2147483"
    assert int(reply.headers["retry-after-ms"]) < 2**31


def test_a_failure_after_work_has_begun_is_not_to_be_retried(make_client):
    events = [StatusChanged("searching"), Failed(BackendUnavailableError("down").info())]
    assert post(make_client(events)).headers["x-should-retry"] == "false"


@pytest.mark.parametrize("durable", [False, True])
def test_an_answer_that_cannot_be_rendered_is_not_to_be_retried(
    make_client, monkeypatch, caplog, durable
):
    def no_choice(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(CompletionWire, "_whole_choice", no_choice)
    events = [ContentDelta("x"), ChoiceFinished(), Completed()]
    reply = post(make_client(events, capabilities={"durable": durable}))
    assert (reply.status_code, reply.json["error"]["code"]) == (500, "internal_error")
    assert reply.headers["x-should-retry"] == "false"
    assert "ZeroDivisionError: secret" in caplog.text


def test_a_breach_of_the_contract_is_a_500_without_details(make_client, caplog):
    reply = post(make_client([ContentDelta("x"), Completed()]))
    assert (reply.status_code, reply.json["error"]["message"]) == (
        500,
        "An unexpected error occurred",
    )
    assert "ChoiceFinished(choice=0)" in caplog.text


def test_what_the_backend_cannot_do_is_refused_before_it_runs(make_client):
    client = make_client(ANSWER, capabilities={"logprobs": False})
    reply = post(client, logprobs=1)
    assert (reply.status_code, reply.json["error"]["param"]) == (400, "logprobs")
    assert "'scripted'" in reply.json["error"]["message"]


def test_the_job_is_stored_with_its_events(make_client):
    client = make_client(ANSWER)
    job_id = post(client).json["id"]
    store = client.application.extensions["caesar_server"].store
    assert store.job(job_id).status == "completed"
    assert [record.event.type for record in store.records(job_id)] == [
        "status_changed",
        "content_delta",
        "content_delta",
        "usage_counted",
        "choice_finished",
        "completed",
    ]


def test_a_backend_that_ignores_n_gives_one_choice(make_client):
    client = make_client(ANSWER, capabilities={"n": False, "ignores": frozenset({"n"})})
    assert len(post(client, n=3).json["choices"]) == 1
