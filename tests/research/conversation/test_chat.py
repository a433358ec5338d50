"""Follow-up questions about a completed job: asked, polled, listed."""

from __future__ import annotations

import uuid
from datetime import datetime

import pytest

from caesar_server.blueprints.research.chat import routes
from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    FollowUpRequest,
    LoopFinished,
    Message,
    Part,
    ResultFound,
    Source,
)
from caesar_server.contract.errors import BackendError
from caesar_server.testing import Gate
from caesar_server.web.services import services_of

ANSWER = "Traps [1] and qubits [2]."
IONS = {"id": "ions", "title": "Ion traps", "url": "https://ions.example/a", "citation_index": 1}
QUBITS = {"id": "qubits", "title": "Qubits", "url": "https://qubits.example/b", "citation_index": 2}


def said(*texts, found=()):
    return (*found, *map(ContentDelta, texts), ChoiceFinished(), Completed())


def poll(served, job_id, message_id, **kw):
    return served.client.get(f"/research/{job_id}/chat/{message_id}", **kw)


def history(served, job_id, **kw):
    return served.client.get(f"/research/{job_id}/chat", **kw).get_json()["data"]


def test_an_answer_is_made_and_polled(serve):
    served = serve()
    gate = Gate()
    served.stage.steps["follow_up"] = (ContentDelta("It is"), gate, *said(" noisy [2]."))
    job_id = served.research()

    made = served.ask(job_id, "Why?", snippets=["noisy"], excluded_domains=["X.org"])
    message_id = made["id"]
    uuid.UUID(message_id)
    moment = made["created_at"]
    assert datetime.fromisoformat(moment).tzinfo is not None
    processing = {
        "id": message_id,
        "role": "assistant",
        "content": "",
        "snippets": ["noisy"],
        "status": "processing",
        "created_at": moment,
        "updated_at": moment,
        "account_id": None,
        "ask_id": job_id,
        "error_message": None,
        "results": None,
    }
    assert made == processing

    gate.wait_until_reached()
    polled = poll(served, job_id, message_id)
    assert (polled.status_code, polled.get_json()) == (202, processing)

    gate.open()
    served.ended(message_id)
    polled = poll(served, job_id, message_id)
    assert polled.status_code == 200
    answer = polled.get_json()
    assert answer.pop("updated_at") >= moment
    del processing["updated_at"]
    assert answer == {
        **processing,
        "content": "It is noisy [2].",
        "status": "completed",
        "results": [QUBITS],
    }


def test_ids_in_capitals_are_the_same(serve):
    served = serve()
    served.stage.steps |= {
        "follow_up": said("so"),
        "brainstorm": (Completed({"questions": ({"question": "?", "options": ["a"]},)}),),
    }
    session = served.client.post("/research/brainstorm", json={"query": "q"}).get_json()["id"]
    job_id = served.research(brainstorm_session_id=session.upper())
    assert served.store.session_job(session) == job_id
    answer = served.asked(job_id.upper())
    assert answer["ask_id"] == job_id
    for message in history(served, job_id.upper()):
        found = poll(served, job_id.upper(), message["id"].upper())
        assert (found.status_code, found.get_json()) == (200, message)
        path = f"/agents/research/{job_id.upper()}/chat/{message['id'].upper()}"
        assert served.client.get(path).status_code == 200
    assert served.client.get(f"/research/{job_id.upper()}").get_json()["id"] == job_id
    assert served.client.get(f"/agents/research/{job_id.upper()}").status_code == 200
    assert served.client.get(f"/research/{job_id.upper()}/events").get_json()
    gone = served.client.delete(f"/research/{job_id.upper()}")
    assert gone.get_json() == {"id": job_id, "deleted": True}


def test_the_backend_is_told_what_the_question_stands_on(serve):
    served = serve()
    served.stage.steps["follow_up"] = lambda request: said(f"about {request.content}")
    job_id = served.research()
    served.asked(job_id, "one")
    served.asked(job_id, "two", snippets=["a", "b"], excluded_domains=["X.org", "x.org"])
    asked = served.backend.script.requests[-1]
    assert asked == FollowUpRequest(
        content="two",
        query="qubits?",
        answer=ANSWER,
        sources=(
            Source(**IONS, markdown="Ion traps are slow."),
            Source(
                **QUBITS,
                markdown="Qubits are noisy. Codes help noisy qubits. Costs are 3.5 M.",
            ),
            # not cited: known, but without its text
            Source(id="other", title="Other", url="https://other.example/c", citation_index=3),
        ),
        history=(
            Message(role="user", parts=(Part(text="one"),)),
            Message(role="assistant", parts=(Part(text="about one"),)),
        ),
        snippets=("a", "b"),
        excluded_domains=("x.org",),
    )


