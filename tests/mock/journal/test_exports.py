"""Entries as JSON and as an HTTP archive."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import caesar_server
from caesar_server.mock.journal import Journal
from caesar_server.mock.journal.export import to_json
from caesar_server.mock.journal.har import to_har
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Decision, Nearest, Rule
from caesar_server.testing import FakeClock

from .har_schema import HAR

MakeCall = Callable[..., Call]
VALIDATOR = Draft202012Validator(HAR)


@pytest.mark.parametrize(
    "name",
    [
        *("api_key", "api-key", "apiKey", "key", "access%5Ftoken", "TOKEN", "api.key", "api%2Ekey"),
        *("sig", "X-Amz-Signature", "filter[secret]", "auth", "db.pwd", "key2Token"),
    ],
)
def test_secrets_in_a_query_are_hidden(journal: Journal, make_call: MakeCall, name: str) -> None:
    journal.open(make_call(raw_path=f"/v1/completions?a=1&{name}=hush%20hush&monkey=2&keys"))
    (entry,) = journal.entries()
    for told in (to_json([entry], journal.totals()), to_har([entry]), repr(entry)):
        assert "hush" not in str(told)
    assert entry.call.raw_path == f"/v1/completions?a=1&{name}=***&monkey=2&keys"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("/a?x=1;api_key=hush;y=hush&b=2", "/a?x=1;api_key=***&b=2"),
        ("/a;api_key=hush/b;v=2?c=3", "/a;api_key=***/b;v=2?c=3"),
        ("/a;sig=hush", "/a;sig=***"),
        ("/a?b=1#token=hush", "/a?b=1#token=***"),
        ("http://me:hush@host/a?b=1", "http://me:***@host/a?b=1"),
        ("http://:hu@sh@host/", "http://:***@host/"),
        ("http://me@host:80/a@b", "http://me@host:80/a@b"),
        ("/a?url=ftp://me:hush@host/&b=c@d", "/a?url=ftp://me:***@host/&b=c@d"),
        ("/a?url=ftp%3A%2F%2Fme%3Ahush%40host%2Fx", "/a?url=ftp%3A%2F%2Fme%3A***%40host%2Fx"),
        ("/a?url=%2Fx%3Fb%3D1%26sig%3Dhush&c=3", "/a?url=%2Fx%3Fb%3D1%26sig%3D***&c=3"),
        ("/a?sigma=1&author=me&t=12:30@6", "/a?sigma=1&author=me&t=12:30@6"),
    ],
)
def test_secrets_in_an_address_are_hidden(
    journal: Journal, make_call: MakeCall, address: str, shown: str
) -> None:
    recording = journal.open(make_call(raw_path=address, headers={"referer": address}))
    recording.answered(302, [("Location", address)])
    (entry,) = journal.entries()
    assert entry.call.raw_path == entry.call.headers["referer"] == shown
    assert entry.headers["location"] == shown
    for told in (to_json([entry], journal.totals()), to_har([entry])):
        assert "hush" not in str(told)


def test_secrets_in_a_path_are_hidden_there_too(journal: Journal, make_call: MakeCall) -> None:
    journal.open(make_call(path="/a;sig=hush/b", raw_path="/a;sig=hush/b"))
    (entry,) = journal.entries()
    assert (entry.call.path, entry.original.path) == ("/a;sig=***/b", "/a;sig=hush/b")


def test_an_address_in_full_is_the_url(journal: Journal, make_call: MakeCall) -> None:
    journal.open(make_call(raw_path="http://api.example/v1/completions?a=1"))
    request = to_har(journal.entries())["log"]["entries"][0]["request"]
    assert request["url"] == "http://api.example/v1/completions?a=1"
    assert request["queryString"] == [{"name": "a", "value": "1"}]


@pytest.fixture
def full(journal: Journal, clock: FakeClock, make_call: MakeCall) -> Journal:
    """A stream, one that a fault cut off in the middle of a character, and one that goes on."""
    rule = Rule(id="r1", name="hi", replies=(Reply(text="Hi"),), source="a.yaml:3")
    one = journal.open(make_call(raw_path="/v1/completions?a=1&b="))
    one.decided(Decision(rule=rule))
    clock.advance(0.25)
    one.answered(200, {"Content-Type": "text/event-stream", "Set-Cookie": "a=b"})
    one.frame(b"data: 1\n\n")
    clock.advance(1)
    one.frame(b"data: [DONE]\n\n")
    one.end("completed")
    two = journal.open(make_call(raw_body=b"\xff", headers={"authorization": "Bearer secret"}))
    two.decided(Decision(nearest=(Nearest(rule=rule, failed=("prompt: wanted 'a'",)),)))
    two.answered(299)
    two.frame(b"data: \xe2\x82")
    two.faulted("truncated_utf8", Rule(id="r2"))
    two.end("fault:truncated_utf8", "in the middle")
    journal.open(make_call(method="GET", raw_body=b"", raw_path="", headers={}))
    return journal


def test_as_json(full: Journal) -> None:
    exported = json.loads(json.dumps(to_json(full.entries(), full.totals())))
    assert exported["totals"] == {
        "requests": 3,
        "dropped": 0,
        "faults": {"truncated_utf8": 1},
        "ended": {"completed": 1, "fault:truncated_utf8": 1},
    }
    one, two, three = exported["entries"]
    assert one["rule"] == {"id": "r1", "name": "hi", "source": "a.yaml:3"}
    assert one["response"]["headers"] == {"content-type": "text/event-stream", "set-cookie": "***"}
    assert one["response"]["frames"] == [
        {"at_s": 0.25, "text": "data: 1\n\n"},
        {"at_s": 1.25, "text": "data: [DONE]\n\n"},
    ]
    assert two["request"]["body"] == {"base64": base64.b64encode(b"\xff").decode()}
    assert two["response"]["frames"] == [
        {"at_s": 0.0, "base64": base64.b64encode(b"data: \xe2\x82").decode()}
    ]
    assert two["faults"] == [{"kind": "truncated_utf8", "at_s": 0.0, "rule": "r2"}]
    assert two["nearest"] == [{"rule": "r1", "name": "hi", "failed": ["prompt: wanted 'a'"]}]
    assert (two["ended"], two["detail"]) == ("fault:truncated_utf8", "in the middle")
    assert (three["response"], three["ended"], three["rule"]) == (None, None, None)
    assert "secret" not in json.dumps(exported)


def test_as_an_archive(full: Journal, clock: FakeClock) -> None:
    har = json.loads(json.dumps(to_har(full.entries())))
    VALIDATOR.validate(har)
    assert har["log"]["creator"] == {"name": "caesar-server", "version": caesar_server.__version__}
    one, two, three = har["log"]["entries"]
    assert one["startedDateTime"] == "2023-11-14T22:13:20.000+00:00"
    assert (one["time"], one["timings"]) == (1250, {"send": 0, "wait": 250, "receive": 1000})
    assert one["request"]["url"] == "http://mock.test:8000/v1/completions?a=1&b="
    assert one["request"]["queryString"] == [
        {"name": "a", "value": "1"},
        {"name": "b", "value": ""},
    ]
    assert json.loads(one["request"]["postData"]["text"])["prompt"] == "Hello"
    assert one["response"]["content"] == {
        "size": 23,
        "mimeType": "text/event-stream",
        "text": "data: 1\n\ndata: [DONE]\n\n",
    }
    assert one["comment"] == "completed, rule 'hi' (a.yaml:3)"
    assert two["response"]["content"]["encoding"] == "base64"
    assert base64.b64decode(two["response"]["content"]["text"]) == b"data: \xe2\x82"
    assert (two["response"]["status"], two["response"]["statusText"]) == (299, "")
    assert {"name": "authorization", "value": "Bearer ***"} in two["request"]["headers"]
    assert three["response"]["status"] == 0
    assert "postData" not in three["request"]


def test_an_empty_journal_is_an_archive(journal: Journal) -> None:
    VALIDATOR.validate(to_har(journal.entries()))


def test_a_strange_address_makes_no_strange_archive(journal: Journal, make_call: MakeCall) -> None:
    journal.open(make_call(raw_path="/v1/a#b?c=%zz&d", headers={"host": "[::1#"}))
    har = to_har(journal.entries())
    VALIDATOR.validate(har)
    assert har["log"]["entries"][0]["request"]["url"] == "http://[::1/v1/a%23b?c=%zz&d"


def test_the_structure_refuses_what_is_no_archive(full: Journal) -> None:
    har: Any = to_har(full.entries())
    del har["log"]["entries"][0]["timings"]["wait"]
    har["log"]["entries"][1]["request"]["postdata"] = {}
    assert len(list(VALIDATOR.iter_errors(har))) == 2


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.fixed_dictionaries(
        {
            "method": st.sampled_from(["GET", "POST", ""]),
            "raw_path": st.one_of(st.just(""), st.text(max_size=10).map(lambda text: f"/{text}")),
            "raw_body": st.binary(max_size=20),
            "headers": st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
        }
    ),
    st.lists(st.binary(max_size=10), max_size=3),
    st.one_of(st.none(), st.integers(100, 599)),
)
def test_anything_can_be_exported(
    make_call: MakeCall, fields: dict[str, Any], frames: list[bytes], status: int | None
) -> None:
    journal = Journal()
    recording = journal.open(make_call(**fields))
    if status is not None:
        recording.answered(status)
    recording.frames(frames)
    VALIDATOR.validate(json.loads(json.dumps(to_har(journal.entries()))))
    json.dumps(to_json(journal.entries(), journal.totals()))
