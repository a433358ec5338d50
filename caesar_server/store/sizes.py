"""About how much memory jobs take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from caesar_server.contract.events import ChoiceFinished, ContentDelta, UsageCounted
from caesar_server.contract.request import (
    ChatRequest,
    CompletionRequest,
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
_LARGE_FIELDS: Mapping[type, Sequence[str]] = {
    CompletionRequest: ("prompts", "sampling", "suffix", "parameters", "user", "extra"),
    ChatRequest: ("messages", "sampling", "parameters", "tools", "tool_choice", "user", "extra"),
    Message: ("parts", "name", "extra"),
    Part: ("text", "file_id", "filename"),
    Sampling: ("logit_bias", "stop"),
    ResearchParameters: ("system_prompt", "excluded_domains", "collection_ids"),
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
        # nearly all are of these kinds
        if isinstance(event, ContentDelta) and event.logprobs is None:
            size += len(event.text)
        elif not isinstance(event, (ChoiceFinished, UsageCounted)):
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
        if isinstance(item, str):
            size += len(item)
        elif (large := _LARGE_FIELDS.get(type(item))) is not None:
            left += [getattr(item, name) for name in large]
        elif isinstance(item, Mapping):
            left += item.keys()
            left += item.values()
        elif isinstance(item, (tuple, list)):
            if item and isinstance(item[0], int):  # token ids, perhaps millions
                size += _OBJECT_BYTES * len(item)
            else:
                left += item
        else:
            # the contract's dataclasses have slots; numbers have none
            left += (getattr(item, name) for name in getattr(item, "__slots__", ()))
    return size