@pytest.mark.parametrize("model", [None, "gpt-5.2"])
def test_the_model_that_wrote_the_answer_writes_on(serve, model):
    served = serve()
    served.stage.steps["follow_up"] = said("yes")
    served.asked(served.research(**({"model": model} if model else {})))
    assert served.backend.script.requests[-1].synthesis_model == model


def test_only_the_last_ten_questions_go_along_and_only_the_answered_ones(serve):
    served = serve()
    job_id = served.research()
    served.stage.steps["follow_up"] = lambda request: (
        said(f"a{request.content}") if request.content != "7" else [BackendError("no")]
    )
    for number in range(12):
        served.asked(job_id, str(number))
    served.asked(job_id, "last")
    texts = [message.text for message in served.backend.script.requests[-1].history]
    remembered = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    assert texts == [text for number in remembered for text in (f"{number}", f"a{number}")]


def test_the_text_of_sources_is_bounded(serve, monkeypatch):
    background = "caesar_server.blueprints.research.chat.background"
    monkeypatch.setattr(f"{background}.SOURCE_CHARACTERS", 12)
    monkeypatch.setattr(f"{background}.ALL_SOURCES_CHARACTERS", 18)
    served = serve()
    served.stage.steps["follow_up"] = said("yes")
    served.asked(served.research())
    sources = served.backend.script.requests[-1].sources
    assert [source.markdown for source in sources] == ["Ion traps ar", "Qubits", None]


def test_what_it_found_itself_counts_before_what_the_job_had_found(serve):
    served = serve()
    own = ResultFound("new", "New", "https://new.example", citation_index=2)
    uncited = ResultFound("u", "U", "https://u.example", citation_index=9)
    text = "See [10], [2], [1][2] and [0]."
    served.stage.steps["follow_up"] = said(text, found=(own, uncited))
    answer = served.asked(served.research())
    new = {"id": "new", "title": "New", "url": "https://new.example", "citation_index": 2}
    assert answer["content"] == text
    assert answer["results"] == [IONS, new]


def test_an_answer_without_citations_has_no_results(serve):
    served = serve()
    served.stage.steps["follow_up"] = said("No idea.")
    assert served.asked(served.research())["results"] == []


def test_a_failed_answer_says_why(serve):
    served = serve()
    served.stage.steps["follow_up"] = (ContentDelta("half"), BackendError("No more tokens"))
    job_id = served.research()
    answer = served.asked(job_id)
    assert (answer["status"], answer["content"], answer["results"]) == ("failed", "", None)
    assert answer["error_message"] == "No more tokens"
    assert "error" not in answer
    assert history(served, job_id)[0] == answer


def test_the_history_is_newest_first_with_both_sides(serve):
    served = serve()
    served.stage.steps["follow_up"] = lambda request: said(f"re {request.content} [1]")
    job_id, other_id = served.research(), served.research()
    assert history(served, job_id) == []
    first, second = served.asked(job_id, "one", snippets=["s"]), served.asked(job_id, "two")
    served.asked(other_id, "elsewhere")
    messages = history(served, job_id)
    assert [(one["role"], one["content"]) for one in messages] == [
        ("assistant", "re two [1]"),
        ("user", "two"),
        ("assistant", "re one [1]"),
        ("user", "one"),
    ]
    assert (messages[0], messages[2]) == (second, first)
    user = messages[3]
    assert user == {
        **first,
        "id": user["id"],
        "role": "user",
        "content": "one",
        "snippets": ["s"],
        "updated_at": first["created_at"],
        "results": None,
    }
    assert len({one["id"] for one in messages}) == 4
    # a message is found by the id that the history gave it
    for one in messages:
        polled = poll(served, job_id, one["id"])
        assert (polled.status_code, polled.get_json()) == (200, one)


def test_the_history_has_the_newest_messages_alone(serve, monkeypatch):
    monkeypatch.setattr("caesar_server.blueprints.research.chat.messages.MOST_QUESTIONS", 2)
    served = serve()
    served.stage.steps["follow_up"] = said("yes")
    job_id = served.research()
    for number in range(3):
        served.asked(job_id, str(number))
    assert [one["content"] for one in history(served, job_id)] == ["yes", "2", "yes", "1"]


