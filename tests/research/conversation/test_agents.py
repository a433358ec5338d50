"""The agents family: the same research in shorter answers."""

from __future__ import annotations

import pytest

from caesar_server.blueprints.research.agents.highlights import highlights
from caesar_server.contract import ChoiceFinished, Completed, ContentDelta, ResultFound
from caesar_server.contract.errors import BackendError
from caesar_server.testing import Gate

ANSWER = "Traps [1] and qubits [2]."
IONS = {"id": "ions", "title": "Ion traps", "url": "https://ions.example/a", "citation_index": 1}
QUBITS = {"id": "qubits", "title": "Qubits", "url": "https://qubits.example/b", "citation_index": 2}
OTHER = {"id": "other", "title": "Other", "url": "https://other.example/c", "citation_index": 3}
SAID = (ContentDelta("Slow "), ContentDelta("[1]."), ChoiceFinished(), Completed())


def begin(served, query="noisy qubits?", *, headers=None, **body):
    path = "/agents/research"
    return served.client.post(path, json={"query": query, **body}, headers=headers)


def research(served, query="noisy qubits?"):
    job_id = begin(served, query).get_json()["id"]
    served.ended(job_id)
    return job_id


def test_a_job_is_begun_and_polled(serve):
    served = serve()
    made = begin(served, reasoning_mode=True, exclude_social=True, excluded_domains=["x.org"])
    assert (made.status_code, set(made.get_json())) == (200, {"id", "status"})
    job_id = made.get_json()["id"]
    assert made.get_json()["status"] == "queued"
    served.ended(job_id)
    polled = served.client.get(f"/agents/research/{job_id}")
    assert polled.get_json() == {
        "status": "completed",
        "query": "noisy qubits?",
        "content": ANSWER,
    }
    parameters = served.backend.script.requests[0].parameters
    assert (parameters.reasoning_mode, parameters.exclude_social) == (True, True)
    assert parameters.excluded_domains == ("x.org",)
    # one job, two views of it
    assert served.client.get(f"/research/{job_id}").get_json()["content"] == ANSWER


def test_while_it_runs_there_is_no_content_and_after_a_failure_a_reason(serve):
    served = serve()
    gate = Gate()
    served.stage.steps["research"] = (ContentDelta("half"), gate, BackendError("Out of luck"))
    job_id = begin(served).get_json()["id"]
    path = f"/agents/research/{job_id}"
    gate.wait_until_reached()
    assert served.client.get(path).get_json()["content"] is None
    gate.open()
    served.ended(job_id)
    assert served.client.get(path).get_json() == {
        "status": "failed",
        "query": "noisy qubits?",
        "content": None,
        "error": "Out of luck",
    }


def test_a_job_can_be_followed_at_once(serve):
    served = serve()
    with served.live().post("/agents/research?stream=true", {"query": "q"}) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        path = response.headers["Content-Location"]
        *events, last = response.frames()
    (job,) = served.store.jobs()
    assert path == f"/agents/research/{job.id}"
    assert all(set(event) == {"message", "created_at"} for event in events)
    assert events
    assert last == {"status": "completed", "id": job.id}


@pytest.mark.parametrize("value", ["yes", "", "2", "tru"])
def test_a_flag_is_true_or_false(serve, value):
    served = serve()
    job_id = research(served)
    runs = served.backend.script.runs
    for method, path, flag in (
        ("POST", "/agents/research", "stream"),
        ("POST", f"/agents/research/{job_id}/chat", "stream"),
        ("GET", f"/agents/research/{job_id}/results", "citations_only"),
        ("GET", f"/agents/research/{job_id}/results/ions", "with_highlights"),
    ):
        refused = served.client.open(
            f"{path}?{flag}={value}", method=method, json={"query": "q", "content": "c"}
        )
        assert refused.status_code == 400
        assert refused.get_json() == {"error": f"{flag}: expected true or false, got '{value}'"}
        refused = served.client.open(
            f"{path}?{flag}=false&{flag}=true", method=method, json={"query": "q", "content": "c"}
        )
        assert refused.status_code == 400
        assert refused.get_json() == {"error": f"{flag}: expected one value, got 2"}
    assert served.backend.script.runs == runs


