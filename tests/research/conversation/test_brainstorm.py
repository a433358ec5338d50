"""Clarifying questions, their answers, and that a session is used once."""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection

import pytest

from caesar_server.blueprints.research.brainstorm import routes
from caesar_server.contract import ChoiceFinished, Completed, ContentDelta
from caesar_server.contract.errors import BackendError, BackendUnavailableError
from caesar_server.testing import FakeClock, Gate

QUESTIONS = (
    {"question": "For whom?", "options": ["Engineers", "Everybody"]},
    {"question": "Which years?", "options": []},
)
SHOWN = [
    {
        "id": "q1",
        "question": "For whom?",
        "options": [{"key": "0", "text": "Engineers"}, {"key": "1", "text": "Everybody"}],
    },
    {"id": "q2", "question": "Which years?", "options": []},
]
ANSWERED = (ContentDelta("yes"), ChoiceFinished(), Completed())


def asking(questions=QUESTIONS):
    return (Completed({"questions": questions}),)


def make(serve, questions=QUESTIONS, **kw):
    served = serve(**kw)
    served.stage.steps |= {"brainstorm": asking(questions), "research": ANSWERED}
    return served


def session_of(served, query="qubits", headers=None):
    made = served.client.post("/research/brainstorm", json={"query": query}, headers=headers)
    assert made.status_code == 200, made.text
    return made.get_json()


def begin(served, session_id, answers=None, headers=None, **body):
    data = {"query": "qubits", "brainstorm_session_id": session_id, **body}
    if answers is not None:
        data["answers"] = answers
    return served.client.post("/research", json=data, headers=headers)


def query_asked(served, created):
    """Return the query that the backend got for a job."""
    job_id = created.get_json()["id"]
    served.ended(job_id)
    return served.store.job(job_id).request.query


def test_the_backends_questions(serve):
    served = make(serve)
    session = session_of(served, "What of qubits?")
    uuid.UUID(session["id"])
    assert session.pop("created_at").endswith("Z")
    assert session == {
        "id": session["id"],
        "query": "What of qubits?",
        "status": "ready",
        "questions": SHOWN,
    }
    assert served.backend.script.requests[-1].query == "What of qubits?"
    # it is no research job
    assert served.client.get("/research").get_json()["data"] == []
    assert served.client.get(f"/research/{session['id']}").status_code == 404


def test_a_backend_may_have_nothing_to_ask(serve):
    served = make(serve, questions=())
    session = session_of(served)
    assert session["questions"] == []
    created = begin(served, session["id"], [])
    assert (created.status_code, "warning" in created.get_json()) == (200, False)
    assert query_asked(served, created) == "qubits"


def test_more_than_seven_questions_are_too_many(serve):
    served = make(serve, [{"question": f"{n}?"} for n in range(9)])
    questions = session_of(served)["questions"]
    assert [one["id"] for one in questions] == [f"q{n}" for n in range(1, 8)]


@pytest.mark.parametrize(
    "wrong",
    ["Why?", [1], [{"question": 1}], [{"options": []}], [{"question": "?", "options": [1]}]],
)
def test_questions_that_are_none_are_the_backends_fault(serve, wrong):
    served = make(serve, wrong)
    refused = served.client.post("/research/brainstorm", json={"query": "qubits"})
    assert refused.status_code == 500
    assert refused.get_json() == {"error": "The backend asked no proper questions"}


@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [(BackendUnavailableError("Loading"), 503, "true"), (BackendError("Broken"), 500, None)],
)
def test_a_backend_that_fails_to_ask_is_told(serve, error, status, retry):
    served = serve()
    served.stage.steps["brainstorm"] = (error,)
    refused = served.client.post("/research/brainstorm", json={"query": "qubits"})
    assert refused.status_code == status
    assert refused.get_json() == {"error": error.message}
    assert refused.headers.get("x-should-retry") == retry


def test_a_client_that_leaves_ends_the_asking(serve):
    served = serve()
    gate = Gate()
    served.stage.steps["brainstorm"] = (gate, *asking())
    served.live()
    with closing(HTTPConnection("127.0.0.1", served.port)) as connection:
        body, kind = json.dumps({"query": "qubits"}), {"Content-Type": "application/json"}
        connection.request("POST", "/research/brainstorm", body, kind)
        gate.wait_until_reached()
    served.backend.script.wait_for(lambda script: script.ended == 1, 60.0)
    assert served.backend.script.cancels == 1


