"""About how much memory jobs take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from caesar_server.contract.events import ChoiceFinished, ContentDelta, UsageCounted
from caesar_server.contract.request import CompletionRequest, Request
from caesar_server.store.base import Job, Record
from caesar_server.store.updates import NumberedUpdate


def size_of_job(job: Job, records: Sequence[Record], updates: Sequence[NumberedUpdate] = ()) -> int:
    """Return about how many bytes a job, its records and its updates take."""
    sent = _size_of(tuple(one.update for one in updates)) if updates else 0
    return _request_size(job.request) + _size_of_records(records) + sent


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
    sampling, research = request.sampling, request.parameters
    large = (research.system_prompt, research.excluded_domains, research.collection_ids)
    return size + _size_of((request.extra, sampling.stop, sampling.logit_bias, *large))


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
