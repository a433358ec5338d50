"""About how much memory jobs take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from caesar_server.contract.events import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    StatusChanged,
    UsageCounted,
)
from caesar_server.contract.request import (
    Audio,
    ChatRequest,
    CompletionRequest,
    Image,
    Message,
    Part,
    ResearchParameters,
    Sampling,
)
from caesar_server.store.base import Job, Record
from caesar_server.store.updates import NumberedUpdate

#: What a record or another object takes besides its text, measured roughly.
_RECORD_BYTES = 250
_REQUEST_BYTES = 1000
_OBJECT_BYTES = 50
#: What can be large of values that are looked at for each answer; of others all fields are.
_LARGE_FIELDS: Mapping[type, Callable[[Any], Sequence[object]]] = {
    CompletionRequest: attrgetter("prompts", "sampling", "suffix", "parameters", "user", "extra"),
    ChatRequest: attrgetter(
        "messages", "sampling", "parameters", "tools", "tool_choice", "user", "extra"
    ),
    Message: attrgetter("parts", "name", "extra"),
    Part: attrgetter("text", "file_id", "filename", "image", "audio"),
    Image: attrgetter("url", "detail"),
    Audio: attrgetter("data", "format"),
    Sampling: attrgetter("logit_bias", "stop"),
    ResearchParameters: attrgetter("system_prompt", "excluded_domains", "collection_ids"),
    Completed: lambda event: (event.details,),
}


def size_of_job(job: Job, records: Sequence[Record], updates: Sequence[NumberedUpdate] = ()) -> int:
    """Return about how many bytes a job, its records and its updates take."""
    sent = _size_of(tuple(one.update for one in updates)) if updates else 0
    return _REQUEST_BYTES + _size_of(job.request) + _size_of_records(records) + sent


def _size_of_records(records: Sequence[Record]) -> int:
    """Return about how many bytes records take."""
    size = _RECORD_BYTES * len(records)
    for record in records:
        event = record.event
        # nearly all are of these four kinds
        if type(event) is ContentDelta and event.logprobs is None:
            size += len(event.text)
        elif type(event) is StatusChanged:
            size += len(event.message)
        elif type(event) is not ChoiceFinished and type(event) is not UsageCounted:
            size += _size_of(event)
    return size


def _size_of(value: object) -> int:
    """Return about how many bytes a value takes; a client may nest what it sends deeply."""
    size, left = 0, [value]
    while left:
        item = left.pop()
        if not item:
            continue
        size += _OBJECT_BYTES
        large = _LARGE_FIELDS.get(type(item))
        if large is not None:
            left += filter(None, large(item))
        elif isinstance(item, str):
            size += len(item)
        elif isinstance(item, (tuple, list)):
            if item and isinstance(item[0], int):  # token ids, perhaps millions
                size += _OBJECT_BYTES * len(item)
            else:
                left += item
        elif isinstance(item, Mapping):  # the last: whether something is one takes long to tell
            left += item.keys()
            left += item.values()
        else:
            # the contract's dataclasses have slots; numbers have none
            left += (getattr(item, name) for name in getattr(item, "__slots__", ()))
    return size
