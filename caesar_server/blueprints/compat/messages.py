"""Chat messages: roles, and parts that are text, files, images or audio."""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields

from caesar_server.blueprints.compat import json_schemas
from caesar_server.contract.request import Audio, Image, Message, Part
from caesar_server.web.fields import shown, wrong
from caesar_server.web.framework.ids import plain_id

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

#: What OpenAI's messages have, and ``reasoning_content``: clients send answers back as they came.
MESSAGE_MEMBERS = frozenset(
    {
        *("role", "content", "name", "reasoning_content"),
        *("tool_calls", "tool_call_id", "function_call", "refusal", "audio", "annotations"),
    }
)
_FILE_KEYS = ("file_id", "fileData", "file_data")
#: The members of a part that are objects, and what these have.
NESTED_MEMBERS: Mapping[str, frozenset[str]] = {
    "file": frozenset({*_FILE_KEYS, "filename"}),
    "image_url": frozenset({"url", "detail"}),
    "input_audio": frozenset({"data", "format"}),
}
PART_MEMBERS = frozenset({"type", "text", "refusal", *NESTED_MEMBERS})
DETAILS = ("auto", "low", "high")
AUDIO_FORMATS = ("wav", "mp3")
_URL_STARTS = ("http://", "https://", "data:")
#: Far more than an id has; base64 has more.
_MAX_ID_CHARS = 128


class MessageField(fields.Field[Any]):
    """One message of a chat.  Returns a :class:`~caesar_server.contract.Message`."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(metadata=json_schemas.MESSAGE, **kw)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> Message:
        if not isinstance(value, dict):
            raise wrong("an object with role and content", value)
        role = value.get("role")
        if role not in ROLES:
            raise ValidationError({"role": wrong(f"one of {', '.join(ROLES)}", role).messages})
        name = value.get("name")
        if name is not None and not isinstance(name, str):
            raise ValidationError({"name": wrong("a string", name).messages})
        known = ("role", "content", "name")
        return Message(
            role=role,
            parts=_parts(value.get("content"), role),
            name=name,
            extra={k: item for k, item in value.items() if k not in known and item is not None},
        )


def _parts(content: Any, role: str) -> tuple[Part, ...]:
    if content is None and role in ("assistant", "tool", "function"):
        return ()
    if isinstance(content, str):
        return (Part(text=content),)
    if not isinstance(content, list) or not content:
        problem = wrong("a string or a non-empty array of parts", content)
        raise ValidationError({"content": problem.messages})
    return tuple(_part(part, index, role) for index, part in enumerate(content))


def _part(part: Any, index: int, role: str) -> Part:
    try:
        return _read_part(part, role)
    except ValidationError as error:
        raise ValidationError({"content": {index: error.messages}}) from None


def _read_part(part: Any, role: str) -> Part:
    if not isinstance(part, dict):
        raise wrong("an object with a type", part)
    kind = part.get("type")
    # what was refused before is what was said before
    if kind == "text" or (kind == "refusal" and role == "assistant"):
        text = part.get(kind)
        if not isinstance(text, str):
            raise ValidationError({kind: wrong("a string", text).messages})
        return Part(text=text)
    if kind == "file":
        return _file_part(part.get("file"))
    if role == "user" and kind == "image_url":
        return _image_part(part.get(kind))
    if role == "user" and kind == "input_audio":
        return _audio_part(part.get(kind))
    known = "'text', 'image_url', 'input_audio'" if role == "user" else "'text'"
    raise ValidationError({"type": [f"expected {known} or 'file', got {shown(kind)}"]})


def _file_part(file: Any) -> Part:
    if not isinstance(file, dict):
        raise ValidationError({"file": wrong("an object with file_id", file).messages})
    given = [key for key in _FILE_KEYS if file.get(key) is not None]
    if any(file[key] != file[given[0]] for key in given):
        raise ValidationError({"file": [f"expected one id, got {' and '.join(given)} that differ"]})
    key = given[0] if given else "file_id"
    file_id, filename = file.get(key), file.get("filename")
    if not isinstance(file_id, str) or not file_id:
        raise ValidationError(
            {"file": {key: wrong("the id of an uploaded file", file_id).messages}}
        )
    if len(file_id) > _MAX_ID_CHARS or ":" in file_id or "/" in file_id:
        raise ValidationError(
            {
                "file": {
                    key: [
                        f"expected the id of an uploaded file, got {shown(file_id)}: base64 and "
                        "URLs are not read; upload the file with POST /research/files and give the "
                        "id that it returns"
                    ]
                }
            }
        )
    if filename is not None and not isinstance(filename, str):
        raise ValidationError({"file": {"filename": wrong("a string", filename).messages}})
    return Part(file_id=plain_id(file_id), filename=filename)


def _image_part(image: Any) -> Part:
    if not isinstance(image, dict):
        raise ValidationError({"image_url": _unlike("an object with url", image)})
    url, detail = image.get("url"), image.get("detail")
    if not isinstance(url, str) or not url[:8].lower().startswith(_URL_STARTS):
        expected = "a URL that begins with http://, https:// or data:"
        raise ValidationError({"image_url": {"url": _unlike(expected, url)}})
    if detail is not None and detail not in DETAILS:
        problem = wrong(f"one of {', '.join(DETAILS)}", detail)
        raise ValidationError({"image_url": {"detail": problem.messages}})
    return Part(image=Image(url=url, detail=detail))


def _audio_part(audio: Any) -> Part:
    if not isinstance(audio, dict):
        raise ValidationError({"input_audio": _unlike("an object with data and format", audio)})
    data, kind = audio.get("data"), audio.get("format")
    if not isinstance(data, str) or not _is_base64(data):
        raise ValidationError({"input_audio": {"data": _unlike("bytes as base64", data)}})
    if kind not in AUDIO_FORMATS:
        problem = wrong(f"one of {', '.join(AUDIO_FORMATS)}", kind)
        raise ValidationError({"input_audio": {"format": problem.messages}})
    return Part(audio=Audio(data=data, format=kind))


def _is_base64(text: str) -> bool:
    try:
        return bool(binascii.a2b_base64(text, strict_mode=True))
    except ValueError:  # also of characters beyond ASCII
        return False


def _unlike(expected: str, value: Any) -> list[str]:
    """Return what is wrong, without a text that may be somebody's picture."""
    got = f"a text of {len(value)} characters" if isinstance(value, str) else shown(value)
    return [f"expected {expected}, got {got}"]