@pytest.mark.parametrize(
    ("value", "cited"),
    [("true", True), ("1", True), ("True", True), ("false", False), ("0", False)],
)
def test_results_are_a_bare_array(serve, value, cited):
    served = serve()
    found = ResultFound("u", "U", "https://u.example")
    served.stage.steps["research"] = (found, *served.stage.steps["research"])
    job_id = research(served)
    path = f"/agents/research/{job_id}/results"
    uncited = {"id": "u", "title": "U", "url": "https://u.example"}
    every = [IONS, QUBITS, OTHER, uncited]
    assert served.client.get(path).get_json() == every
    answer = served.client.get(f"{path}?citations_only={value}").get_json()
    assert answer == (every[:3] if cited else every)


def test_one_result_with_what_is_asked_for(serve):
    served = serve()
    job_id = research(served)
    path = f"/agents/research/{job_id}/results/qubits"

    def get(query=""):
        return served.client.get(path + query).get_json()

    plain = {name: value for name, value in QUBITS.items() if name != "id"}
    text = "Qubits are noisy. Codes help noisy qubits. Costs are 3.5 M."
    assert get() == plain
    assert get("?format=markdown") == {**plain, "content": text}
    # nothing was stored in that form
    assert get("?format=raw") == {**plain, "content": text}
    assert get("?with_highlights=true") == {
        **plain,
        "highlights": ["Qubits are noisy.", "Codes help noisy qubits."],
    }
    assert set(get("?with_highlights=1&format=raw")) == {*plain, "highlights", "content"}
    assert served.client.get(f"{path}?format=html").status_code == 400
    nowhere = served.client.get(f"/agents/research/{job_id}/results/none")
    assert (nowhere.status_code, nowhere.get_json()) == (404, {"error": "Resource not found"})


def test_a_result_of_which_nothing_was_stored(serve):
    served = serve()
    found = ResultFound("https://u.example/a?b", "U", "https://u.example/a?b")
    served.stage.steps["research"] = (found, ContentDelta("a"), ChoiceFinished(), Completed())
    job_id = research(served)
    path = f"/agents/research/{job_id}/results/https://u.example/a%3Fb"
    answer = served.client.get(f"{path}?format=markdown&with_highlights=true")
    assert answer.get_json() == {"title": "U", "url": "https://u.example/a?b", "highlights": []}


def test_a_running_job_is_steered(serve):
    served = serve()
    gate = Gate()
    seen = []
    served.stage.steps["research"] = (
        gate,
        lambda context: seen.extend(update.content for update in context.updates()),
        *SAID,
    )
    job_id = begin(served).get_json()["id"]
    gate.wait_until_reached()
    path = f"/agents/research/{job_id}/updates"
    made = served.client.post(path, json={"update_content": "Europe only"})
    assert made.status_code == 200
    (update,) = served.client.get(f"/research/{job_id}/updates").get_json()
    assert made.get_json() == {"created_at": update["created_at"]}
    gate.open()
    served.ended(job_id)
    assert seen == ["Europe only"]
    assert served.client.post(path, json={"update_content": "Late"}).status_code == 400
    assert served.client.post(path, json={}).status_code == 400


def test_a_follow_up_in_few_words(serve):
    served = serve()
    gate = Gate()
    served.stage.steps["follow_up"] = (gate, *SAID)
    job_id = research(served)
    path = f"/agents/research/{job_id}/chat"
    made = served.client.post(path, json={"content": "Why?"})
    message_id = made.get_json()["id"]
    assert made.get_json() == {
        "id": message_id,
        "content": "",
        "status": "processing",
        "error_message": None,
        "results": None,
    }
    polled = served.client.get(f"{path}/{message_id}")
    assert polled.status_code == 202
    assert polled.get_json() == {"status": "processing", "content": "", "results": None}
    gate.open()
    served.ended(message_id)
    polled = served.client.get(f"{path}/{message_id}")
    assert polled.status_code == 200
    assert polled.get_json() == {"status": "completed", "content": "Slow [1].", "results": [IONS]}
    # the other family's message
    native = served.client.get(f"/research/{job_id}/chat/{message_id}").get_json()
    assert native["content"] == "Slow [1]."


