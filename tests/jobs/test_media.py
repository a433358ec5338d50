"""Images and audio in chats, for backends that take them, and for nobody else."""

from __future__ import annotations

import pytest

from caesar_server.contract import (
    Audio,
    Capabilities,
    ChatRequest,
    Image,
    InvalidRequestError,
    Message,
    Part,
    ResearchRequest,
)
from caesar_server.contract.request import request_from_json
from caesar_server.jobs.adapt import fit
from caesar_server.jobs.files.inlining import inlined
from caesar_server.store.base import Job
from caesar_server.store.in_memory.sizes import size_of_job

IMAGE = Part(image=Image(url="data:image/png;base64,AAAA"))
AUDIO = Part(audio=Audio(data="AAAA", format="mp3"))


def chat(*parts: Part) -> ChatRequest:
    """Return a chat with these parts in its second message and a question after it."""
    question = Message(role="user", parts=(Part(text="Well?"),))
    looked_at = Message(role="user", parts=parts)
    return ChatRequest(messages=(Message(role="assistant"), looked_at, question))


def able(*accepts: str, **more: object) -> Capabilities:
    return Capabilities(accepts=frozenset(accepts), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("part", "name"), [(IMAGE, "images"), (AUDIO, "audio")])
@pytest.mark.parametrize(
    "capabilities",
    [
        able("chat"),
        able("chat", images=True),
        able("chat", audio=True),
        able("completion", images=True, audio=True),
        able("research", images=True, audio=True),
        able("completion"),
        able("research"),
    ],
)
def test_they_are_refused_where_they_would_be_lost(part, name, capabilities) -> None:
    request = chat(Part(text="This"), part)
    if "chat" in capabilities.accepts and getattr(capabilities, name):
        assert fit(request, capabilities, "b") is request
        return
    with pytest.raises(InvalidRequestError, match=f"'b' does not take {name}") as caught:
        fit(request, capabilities, "b")
    assert caught.value.param == "messages[1].content[1]"
    assert "AAAA" not in str(caught.value)


@pytest.mark.parametrize("accepts", ["chat", "completion", "research"])
def test_a_backend_may_say_that_it_passes_them_over(accepts: str) -> None:
    ignores = frozenset({"images", "audio"})
    fitted = fit(chat(Part(text="This"), IMAGE, AUDIO), able(accepts, ignores=ignores), "b")
    assert fitted.type == accepts


class File:
    id, name, content_type, size = "f", "a.txt", "text/plain", 5


def test_the_text_of_a_file_takes_no_image_away() -> None:
    request = chat(Part(file_id="f"), IMAGE)
    found = inlined(request, able("chat", images=True), "b", [File()], lambda file: b"Hello")
    assert isinstance(found, ChatRequest)
    assert [part for _, part in found.media] == [IMAGE]


def test_beside_a_file_an_image_is_refused_in_its_own_place() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        inlined(chat(Part(file_id="f"), IMAGE), able("chat"), "b", [File()], lambda file: b"Hello")
    assert caught.value.param == "messages[1].content[1]"


def test_a_request_from_before_they_were_there_is_read() -> None:
    part = {"text": "Hi", "file_id": None, "filename": None}
    stored = {"type": "chat", "messages": [{"role": "user", "parts": [part]}]}
    assert request_from_json(stored) == ChatRequest(
        messages=(Message(role="user", parts=(Part(text="Hi"),)),)
    )


def test_a_job_takes_as_much_memory_as_its_images() -> None:
    def size(part: Part) -> int:
        job = Job(id="j", model="m", backend="b", request=chat(part), created_at=0.0)
        return size_of_job(job, ())

    large = "A" * 1_000_000
    assert size(Part(image=Image(url=f"data:,{large}"))) > 1_000_000
    assert size(Part(audio=Audio(data=large, format="wav"))) > 1_000_000
    assert size(Part(text="short")) < 10_000


def test_other_kinds_have_none() -> None:
    request = ResearchRequest(query="Why?")
    assert fit(request, able("research"), "b") is request