def test_the_usual_questions_of_a_backend_that_asks_none(serve):
    served = serve(accepts=("research",))
    questions = session_of(served, "quantum computing")["questions"]
    assert 2 <= len(questions) <= 7
    for question in questions:
        assert question["question"].endswith("?")
        assert [option["key"] for option in question["options"]] == [
            str(key) for key in range(len(question["options"]))
        ]
    assert served.backend.script.runs == 0


@pytest.mark.parametrize(
    "query",
    [
        "What has changed in the EU AI act since May 2024?",
        'Who first said "release early, release often"?',
        "Summarise https://example.com/paper for me",
        "量子コンピュータ",
        "Compare the error rates that the groups in Delft and in Zurich report for their chips",
        # to look for the end of each of these quotations would take minutes
        "a" + "\u201e" * 300_000,
    ],
    ids=lambda query: query[:20],
)
def test_a_specific_query_gets_no_usual_questions(serve, query):
    assert session_of(serve(accepts=("research",)), query)["questions"] == []


def test_answers_are_folded_into_the_query(serve):
    served = make(serve)
    session_id = session_of(served)["id"]
    created = begin(
        served,
        session_id,
        [
            {"question_id": "q2", "custom_text": "After 2020"},
            {"question_id": "q1", "selected_option": 1},
        ],
    )
    assert created.status_code == 200
    assert "warning" not in created.get_json()
    expected = "qubits\n\nClarifications:\n- Which years? After 2020\n- For whom? Everybody"
    assert query_asked(served, created) == expected


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"answer": "Me"}, "Me"),
        ({"custom_text": "Me", "answer": "You"}, "Me"),
        ({"custom_text": "Me", "selected_option": 0}, "Me"),
        ({"custom_text": "Me", "selected_option": 99}, "Me"),
        ({"custom_text": " ", "selected_option": 0}, "Engineers"),
    ],
)
def test_own_words_win(serve, answer, text):
    served = make(serve)
    created = begin(served, session_of(served)["id"], [{"question_id": "q1", **answer}])
    assert query_asked(served, created).endswith(f"- For whom? {text}")


@pytest.mark.parametrize("answers", [[], None])
def test_without_answers_there_is_a_warning_and_the_job_runs(serve, answers):
    served = make(serve)
    created = begin(served, session_of(served)["id"], answers)
    assert created.status_code == 200
    assert "without answers" in created.get_json()["warning"]
    assert query_asked(served, created) == "qubits"


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (
            [{"question_id": "q9", "custom_text": "a"}],
            "answers[0].question_id: 'q9' is no question of the session; expected one of: q1, q2",
        ),
        (
            [
                {"question_id": "q1", "custom_text": "a"},
                {"question_id": "q1", "selected_option": 0},
            ],
            "answers[1].question_id: 'q1' is answered twice",
        ),
        (
            [{"question_id": "q1", "selected_option": 2}],
            "answers[0].selected_option: expected 0 to 1, got 2",
        ),
        (
            [{"question_id": "q2", "selected_option": 0}],
            "answers[0].selected_option: the question has no options; send custom_text",
        ),
        ([{"question_id": "q1"}], "answers[0]: expected selected_option or custom_text"),
        ([{"custom_text": "a"}], "answers[0].question_id: required and missing"),
    ],
)
def test_wrong_answers_are_told_and_do_not_use_the_session_up(serve, answers, problem):
    served = make(serve)
    session_id = session_of(served)["id"]
    refused = begin(served, session_id, answers)
    assert (refused.status_code, refused.get_json()) == (400, {"error": problem})
    assert begin(served, session_id, []).status_code == 200


def test_answers_need_their_session(serve):
    served = make(serve)
    body = {"query": "q", "answers": [{"question_id": "q1", "custom_text": "a"}]}
    refused = served.client.post("/research", json=body)
    assert refused.status_code == 400
    assert "brainstorm_session_id" in refused.get_json()["error"]


def test_an_unknown_session_is_named(serve):
    served = make(serve)
    for unknown in (str(uuid.uuid4()), "nonsense", "\x00"):
        refused = begin(served, unknown)
        assert refused.status_code == 400
        assert f"unknown session {unknown!r}" in refused.get_json()["error"]
    assert not served.store.jobs()


def test_another_accounts_session_is_unknown(serve, make_key):
    ours, theirs = make_key("ours"), make_key("theirs")
    served = make(serve, keys=True)
    session_id = session_of(served, headers=ours)["id"]
    refused = begin(served, session_id, headers=theirs)
    assert refused.status_code == 400
    assert f"unknown session {session_id!r}" in refused.get_json()["error"]
    assert begin(served, session_id, headers=ours).status_code == 200