def test_a_follow_up_as_a_stream_is_the_same_when_it_is_asked_and_later(serve):
    served = serve()
    served.stage.steps["follow_up"] = SAID
    job_id = research(served)
    path = f"/agents/research/{job_id}/chat"
    frames = served.live().post(f"{path}?stream=true", {"content": "Why?"}).frames()
    message_id = frames[0]["id"]
    assert [frame["choices"][0]["delta"].get("content") for frame in frames] == [
        "Slow ",
        "[1].",
        None,
    ]
    assert frames[-1]["results"] == [IONS]
    assert served.live().get(f"{path}/{message_id}/stream").frames() == frames


def test_an_account_has_the_same_limits_here(serve, make_key):
    key, other = make_key(), make_key("other")
    served = serve(keys=True, account_jobs_in_progress=1)
    gate = Gate()
    served.stage.steps["research"] = (gate, *SAID)
    made = begin(served, headers=key)
    assert made.headers["x-ratelimit-remaining-jobs"] == "0"
    job_id = made.get_json()["id"]
    refused = begin(served, headers=key)
    assert refused.status_code == 429
    assert refused.get_json() == {"error": "Too many requests - rate limit exceeded."}
    with served.live(headers=key).post("/agents/research?stream=1", {"query": "q"}) as response:
        assert response.status == 429
    gate.open()
    served.ended(job_id)
    for path in ("", "/results", "/results/ions"):
        full = f"/agents/research/{job_id}{path}"
        assert served.client.get(full, headers=other).status_code == 404, path
    chat = f"/agents/research/{job_id}/chat"
    assert served.client.post(chat, json={"content": "?"}, headers=other).status_code == 404
    update = {"update_content": "u"}
    full = f"/agents/research/{job_id}/updates"
    assert served.client.post(full, json=update, headers=other).status_code == 404


OPEN = ("/agents/auth", "/agents/auth/confirm", "/x402/research")
WITH_KEY = ("/agents/balance", "/agents/topup")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_nothing_is_sold(serve, make_key, method):
    key = make_key()
    served = serve(keys=True)
    for path in (*OPEN, *WITH_KEY):
        answer = served.client.open(path, method=method, json={}, headers=key)
        assert answer.status_code == 404
        assert "caesar-server keys create" in answer.get_json()["error"]
        # who asks for a key has none; who asks for a balance has
        without = served.client.open(path, method=method, json={})
        assert without.status_code == (404 if path in OPEN else 401), path


TEXT = """
# Noisy qubits

Qubits are noisy. They cost 3.5 M. Noisy qubits are corrected by codes!
Nothing here. Are qubits noisy? Noise is everywhere.
"""


def test_highlights_are_the_sentences_that_share_most_words():
    assert highlights(TEXT, "noisy qubits corrected?") == [
        "# Noisy qubits",
        "Qubits are noisy.",
        "Noisy qubits are corrected by codes!",
    ]
    assert highlights(TEXT, "of no") == []
    assert highlights("", "qubits") == []
    assert highlights("Costs 3.5 M in a.b.example. So.", "costs") == ["Costs 3.5 M in a.b.example."]


def test_highlights_of_a_page_are_what_a_reader_sees():
    page = (
        "<html><style>p {qubits: 1}</style><!-- qubits --><p>Qubits &amp; <b>ions</b>.</p>"
        "<SCRIPT>qubits()</SCRIPT ><p>1 < 2 qubits</p><script>qubits"
    )
    assert highlights(page, "qubits") == ["Qubits & ions .", "1 < 2 qubits"]


def test_highlights_are_short_and_quickly_found():
    assert [len(one) for one in highlights("qubits " * 1000, "qubits")] == [500]
    # each of these would take minutes if it were looked at again from every start
    for hostile in ("<script" * 140_000, "<a " * 300_000, "<!--" * 250_000, "\n \n" * 300_000):
        assert highlights(hostile, "qubits") == []
