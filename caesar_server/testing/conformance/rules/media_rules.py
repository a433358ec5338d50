"""Rules about images and audio in chats."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Iterator

from caesar_server.contract import Audio, ChatRequest, Image, Message, Part
from caesar_server.testing.conformance.questions import QUESTION
from caesar_server.testing.conformance.rule import Fail, Inapplicable, Outcome, Pass, rule
from caesar_server.testing.conformance.subject import Subject

#: A blue square of 32 by 32 pixels.
_PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAKUlEQVR42u3NQQkAAAgEsCtpSUtqCh/C"
    "YP+lek5FIBAIBAKBQCAQfAkWuMH4aieu1NoAAAAASUVORK5CYII="
)
_RATE_HZ = 8000


def _sound() -> str:
    """Return a tenth of a second of silence, as base64 of a WAV file."""
    data = io.BytesIO()
    with wave.open(data, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(_RATE_HZ)
        written.writeframes(bytes(2 * _RATE_HZ // 10))
    return base64.b64encode(data.getvalue()).decode()


def _media(subject: Subject) -> Iterator[tuple[str, Part]]:
    """Yield what a chat may have, and in which words."""
    able = subject.capabilities
    if able.images:
        yield "an image", Part(image=Image(url=f"data:image/png;base64,{_PICTURE}", detail="low"))
    if able.audio:
        yield "audio", Part(audio=Audio(data=_sound(), format="wav"))


@rule(
    "media.taken",
    "The server gives images and audio to a backend that declares them; their parts have no text.",
    needs=("run.accepts",),
)
def taken(subject: Subject) -> Outcome:
    """A chat with an image or with audio is answered, or refused with a typed error."""
    media = list(_media(subject))
    if not media:
        raise Inapplicable("it declares neither images nor audio")
    if "chat" not in subject.capabilities.accepts:
        raise Inapplicable("it takes no chats, which images and audio belong to")
    for name, part in media:
        # alone, too: such a message has no text at all
        for parts in ((Part(text=QUESTION), part), (part,)):
            run = subject.ask(ChatRequest(messages=(Message(role="user", parts=parts),)))
            if run.untyped is not None:
                return Fail(f"in a chat with {name}: {run.end}", "an answer or a BackendError")
    return Pass()