def test_a_session_expires(serve):
    clock = FakeClock()
    served = make(serve, clock=clock, brainstorm_expiry_s=60)
    late, in_time = session_of(served)["id"], session_of(served)["id"]
    clock.advance(60)
    assert begin(served, in_time).status_code == 200
    clock.advance(0.5)
    refused = begin(served, late)
    assert refused.status_code == 400
    assert "has expired" in refused.get_json()["error"]


def test_a_session_that_came_to_no_job_can_still_be_used(serve, make_key):
    key = make_key()
    served = make(serve, keys=True, account_jobs_in_progress=1)
    session_id = session_of(served, headers=key)["id"]
    gate = Gate()
    served.stage.steps["research"] = (gate, *ANSWERED)
    running = served.client.post("/research", json={"query": "q"}, headers=key).get_json()["id"]
    assert begin(served, session_id, [], headers=key).status_code == 429
    assert begin(served, session_id, [], headers=key, model="no-such").status_code == 400
    gate.open()
    served.ended(running)
    assert begin(served, session_id, [], headers=key).status_code == 200


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_session_stays_used_when_its_job_is_pruned(serve, store):
    served = make(serve, store=store)
    session_id = session_of(served)["id"]
    served.ended(begin(served, session_id).get_json()["id"])
    served.store.prune(finished_before=served.parts.clock.time() + 1)
    assert served.store.session_job(session_id) is None
    refused = begin(served, session_id)
    assert refused.status_code == 400
    assert "unknown session" in refused.get_json()["error"]


def test_what_no_json_reader_takes_is_replaced(serve):
    served = make(serve, [{"question": "\ud800?", "options": ["\ud800", "\x00"]}])
    session = session_of(served, "qubits \ud83d\ude00 \ud800")
    assert session["query"] == "qubits \U0001f600 \ufffd"
    (question,) = session["questions"]
    assert question["question"] == "\ufffd?"
    assert [option["text"] for option in question["options"]] == ["\ufffd", "\x00"]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_of_many_who_use_a_session_at_once_one_succeeds(serve, store):
    served = make(serve, store=store)
    session_id = session_of(served)["id"]
    together = threading.Barrier(20)

    def use(_):
        together.wait(60)
        return begin(served, session_id, [{"question_id": "q1", "selected_option": 0}])

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(use, range(20)))
    assert sorted(one.status_code for one in answers) == [200] + 19 * [400]
    for one in answers:
        if one.status_code == 400:
            assert "has been used" in one.get_json()["error"]
    (job,) = served.store.jobs(kinds=("research",))
    assert served.ended(job.id).session_id == session_id


def test_a_request_that_is_sent_again_finds_its_own_job(serve):
    served = make(serve)
    gate = Gate()
    served.stage.steps["research"] = (gate, *ANSWERED)
    session_id = session_of(served)["id"]
    first = begin(served, session_id)
    again = begin(served, session_id, headers={"x-stainless-retry-count": "1"})
    assert again.get_json()["id"] == first.get_json()["id"]
    gate.open()
    served.ended(first.get_json()["id"])


def test_the_quota_does_not_count_a_brainstorm(serve, make_key):
    key = make_key()
    served = make(serve, keys=True, account_jobs_in_progress=1)
    gate = Gate()
    served.stage.steps["research"] = (gate, *ANSWERED)
    running = served.client.post("/research", json={"query": "q"}, headers=key).get_json()["id"]
    assert session_of(served, headers=key)["questions"] == SHOWN
    gate.open()
    served.ended(running)


@pytest.mark.parametrize("body", [{}, {"query": ""}, {"query": 1}])
def test_a_wrong_body_is_400(serve, body):
    served = make(serve)
    refused = served.client.post("/research/brainstorm", json=body)
    assert refused.status_code == 400
    assert "query" in refused.get_json()["error"]
    assert served.backend.script.runs == 0


def test_questions_that_cannot_be_shown_are_not_to_be_asked_for_again(serve, monkeypatch):
    """The backend has worked for them."""
    served = make(serve, [{"question": "Which?"}])

    def break_off(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(routes, "told_questions", break_off)
    refused = served.client.post("/research/brainstorm", json={"query": ""})
    assert (refused.status_code, refused.headers.get("x-should-retry")) == (400, None)
    failed = served.client.post("/research/brainstorm", json={"query": "qubits"})
    assert (failed.status_code, failed.headers.get("x-should-retry")) == (500, "false")
    assert "secret" not in failed.text
