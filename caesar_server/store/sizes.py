"""About how much memory jobs take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from caesar_server.contract.events import ChoiceFinished, ContentDelta, UsageCounted
from caesar_server.contract.request import CompletionRequest, Request
from caesar_server.store.base import Job, Record


def size_of_job(job: Job, records: Sequence[Record]) -> int:
    """Return about how many bytes a job and its records take."""
    return _request_size(job.request) + sum(map(_size, records))


#: What a record or another object takes besides its text, measured roughly.
_RECORD_BYTES = 250
_REQUEST_BYTES = 1000
_OBJECT_BYTES = 50


def _request_size(request: Request) -> int:
    """Return about how many bytes a request takes."""
    if not isinstance(request, CompletionRequest):
        return _size_of(request)
    # The usual one is looked at for each answer, and only its text and what is beyond the
    # definition can be large.
    size = _REQUEST_BYTES + len(request.suffix or "") + len(request.user or "")
    for prompt in request.prompts:
        size += _OBJECT_BYTES + (
            len(prompt) if isinstance(prompt, str) else _OBJECT_BYTES * len(prompt)
        )
    sampling = request.sampling
    return size + _size_of((request.extra, sampling.stop, sampling.logit_bias, request.parameters))


def _size(record: Record) -> int:
    """Return about how many bytes a record takes."""
    event = record.event
    # nearly all are of these two kinds
    if isinstance(event, ContentDelta) and event.logprobs is None:
        return _RECORD_BYTES + len(event.text)
    if isinstance(event, (ChoiceFinished, UsageCounted)):
        return _RECORD_BYTES
    return _RECORD_BYTES + _size_of(event)


def _size_of(value: object) -> int:
    """Return about how many bytes a value takes; a client may nest what it sends deeply."""
    size, left = 0, [value]
    while left:
        item = left.pop()
        if item is None or item is False or item == ():
            continue
        size += _OBJECT_BYTES
        if isinstance(item, str):
            size += len(item)
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