def test_a_long_history_is_read_a_few_questions_at_a_time(serve, monkeypatch):
    served = serve()
    served.stage.steps["follow_up"] = said("yes")
    job_id = served.research()
    for number in range(12):
        served.asked(job_id, str(number))
    store = services_of(served.app).store
    read, pages = store.jobs, []

    def jobs(**asked):
        found = read(**asked)
        pages.append(len(found))
        return found

    monkeypatch.setattr(store, "jobs", jobs)
    newest = [str(number) for number in reversed(range(12))]
    assert [one["content"] for one in history(served, job_id)[1::2]] == newest
    assert pages == [5, 5, 2]


def test_a_history_is_no_longer_than_it_may_be(serve):
    """Whoever asks with long passages must not get them all at once, each of them twice."""
    served = serve()
    served.stage.steps["follow_up"] = said("yes")
    job_id = served.research()
    served.asked(job_id, "oldest")
    for number in range(4):
        served.asked(job_id, str(number), snippets=["x" * 700_000])
    assert [one["content"] for one in history(served, job_id)[1::2]] == ["3", "2", "1"]
    # one that is too long by itself is there all the same
    served.asked(job_id, "long", snippets=["x" * 3_000_000])
    assert [one["content"] for one in history(served, job_id)] == ["yes", "long"]


def test_follow_ups_are_no_research_jobs(serve):
    served = serve()
    served.stage.steps["follow_up"] = said("yes")
    job_id = served.research()
    message = served.asked(job_id)
    listed = served.client.get("/research").get_json()
    assert [job["id"] for job in listed["data"]] == [job_id]
    assert listed["pagination"]["total"] == 1
    assert served.client.get(f"/research/{message['id']}").status_code == 404
    # nor can they be asked about
    made = served.client.post(f"/research/{message['id']}/chat", json={"content": "?"})
    assert made.status_code == 404


def test_a_job_that_is_not_completed_cannot_be_asked_about(serve):
    served = serve()
    gate = Gate()
    served.stage.steps["research"] = (gate, BackendError("Out of luck"))
    job_id = served.client.post("/research", json={"query": "q"}).get_json()["id"]
    gate.wait_until_reached()
    path = f"/research/{job_id}/chat"
    refused = served.client.post(path, json={"content": "?"})
    assert refused.status_code == 400
    assert refused.get_json() == {
        "error": "The job is not completed but queued: ask about its answer once there is one"
    }
    gate.open()
    served.ended(job_id)
    refused = served.client.post(path, json={"content": "?"})
    assert refused.status_code == 400
    assert "The job has failed" in refused.get_json()["error"]
    assert served.client.get(path).get_json() == {"data": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "content"),
        ({"content": " "}, "content"),
        ({"content": 1}, "content"),
        ({"content": "?", "snippets": "s"}, "snippets"),
        ({"content": "?", "snippets": [1]}, "snippets"),
        ({"content": "?", "excluded_domains": ["http://x.org/"]}, "excluded_domains"),
    ],
)
def test_a_wrong_body_is_400_and_nothing_is_asked(serve, body, field):
    served = serve()
    job_id = served.research()
    refused = served.client.post(f"/research/{job_id}/chat", json=body)
    assert refused.status_code == 400
    assert field in refused.get_json()["error"]
    assert history(served, job_id) == []


def test_unknown_messages_and_jobs_are_404(serve):
    served = serve()
    served.stage.steps["follow_up"] = said("yes")
    job_id, other_id = served.research(), served.research()
    message_id = served.asked(job_id)["id"]
    for place in (job_id, "nonsense", str(uuid.uuid4())):
        for message in ("nonsense", str(uuid.uuid4()), job_id, f"{{{message_id}}}"):
            for end in ("", "/stream"):
                path = f"/research/{place}/chat/{message}{end}"
                answer = served.client.get(path)
                assert (answer.status_code, answer.get_json()) == (
                    404,
                    {"error": "Resource not found"},
                ), path
    # known, but of another job
    assert poll(served, other_id, message_id).status_code == 404
    nowhere = f"/research/{uuid.uuid4()}/chat"
    assert served.client.get(nowhere).status_code == 404
    assert served.client.post(nowhere, json={"content": "?"}).status_code == 404


def test_a_job_takes_its_chat_along(serve):
    served = serve()
    served.stage.steps["follow_up"] = said("yes")
    job_id = served.research()
    message_id = served.asked(job_id)["id"]
    assert served.client.delete(f"/research/{job_id}").status_code == 200
    assert served.client.get(f"/research/{job_id}/chat").status_code == 404
    assert poll(served, job_id, message_id).status_code == 404
    assert not served.store.jobs()


