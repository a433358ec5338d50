"""Research jobs of the Caesar API: created, asked after until they end, told as events.

The API documents no way to cancel a job: one that nobody waits for any more goes on over there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from caesar_backend_upstream.exchange import Calling
from caesar_backend_upstream.http.problems import Problem
from caesar_backend_upstream.wire.asks import metadata_of
from caesar_backend_upstream.wire.bodies import json_or_none
from caesar_backend_upstream.wire.failures import UpstreamFailure
from caesar_server.contract import (
    ChatRequest,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    ErrorInfo,
    Event,
    InvalidRequestError,
    LoopFinished,
    ProgressNoted,
    Request,
    ResearchParameters,
    ResearchRequest,
    ResultFound,
    SourceStored,
    Started,
    StatusChanged,
    UsageCounted,
    count_words,
)
from caesar_server.contract.events import RunningStatus

API_VERSION = "2025-11-27"
#: Questions after a job that may fail in a row: the job itself is not harmed by it.
_FAILED_POLLS = 5
_RUNNING: tuple[RunningStatus, ...] = ("searching", "researching", "analyzing", "summarizing")


def native_events(
    call: Calling, request: Request, context: Context
) -> Generator[Event, None, None]:
    """Yield the events of a research job, from its creation to its end.

    :raises InvalidRequestError: if the request asks for what a job cannot do.
    :raises UpstreamFailure: if the job fails, or cannot be created or followed.
    """
    query, parameters = _question(request)
    job = _Job(call, context)
    body = {"query": query, **metadata_of(parameters)}
    if parameters.auto:
        body["auto"] = True
    created = job.post("research", body)
    job_id = created.get("id")
    if not isinstance(job_id, str) or not job_id:
        raise call.teller.bad("sent a research job without an id")
    yield Started({"upstream": call.server.name, "upstream_job": job_id})
    job.path = f"research/{quote(job_id, safe='')}"
    state = yield from job.follow()
    if state.get("status") == "failed":
        reason = state.get("error")
        message = call.teller.scrubber.scrub(reason) if isinstance(reason, str) else ""
        raise UpstreamFailure(
            ErrorInfo(message or "The research job failed upstream", "research_failed", status=502)
        )
    yield from _answer(state, query)


def _question(request: Request) -> tuple[str, ResearchParameters]:
    if isinstance(request, ResearchRequest):
        if request.file_ids:
            raise InvalidRequestError("files: upstream cannot pass files on", param="files")
        return request.query, request.parameters
    if not isinstance(request, (CompletionRequest, ChatRequest)):
        raise InvalidRequestError(f"upstream takes no {request.type} requests", param=None)
    if request.choices != 1:
        raise InvalidRequestError("n: a research job has one answer", param="n")
    if request.sampling.logprobs is not None:
        raise InvalidRequestError("logprobs: a research job has none", param="logprobs")
    if isinstance(request, CompletionRequest):
        prompt = request.prompts[0]
        if not isinstance(prompt, str):
            raise InvalidRequestError("prompt: a research job takes text", param="prompt")
        if request.echo or request.suffix is not None:
            param = "echo" if request.echo else "suffix"
            raise InvalidRequestError(f"{param}: a research job has none", param=param)
        return prompt, request.parameters
    questions = [message.text for message in request.messages if message.role == "user"]
    if not questions:
        raise InvalidRequestError("messages: expected a user message", param="messages")
    return questions[-1], request.parameters


def _answer(state: Mapping[str, Any], query: str) -> Iterator[Event]:
    """Yield the text: as the system prompt shaped it, where there was one."""
    shaped, plain = state.get("transformed_content"), state.get("content")
    text = shaped if isinstance(shaped, str) else plain if isinstance(plain, str) else ""
    if text:
        yield ContentDelta(text)
    yield UsageCounted(count_words(query), count_words(text))
    yield ChoiceFinished()
    details: dict[str, Any] = {"usage_estimated": True, "upstream_job": state.get("id")}
    if isinstance(shaped, str) and isinstance(plain, str):
        details["content"] = plain
    loops = state.get("reasoning_loops_consumed")
    if type(loops) is int:
        details["loops_consumed"] = loops
    yield Completed(details)


class _Job:
    """A job as it is seen from here."""

    def __init__(self, call: Calling, context: Context) -> None:
        self._call = call
        self._context = context
        self.path = ""
        self._seen_events = 0
        self._seen_results: dict[str, Event] = {}
        self._loops = 0
        self._status = "queued"

    def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request that makes something."""
        found = self._exchange("POST", path, body)
        if not isinstance(found, dict):
            raise self._call.teller.bad("sent JSON that is no object")
        return found

    def follow(self) -> Generator[Event, None, Mapping[str, Any]]:
        """Yield what is new until the job has ended; return its last state."""
        failed = 0
        while True:
            try:
                state = self._exchange("GET", self.path)
                events = self._exchange("GET", f"{self.path}/events")
                failed = 0
            except UpstreamFailure as failure:
                failed += 1
                if failed >= _FAILED_POLLS or not failure.error.transient:
                    raise
                self._wait(failure.error.retry_after_s)
                continue
            if not isinstance(state, dict) or not isinstance(events, list):
                raise self._call.teller.bad("sent a research job that is none")
            yield from self._news(state, events)
            if state.get("status") in ("completed", "failed"):
                return state
            self._wait()

    def _wait(self, asked_s: float | None = None) -> None:
        self._context.sleep(max(self._call.server.options.poll_interval_s, asked_s or 0.0))

    def _news(self, state: Mapping[str, Any], events: list[Any]) -> Iterator[Event]:
        status = state.get("status")
        if status != self._status and status in _RUNNING:
            self._status = status
            yield StatusChanged(status)
        for item in events[self._seen_events :]:
            if isinstance(item, dict) and isinstance(item.get("message"), str):
                yield ProgressNoted(item["message"])
        self._seen_events = max(self._seen_events, len(events))
        loops = state.get("reasoning_loops_consumed")
        while type(loops) is int and self._loops < min(loops, 100):
            self._loops += 1
            yield LoopFinished(self._loops)
        for item in state.get("results") or ():
            yield from self._result(item)

    def _result(self, item: Any) -> Iterator[Event]:
        if not isinstance(item, dict) or not isinstance(item.get("id"), str):
            return
        result = _found(item)
        known = self._seen_results.get(result.id)
        if known == result:
            return
        self._seen_results[result.id] = result
        yield result
        if known is None and self._call.server.options.fetch_sources:
            yield SourceStored(
                result.id,
                raw=self._source(result.id, "raw"),
                markdown=self._source(result.id, "markdown"),
            )

    def _source(self, result_id: str, form: str) -> str | None:
        """Return a result's text; a source that cannot be had is no reason to lose the answer."""
        path = f"{self.path}/results/{quote(result_id, safe='')}/content?format={form}"
        try:
            body = self._exchange("GET", path)
        except UpstreamFailure as failure:
            self._context.logger.warning("a source is not stored: %s", failure.message)
            return None
        content = body.get("content") if isinstance(body, dict) else None
        return content if isinstance(content, str) else None

    def _exchange(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> object:
        call, context = self._call, self._context
        headers = {**call.headers, "Accept": "application/json", "API-Version": API_VERSION}
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = call.server.url_of(path)
        try:
            with call.server.transport.exchange(method, url, headers, context, body) as reply:
                found = json_or_none(reply.read_all())
                status, answered = reply.status, reply.headers
        except Problem as problem:
            context.raise_if_cancelled()
            raise call.teller.problem(problem) from problem
        if status != 200:
            raise call.teller.refusal(status, answered, found)
        if found is None:
            raise call.teller.bad("sent something that is not JSON; is its url right?")
        return found


def _found(item: Mapping[str, Any]) -> ResultFound:
    title, url = item.get("title"), item.get("url")
    score, index = item.get("score"), item.get("citation_index")
    return ResultFound(
        item["id"],
        title if isinstance(title, str) else "",
        url if isinstance(url, str) else "",
        float(score) if isinstance(score, (int, float)) and not isinstance(score, bool) else None,
        index if type(index) is int and index >= 1 else None,
    )
