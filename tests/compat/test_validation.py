"""What a wrong request is told: 400, the field, what was expected."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from marshmallow import ValidationError, fields

from caesar_server.blueprints.compat.schemas import (
    CallLoader,
    ChatSchema,
    CompletionSchema,
    load_call,
    to_bad_request,
)
from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    ResearchParameters,
)
from caesar_server.errors import BadRequestError

ANSWER = [ContentDelta("x"), ChoiceFinished(), Completed()]


@pytest.fixture
def client(make_client):
    return make_client(ANSWER)


@pytest.fixture
def script(client):
    client.post("/compat/completions", json={"model": "m", "prompt": "load"})
    return client.application.extensions["caesar_server"].registry.loaded()["scripted"].script


def post(client: Any, path: str = "/compat/completions", **body: Any) -> Any:
    return client.post(path, json={"model": "m", "prompt": "p", **body})


def chat(client: Any, **body: Any) -> Any:
    messages = [{"role": "user", "content": "q"}]
    return client.post(
        "/compat/chat/completions", json={"model": "m", "messages": messages, **body}
    )


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("max_tokens", 1, 2**63 - 1),
        ("n", 1, 128),
        ("logprobs", 0, 5),
        ("best_of", 1, 20),
        ("seed", -(2**63), 2**63 - 1),
        ("temperature", 0, 2),
        ("top_p", 0, 1),
        ("frequency_penalty", -2, 2),
        ("presence_penalty", -2, 2),
    ],
)
def test_bounds_are_accepted_at_the_edge_and_refused_beyond(make_client, field, low, high):
    def answer_all(request):
        for choice in range(request.choices):
            yield ChoiceFinished(choice)
        yield Completed()

    client = make_client(answer_all, capabilities={"best_of": True, "logprobs": True})
    step = 1 if isinstance(low, int) and field not in ("temperature", "top_p") else 0.001
    for value in (low, high):
        assert post(client, **{field: value}).status_code == 200, value
    for value in (low - step, high + step):
        reply = post(client, **{field: value})
        assert (reply.status_code, reply.json["error"]["param"]) == (400, field), value
        assert repr(value) in reply.json["error"]["message"]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", [2**63, pytest.param(10**400, id="10**400"), 1e308])
def test_no_count_is_beyond_64_bits(client, field, value):
    reply = chat(client, **{field: value})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, field)
    assert len(reply.data) < 300


@pytest.mark.parametrize(
    ("body", "param", "most"),
    [
        # each chunk of a stream repeats it
        ({"model": "m" * 1025}, "model", "1024 characters"),
        ({"metadata": {"model": "m" * 1025}}, "metadata.model", "1024 characters"),
        (
            {"metadata": {"collection_ids": ["c"] * 1001}},
            "metadata.collection_ids",
            "1000 items",
        ),
        (
            {"metadata": {"excluded_domains": ["a.example"] * 1001}},
            "metadata.excluded_domains",
            "1000 items",
        ),
    ],
)
def test_what_costs_more_than_its_size_is_bounded(client, body, param, most):
    for reply in (post(client, **body), chat(client, **body)):
        assert (reply.status_code, reply.json["error"]["param"]) == (400, param)
        assert f"{param}: expected at most {most}, got 1" in reply.json["error"]["message"]


def test_files_in_messages_are_bounded_before_they_are_looked_up(client):
    parts = [{"type": "file", "file": {"file_id": f"f{number}"}} for number in range(1001)]
    reply = chat(client, messages=[{"role": "user", "content": parts}])
    assert (reply.status_code, reply.json["error"]["param"]) == (400, "messages")
    assert reply.json["error"]["message"] == "messages: expected at most 1000 files, got 1001"


@pytest.mark.parametrize(
    "field",
    ["max_tokens", "n", "logprobs", "best_of", "seed", "temperature", "top_p", "presence_penalty"],
)
@pytest.mark.parametrize("value", [True, "1", [1], {"a": 1}])
def test_a_number_is_a_number(client, field, value):
    reply = post(client, **{field: value})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, field)


@pytest.mark.parametrize("field", ["max_tokens", "n", "logprobs", "best_of", "seed"])
def test_an_integer_has_no_fraction(client, field):
    reply = post(client, **{field: 1.5})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, field)


@pytest.mark.parametrize("field", ["stream", "echo"])
@pytest.mark.parametrize("value", [1, 0, "true", [], {}])
def test_a_boolean_is_true_or_false(client, field, value):
    reply = post(client, **{field: value})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, field)


@pytest.mark.parametrize(
    "field",
    [
        "max_tokens", "temperature", "top_p", "n", "stream", "stop", "seed", "echo", "logprobs",
        "best_of", "suffix", "user", "metadata", "stream_options", "logit_bias",
        "frequency_penalty", "presence_penalty", "anything_else",
    ],
)  # fmt: skip
def test_null_is_absent(client, field):
    assert post(client, **{field: None}).status_code == 200


@pytest.mark.parametrize("field", ["model", "prompt"])
def test_null_is_missing_where_a_field_is_required(client, field):
    reply = post(client, **{field: None})
    assert reply.status_code == 400
    assert reply.json["error"] == {
        "message": f"{field}: required and missing",
        "type": "invalid_request_error",
        "param": field,
        "code": "missing_required_parameter",
    }


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ("", "prompt"),
        ([], "prompt"),
        (5, "prompt"),
        ({"a": 1}, "prompt"),
        (["a", ""], "prompt[1]"),
        (["a", 1], "prompt"),
        ([[1], "a"], "prompt"),
        ([[]], "prompt[0]"),
        ([[1, -1]], "prompt[0]"),
        ([[1, True]], "prompt[0]"),
        ([True], "prompt[0]"),
    ],
)
def test_a_prompt_that_is_none_is_refused(client, prompt, param):
    reply = post(client, prompt=prompt)
    assert (reply.status_code, reply.json["error"]["param"]) == (400, param)


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2], [3]]])
def test_token_ids_are_refused_unless_the_backend_declares_them(make_client, prompt):
    reply = post(make_client(ANSWER, capabilities={"token_prompts": False}), prompt=prompt)
    assert (reply.status_code, reply.json["error"]["param"]) == (400, "prompt")

    def count(request):
        for choice in range(request.choices):
            yield ContentDelta(str(request.prompts[choice]), choice)
            yield ChoiceFinished(choice)
        yield Completed()

    able = make_client(count, capabilities={"token_prompts": True})
    assert post(able, prompt=prompt).json["choices"][0]["text"] == "(1, 2)"


@pytest.mark.parametrize("stop", [["a", ""], "", ["a", 1], 5, {"a": 1}, list("abcde")])
def test_a_wrong_stop_is_refused(client, stop):
    reply = post(client, stop=stop)
    assert reply.status_code == 400
    assert reply.json["error"]["param"].startswith("stop")


@pytest.mark.parametrize(
    ("stop", "seen"),
    [
        ([], ()),
        ("a", ("a",)),
        (["a"], ("a",)),
        (list("abcd"), tuple("abcd")),
        (["\n", "é"], ("\n", "é")),
    ],
)
def test_stops_arrive_as_a_tuple(client, script, stop, seen):
    assert post(client, stop=stop).status_code == 200
    assert script.requests[-1].sampling.stop == seen


@pytest.mark.parametrize(
    "bias", [{"a": 1}, {"1": 101}, {"1": "x"}, {"1": True}, [1], {"-1": 0}, {"1.5": 0}]
)
def test_a_wrong_logit_bias_is_refused(client, bias):
    reply = post(client, logit_bias=bias)
    assert reply.status_code == 400
    assert reply.json["error"]["param"].startswith("logit_bias")


def test_stream_options_need_a_stream(client):
    reply = post(client, stream_options={"include_usage": True})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, "stream_options")


def test_best_of_needs_n_and_no_stream(client):
    assert post(client, best_of=1, n=2).json["error"]["param"] == "best_of"
    assert post(client, best_of=3, n=2, stream=True).json["error"]["param"] == "best_of"


def test_the_number_of_prompts_and_choices_is_limited(make_client):
    client = make_client(ANSWER, max_prompts=3, max_choices=4)
    assert post(client, prompt=list("abcd")).json["error"]["param"] == "prompt"
    reply = post(client, prompt=list("abc"), n=2)
    assert (reply.status_code, reply.json["error"]["param"]) == (400, "n")


def test_all_problems_are_told_the_first_as_param(client):
    error = client.post("/compat/completions", json={"prompt": "p", "n": 0, "top_p": 2}).json[
        "error"
    ]
    assert error["param"] in ("model", "n", "top_p")
    for field in ("model", "n", "top_p"):
        assert f"{field}: " in error["message"]


def test_unknown_fields_reach_the_backend_or_are_refused(make_client, client, script):
    assert post(client, top_k=5, response_format={"type": "text"}).status_code == 200
    assert script.requests[-1].extra == {"top_k": 5, "response_format": {"type": "text"}}
    strict = make_client(ANSWER, unknown_fields="reject")
    reply = post(strict, top_k=5)
    assert (reply.status_code, reply.json["error"]["code"], reply.json["error"]["param"]) == (
        400,
        "unknown_parameter",
        "top_k",
    )
    documented = {"response_format": {"type": "text"}, "tools": [], "tool_choice": "none"}
    assert post(strict, **documented, top_k=None).status_code == 200
    assert chat(strict, **documented, top_k=None).status_code == 200


@pytest.mark.parametrize("call", [post, chat])
def test_response_format_is_an_object(client, call):
    assert call(client, response_format="json").json["error"]["param"] == "response_format"


REFUSED = {"type": "refusal", "refusal": "I will not."}
MESSAGE = {"role": "user", "content": "q"}
STREAMED = {"stream": True, "stream_options": {"include_usage": True, "x": 1}}
PARTS = [
    {"type": "text", "text": "Hello"},
    {"type": "file", "file": {"file_id": "f", "detail": "low"}},
]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (STREAMED, "stream_options.x"),
        ({"messages": [MESSAGE, {**MESSAGE, "foo": 1}]}, "messages[1].foo"),
        (
            {"messages": [{**MESSAGE, "content": [{**PARTS[0], "cache": True}]}]},
            "messages[0].content[0].cache",
        ),
        ({"messages": [{**MESSAGE, "content": PARTS}]}, "messages[0].content[1].file.detail"),
        ({**STREAMED, "zzz": 1}, "zzz"),
    ],
)
def test_unknown_fields_are_refused_further_in_too(make_client, body, param):
    error = chat(make_client(ANSWER, unknown_fields="reject"), **body).json["error"]
    assert (error["code"], error["param"]) == ("unknown_parameter", param)
    lenient = make_client(ANSWER, unknown_fields="ignore")
    reply = chat(lenient, **body)
    assert reply.status_code == 200 or "file" in reply.json["error"]["param"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "video_url", "video_url": {"url": "x"}},
        {"type": "refusal", "refusal": "no"},
        {"type": ["text"], "x": 1},
    ],
)
def test_a_part_of_another_kind_is_refused_as_such(make_client, part):
    strict = make_client(ANSWER, unknown_fields="reject")
    error = chat(strict, messages=[{**MESSAGE, "content": [PARTS[0], part]}]).json["error"]
    assert error["param"] == "messages[0].content[1].type"


def test_known_members_of_nested_objects_and_free_ones_are_not_refused(make_client):
    strict = make_client(ANSWER, unknown_fields="reject")
    before = {
        "role": "assistant",
        "content": "Hi",
        "refusal": None,
        "reasoning_content": "Hm.",
        "tool_calls": [{"id": "1"}],
        "annotations": [],
        "audio": None,
        "foo": None,
    }
    reply = chat(
        strict,
        messages=[MESSAGE, before, {"role": "tool", "content": "4", "tool_call_id": "1"}],
        metadata={"trace": "abc"},
        tools=[{"type": "function", "strict": True}],
        response_format={"type": "json_object", "schema": {}},
    )
    assert reply.status_code == 200
    # of a wrong type: told as such
    for wrong in ({"messages": ["x"]}, {"messages": {}}, {"messages": [{**MESSAGE, "content": 1}]}):
        assert chat(strict, **wrong).json["error"]["code"] != "unknown_parameter"


@pytest.mark.parametrize("metadata", [None, {}, {"trace": "abc"}])
def test_without_a_research_key_the_mode_is_auto(client, script, metadata):
    assert post(client, metadata=metadata).status_code == 200
    assert script.requests[-1].parameters == ResearchParameters(auto=True)


def test_metadata_becomes_research_parameters(client, script):
    metadata = {
        "reasoning_loops": 4,
        "source_timeout": 30,
        "reasoning_mode": True,
        "allow_early_exit": True,
        "exclude_social": False,
        "excluded_domains": ["a.example"],
        "system_prompt": "Short.",
        "model": "gpt-5.2",
        "trace": "abc",
    }
    assert post(client, metadata=metadata).status_code == 200
    assert script.requests[-1].parameters == ResearchParameters(
        reasoning_loops=4,
        source_timeout_s=30,
        reasoning_mode=True,
        allow_early_exit=True,
        excluded_domains=("a.example",),
        system_prompt="Short.",
        model="gpt-5.2",
    )


def test_metadata_values_may_be_strings(client, script):
    metadata = {"reasoning_loops": " 4", "reasoning_mode": "true", "exclude_social": "False"}
    assert post(client, metadata=metadata).status_code == 200
    assert script.requests[-1].parameters == ResearchParameters(
        reasoning_loops=4, reasoning_mode=True
    )


def test_compute_units_is_the_old_name_of_reasoning_loops(client, script):
    post(client, metadata={"compute_units": 3})
    assert script.requests[-1].parameters.reasoning_loops == 3
    post(client, metadata={"compute_units": 3, "reasoning_loops": 5})
    assert script.requests[-1].parameters.reasoning_loops == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reasoning_loops", 0),
        ("reasoning_loops", 11),
        ("reasoning_loops", "four"),
        ("reasoning_loops", True),
        ("source_timeout", 2),
        ("source_timeout", 181),
        ("reasoning_mode", "yes"),
        ("reasoning_mode", 1),
        ("excluded_domains", "a.example"),
        ("excluded_domains", [""]),
        ("system_prompt", 5),
        ("collection_ids", ["c1"]),
    ],
)
def test_a_wrong_research_parameter_names_its_key(client, key, value):
    reply = post(client, metadata={key: value})
    assert reply.status_code == 400
    assert reply.json["error"]["param"].startswith(f"metadata.{key}")


@pytest.mark.parametrize("value", ["x", [1], 5, True])
@pytest.mark.parametrize("field", ["metadata", "stream_options"])
def test_an_object_is_an_object(client, field, value):
    reply = post(client, stream=True, **{field: value})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, field)


def test_a_body_of_the_single_key_body_is_unwrapped(client):
    wrapped = {"body": {"model": "m", "prompt": "p"}}
    assert client.post("/compat/completions", json=wrapped).status_code == 200
    assert client.post("/compat/completions", json={"body": 5}).status_code == 400
    chat_body = {"body": {"model": "m", "messages": [{"role": "user", "content": "q"}]}}
    assert client.post("/compat/chat/completions", json=chat_body).status_code == 200


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty"),
        (b"   ", "empty"),
        (b"{", "line 1"),
        (b'{"a": 1,}', "line 1"),
        (b"[1]", "an array"),
        (b"null", "null"),
        (b"true", "a boolean"),
        (b'"x"', "a string"),
        (b"5", "a number"),
        (b'{"model": "a\nb"}', "Invalid control character at line 1, column 13"),
        (b'{"model": NaN}', "NaN"),
        (b'{"model": -Infinity}', "Infinity"),
        (b'{"model": "\xff"}', "UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "(4300 digits) for integer string conversion"),
    ],
)
def test_a_body_that_is_no_json_object_is_told_why(client, raw, words):
    reply = client.post("/compat/completions", data=raw, content_type="application/json")
    assert (reply.status_code, reply.json["error"]["code"]) == (400, "malformed_body")
    assert words in reply.json["error"]["message"]
    assert "sys." not in reply.json["error"]["message"]


@pytest.mark.parametrize("number", [b"1e400", b"-1e999", b"1e-400", b"9" * 4000])
def test_numbers_beyond_all_bounds_are_refused_or_rounded(client, number):
    body = b'{"model": "m", "prompt": "p", "temperature": ' + number + b"}"
    reply = client.post("/compat/completions", data=body, content_type="application/json")
    assert reply.status_code == (200 if number == b"1e-400" else 400)
    assert len(reply.data) < 1000


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
def test_what_is_not_declared_as_plain_json_is_415(client, headers):
    reply = client.post("/compat/completions", data=b'{"model": "m"}', headers=headers)
    assert (reply.status_code, reply.json["error"]["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8",
     "application/vnd.api+json"],
)  # fmt: skip
def test_json_in_its_usual_spellings_is_read(client, content_type):
    body = b'\xef\xbb\xbf{"model": "m", "prompt": "p"}'
    reply = client.post("/compat/completions", data=body, content_type=content_type)
    assert reply.status_code == 200


def test_a_body_over_the_limit_is_413(make_client):
    client = make_client(ANSWER, max_body_bytes=1024)
    reply = post(client, prompt="x" * 2000)
    assert (reply.status_code, reply.json["error"]["code"]) == (413, "body_too_large")
    assert "1024" in reply.json["error"]["message"]


def test_text_that_has_no_utf8_form_is_answered_with_text_that_has(make_client):
    def answer(request):
        yield ContentDelta(request.prompts[0])
        yield ChoiceFinished()
        yield Completed()

    client = make_client(answer)
    body = b'{"model": "m", "prompt": "\\ud800 \\u0000 \\u2028"}'
    for stream in (b"", b', "stream": true'):
        raw = body[:-1] + stream + b"}"
        reply = client.post("/compat/completions", data=raw, content_type="application/json")
        assert reply.status_code == 200
        assert b"\\ufffd \\u0000 \\u2028" in reply.data


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "king", "content": "x"}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "system", "content": "x"}], "messages"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        (
            [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]}],
            "messages[0].content[0].type",
        ),
        (
            [{"role": "user", "content": [{"type": "file", "file": {"fileData": "f1"}}]}],
            "messages[0].content[0].file",
        ),
        ([{"role": "user", "content": "x", "name": 5}], "messages[0].name"),
        ([{"role": "tool", "content": [REFUSED]}], "messages[0].content[0].type"),
        (
            [{"role": "assistant", "content": [{"type": "refusal"}]}],
            "messages[0].content[0].refusal",
        ),
    ],
)
def test_wrong_messages_name_their_place(client, messages, param):
    reply = chat(client, messages=messages)
    assert (reply.status_code, reply.json["error"]["param"]) == (400, param)


@pytest.mark.parametrize("unknown_fields", ["reject", "ignore"])
def test_what_was_refused_before_is_part_of_the_chat(make_client, unknown_fields):
    seen = []
    client = make_client(
        lambda request: (seen.append(request), *ANSWER)[1:], unknown_fields=unknown_fields
    )
    said = {"role": "assistant", "content": [{"type": "text", "text": "Well."}, REFUSED]}
    assert chat(client, messages=[MESSAGE, said, MESSAGE]).status_code == 200
    assert seen[0].messages[1].text == "Well.\nI will not."


def test_top_logprobs_need_logprobs(client):
    assert chat(client, top_logprobs=2).json["error"]["param"] == "top_logprobs"
    assert chat(client, top_logprobs=21, logprobs=True).json["error"]["param"] == "top_logprobs"
    for more in ({}, {"logprobs": False}, {"logprobs": None}):
        assert chat(client, top_logprobs=0, **more).status_code == 200


@pytest.mark.parametrize("path", ["/compat/completions", "/compat/chat/completions"])
@pytest.mark.parametrize("method", ["get", "put", "patch", "delete"])
def test_another_method_is_405_and_names_the_right_one(client, path, method):
    reply = getattr(client, method)(path)
    assert (reply.status_code, reply.json["error"]["code"]) == (405, "method_not_allowed")
    assert "POST" in reply.headers["allow"]


def test_an_unknown_path_has_the_envelope_of_its_surface(client):
    assert set(client.post("/compat/nothing").json["error"]) == {"message", "type", "param", "code"}
    assert set(client.get("/v1/nothing").json["error"]) == {"message", "type", "param", "code"}
    assert client.get("/nothing").json == {"error": "Resource not found"}


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/completions"), ("POST", "/chat/completions"), ("GET", "/models/m")],
)
def test_a_client_without_the_prefix_is_told(client, method, path):
    reply = client.open(path, method=method, json={"model": "m", "prompt": "p"})
    said = f"Unknown path: {method} {path}; the base URL of an OpenAI client ends with /compat"
    # in the envelope that such a client shows
    assert (reply.status_code, reply.json["error"]["message"]) == (404, said)
    assert client.delete(path).json == {"error": "Resource not found"}


def test_a_trailing_slash_is_no_other_path(client):
    reply = client.post("/compat/completions/", json={"model": "m", "prompt": "p"})
    assert reply.status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8000", ""]
)
def test_on_loopback_only_loopback_names_are_answered(client, host):
    reply = client.get("/compat/models", headers={"Host": host})
    assert (reply.status_code, reply.json["error"]["code"]) == (403, "host_not_allowed")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.:80", "127.0.0.1:8000", "[::1]:8000", "app.localhost"]
)
def test_loopback_names_are_answered(client, host):
    assert client.get("/compat/models", headers={"Host": host}).status_code == 200


def test_further_hosts_can_be_allowed(make_client):
    client = make_client(ANSWER, allowed_hosts=("caesar.internal",))
    assert client.get("/healthz", headers={"Host": "caesar.internal:80"}).status_code == 200


def test_every_response_has_a_request_id(client):
    for path in ("/healthz", "/compat/models", "/nothing"):
        assert len(client.get(path).headers["x-request-id"]) == 32
    given = client.get("/healthz", headers={"x-request-id": "req-1.a:b"})
    assert given.headers["x-request-id"] == "req-1.a:b"
    for insane in ("a b", "x" * 200, "é"):
        reply = client.get("/healthz", headers={"x-request-id": insane})
        assert len(reply.headers["x-request-id"]) == 32


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "", None])
def test_without_keys_callers_on_this_machine_are_answered(client, address):
    reply = client.get("/compat/models", environ_overrides={"REMOTE_ADDR": address})
    assert reply.status_code == 200


@pytest.mark.parametrize("address", ["192.0.2.7", "10.0.0.1", "2001:db8::1", "::ffff:192.0.2.7"])
def test_without_keys_callers_from_elsewhere_are_not_whatever_they_call_it(client, address):
    reply = client.get(
        "/compat/models", environ_overrides={"REMOTE_ADDR": address}, headers={"Host": "localhost"}
    )
    assert (reply.status_code, reply.json["error"]["code"]) == (403, "host_not_allowed")


def test_callers_from_elsewhere_are_answered_where_the_operator_wants_them(make_client):
    client = make_client(ANSWER, host="0.0.0.0", insecure=True)
    reply = client.get("/compat/models", environ_overrides={"REMOTE_ADDR": "192.0.2.7"})
    assert reply.status_code == 200


@pytest.mark.parametrize("before", ["", " ", "\n"])
@pytest.mark.parametrize(
    "encoding",
    [
        *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"),
        *("utf-32", "utf-32-le", "utf-32-be"),
    ],
)
def test_json_is_read_in_each_of_its_encodings(client, script, encoding, before):
    body = f'{before}{{"model": "m", "prompt": "\u00e9\U0001f600"}}'.encode(encoding)
    reply = client.post("/compat/completions", data=body, content_type="application/json")
    assert reply.status_code == 200
    assert script.requests[-1].prompts == ("\u00e9\U0001f600",)


def test_bodies_mean_what_their_schema_makes_of_them():
    """Also where the loader reads them without marshmallow."""
    loader = CallLoader(CompletionSchema)
    optional = {
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.5,
        "seed": 1,
        "n": 2,
        "echo": True,
        "stop": "x",
        "user": "u",
        "extra": {"kept": 1},
        "suffix": "s",
        "best_of": None,
        "metadata": {"reasoning_loops": "4"},
        "stream": True,
        "stream_options": {"include_usage": True, "more": 1},
    }
    bodies = [
        {"model": "m", "prompt": "p", **dict(chosen)}
        for count in range(4)
        for chosen in combinations(optional.items(), count)
        if "stream" in dict(chosen) or "stream_options" not in dict(chosen)
    ]
    assert len(bodies) > 150
    for body in bodies:
        assert load_call(loader, body) == CompletionSchema().load(body)
        for name in ("model", "prompt"):
            with pytest.raises(BadRequestError, match=f"{name}: required and missing"):
                load_call(loader, {**body, name: None})
        wrong = {**body, "prompt": 5, "temperature": "hot"}
        with pytest.raises(ValidationError) as whole:
            CompletionSchema().load(wrong)
        with pytest.raises(BadRequestError) as narrow:
            load_call(loader, wrong)
        assert str(narrow.value) == str(to_bad_request(whole.value))


@pytest.mark.parametrize("schema", [CompletionSchema(), ChatSchema()])
def test_nothing_is_done_to_bodies_that_the_loader_would_leave_out(schema):
    assert not any(schema._hooks.values())
    for name, field in schema.fields.items():
        assert (field.data_key, field.attribute) == (None, None), name
        assert type(field).deserialize is fields.Field.deserialize, name