def test_an_account_sees_its_own_chats_alone(serve, make_key):
    ours, theirs = make_key("ours"), make_key("theirs")
    served = serve(keys=True)
    served.stage.steps["follow_up"] = said("yes")
    job_id = served.research(headers=ours)
    message = served.asked(job_id, headers=ours)
    assert message["account_id"] == str(uuid.uuid5(uuid.NAMESPACE_OID, "ours"))
    user_id = history(served, job_id, headers=ours)[1]["id"]
    chat = f"/research/{job_id}/chat"
    for path in (chat, f"{chat}/{message['id']}", f"{chat}/{user_id}"):
        assert served.client.get(path, headers=theirs).status_code == 404
        assert served.client.get(path, headers=ours).status_code == 200
    assert served.client.get(f"{chat}/{message['id']}/stream", headers=theirs).status_code == 404
    asked = served.client.post(chat, json={"content": "?"}, headers=theirs)
    assert asked.status_code == 404


def test_follow_ups_count_against_no_limit_of_the_account(serve, make_key):
    key = make_key()
    served = serve(keys=True, account_jobs_in_progress=1, account_loops_per_month=1)
    gate = Gate()
    served.stage.steps["follow_up"] = (gate, *said("yes"))
    job_id = served.research(headers=key)  # which used up the month's loop
    messages = [served.ask(job_id, headers=key) for _ in range(3)]
    gate.open()
    for message in messages:
        assert served.ended(message["id"]).status == "completed"
    assert served.client.post("/research", json={"query": "q"}, headers=key).status_code == 429


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_loops_of_a_follow_up_are_free(serve, make_key, store):
    key = make_key()
    served = serve(keys=True, store=store, account_loops_per_month=2)
    served.stage.steps["follow_up"] = (LoopFinished(5), *said("yes"))
    job_id = served.research(headers=key)
    assert served.asked(job_id, headers=key)["status"] == "completed"
    served.research(headers=key)  # the month's second loop
    assert served.client.post("/research", json={"query": "q"}, headers=key).status_code == 429


@pytest.mark.parametrize("accepts", [("completion", "follow_up"), ("chat", "follow_up")])
def test_an_openai_answer_can_be_asked_about(serve, accepts):
    served = serve(accepts=accepts)
    served.stage.steps |= dict.fromkeys(("completion", "chat"), said("Because [1]."))
    served.stage.steps["follow_up"] = said("Indeed.")
    body = {"model": "caesar-research", "prompt": "Why?"}
    job_id = served.client.post("/compat/completions", json=body).get_json()["id"]
    assert served.asked(job_id)["content"] == "Indeed."
    asked = served.backend.script.requests[-1]
    assert (asked.query, asked.answer) == ("Why?", "Because [1].")


def test_a_question_that_is_sent_again_is_asked_once(serve):
    served = serve()
    gate = Gate()
    served.stage.steps["follow_up"] = (gate, *said("yes"))
    job_id, other_id = served.research(), served.research()
    first = served.ask(job_id)
    again = {"x-stainless-retry-count": "1"}
    assert served.ask(job_id, headers=again) == first
    assert served.ask(job_id)["id"] != first["id"]  # asked anew
    assert served.ask(other_id, headers=again)["id"] != first["id"]
    gate.open()
    for job in served.store.jobs():
        served.ended(job.id)


def test_an_unknown_field_is_refused_where_that_is_wanted(serve):
    served = serve(unknown_fields="reject")
    job_id = served.research()
    refused = served.client.post(f"/research/{job_id}/chat", json={"content": "?", "n": 2})
    assert refused.status_code == 400
    assert "n" in refused.get_json()["error"]


def test_a_chat_outlives_its_process(serve):
    served = serve(store="sqlite")
    served.stage.steps["follow_up"] = said("yes [1]")
    job_id = served.research()
    message = served.asked(job_id)
    served.parts.close()
    later = serve(store="sqlite")
    assert poll(later, job_id, message["id"]).get_json() == message
    assert len(history(later, job_id)) == 2


def test_an_answer_that_cannot_be_shown_is_not_to_be_begun_again(serve, monkeypatch):
    served = serve()
    served.stage.steps["follow_up"] = said("It is.")
    job_id = served.research()

    def break_off(*_: object) -> None:
        raise ZeroDivisionError("secret")

    with monkeypatch.context() as broken:
        broken.setattr(routes, "read_message", break_off)
        path = f"/research/{job_id}/chat"
        refused = served.client.post(path, json={"content": 5})
        assert (refused.status_code, refused.headers.get("x-should-retry")) == (400, None)
        failed = served.client.post(path, json={"content": "Why?"})
        assert (failed.status_code, failed.headers.get("x-should-retry")) == (500, "false")
        assert "secret" not in failed.text
    answer, asked = history(served, job_id)
    assert asked["content"] == "Why?"
    assert served.ended(answer["id"]).status == "completed"
