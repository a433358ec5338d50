"""Rules about how runs, and the backend itself, begin, fail, stop and end."""

from __future__ import annotations

from typing import get_args

from caesar_server.contract import Health, Request
from caesar_server.contract.request import RequestKind
from caesar_server.jobs.running.values import error_misfit, shown
from caesar_server.testing.conformance.answer import Run
from caesar_server.testing.conformance.driver import Stop
from caesar_server.testing.conformance.questions import (
    completion,
    plain_requests,
    request_of,
    text_request,
)
from caesar_server.testing.conformance.resources import Resources, left_since
from caesar_server.testing.conformance.rule import Fail, Inapplicable, Outcome, Pass, rule
from caesar_server.testing.conformance.subject import Subject

_DEADLINE_S = 0.05


@rule(
    "life.opens",
    "Nothing else can be tried without it.",
    needs=("class.capabilities", "class.methods", "options.accepted"),
)
def opens(subject: Subject) -> Outcome:
    """open() works."""
    subject.open_shared()  # what it raises becomes the outcome
    return Pass()


@rule(
    "health.ok",
    "What is missing behind it, such as a file or another server, is known before a client asks.",
    needs=("health.value",),
)
def health_ok(subject: Subject) -> Outcome:
    """After the runs, health() is ok: with these options it can do all that it should."""
    health: Health = subject.call("health()", subject.backend.health)
    if health.status == "ok":
        return Pass()
    return Fail(f"{health.status}: {health.message}", "ok")


@rule(
    "life.closes",
    "The server calls it at its end; what it raises keeps other backends from closing well.",
    needs=("life.opens",),
)
def closes(subject: Subject) -> Outcome:
    """close() works."""
    subject.close_shared()
    return Pass()


@rule(
    "life.reopens",
    "The server closes backends at shutdown and in tests, and opens them on the next use.",
    needs=("run.accepts", "life.closes"),
)
def reopens(subject: Subject) -> Outcome:
    """It can be closed and opened again, used or not."""
    backend = subject.open()
    subject.close(backend)
    subject.call("open() after close()", backend.open)
    run = subject.ask(_first_plain(subject), backend=backend)
    subject.close(backend)
    return Pass() if run.completed else Fail(f"after close() and open(): {run.end}", "a good run")


@rule(
    "life.leaves_nothing",
    "Test suites and reloads open and close many times; what stays behind adds up.",
    needs=("life.reopens",),
)
def leaves_nothing(subject: Subject) -> Outcome:
    """After close() no thread, file or socket is left, also of runs that were left half-way."""
    # Threads are counted from before the first opening, descriptors after one round: a library
    # that is imported by open() may rightly keep a descriptor for the whole process.
    threads = Resources.now().threads
    _use_once(subject)
    before = Resources(threads, Resources.now().descriptors)
    _use_once(subject)
    left = left_since(before)
    return Fail(f"close() left {left}", "nothing") if left else Pass()


def _use_once(subject: Subject) -> None:
    backend = subject.open()
    subject.ask(_first_plain(subject), backend=backend)
    subject.ask(_first_plain(subject), backend=backend, stop=Stop(1, "close"))
    subject.ask(_first_plain(subject), backend=backend, stop=Stop(1, "cancel"))
    subject.close(backend)


def _first_plain(subject: Subject) -> Request:
    return plain_requests(subject.capabilities)[0]


@rule(
    "run.typed_errors",
    "Anything else is a bug to the server: the client gets a 500 that does not say why.",
    needs=("life.opens",),
)
def typed_errors(subject: Subject) -> Outcome:
    """A run fails only with the exceptions of the contract."""
    for run in subject.plain():
        if run.untyped is not None:
            return Fail(f"in a {run.request.type} run: {run.end}", "a BackendError or an answer")
        # what is wrong with a Failed that was yielded, events.values tells
        if run.raised is not None and (wrong := _wrong_error(run)) is not None:
            return Fail(f"in a {run.request.type} run: {wrong.seen}", wrong.expected)
    return Pass()


def _wrong_error(run: Run) -> Fail | None:
    """Return what is wrong with the fields of the typed error that ended ``run``, or None."""
    misfit = None if run.error is None else error_misfit(run.error)
    if misfit is None:
        return None
    seen = f"{run.end} with {misfit.field}={shown(misfit.value)}"
    return Fail(seen, f"{misfit.field}: {misfit.expected}")


@rule(
    "run.accepts",
    "The server sends what is declared there as it is.",
    needs=("run.typed_errors", "events.values"),
)
def accepts(subject: Subject) -> Outcome:
    """A plain request of each kind in capabilities.accepts is answered."""
    for run in subject.plain():
        if not run.completed:
            return Fail(f"in a {run.request.type} run: {run.end}", "run() completes")
    return Pass()


@rule(
    "run.refuses",
    "Other backends may call it with anything; the error tells their callers what to change.",
    needs=("life.opens",),
)
def refuses(subject: Subject) -> Outcome:
    """What it does not take is refused with InvalidRequestError."""
    requests = _unaccepted(subject)
    if not requests:
        raise Inapplicable("it takes everything")
    for request, what in requests:
        run = subject.ask(request)
        if run.error is None or run.error.status != 400:
            return Fail(f"with {what}: {run.end}", "InvalidRequestError")
        if (wrong := _wrong_error(run)) is not None:
            return Fail(f"with {what}: {wrong.seen}", wrong.expected)
    return Pass()


def _unaccepted(subject: Subject) -> list[tuple[Request, str]]:
    able = subject.capabilities
    found: list[tuple[Request, str]] = [
        (request_of(kind, able), f"a {kind} request")
        for kind in get_args(RequestKind)
        if kind not in able.accepts
    ]
    if "completion" in able.accepts and not able.token_prompts:
        found.append((completion(able, ((1, 2, 3),)), "a prompt of token ids"))
    return found


@rule(
    "run.recovers",
    "One client's mistake or hang-up must not spoil the answers of all that follow.",
    needs=("run.accepts",),
)
def recovers(subject: Subject) -> Outcome:
    """A run is as good as the first after others failed, were cancelled or were left half-way."""
    request = _first_plain(subject)
    for unaccepted, _ in _unaccepted(subject)[:1]:
        subject.ask(unaccepted)
    subject.ask(request, stop=Stop(1, "cancel"))
    subject.ask(request, stop=Stop(1, "close"))
    run = subject.ask(request)
    if not run.completed:
        return Fail(f"after such runs: {run.end}", "a run that completes")
    first = subject.once(request).answer
    if subject.capabilities.seed and run.answer != first:
        return Fail(f"first {first}, after such runs {run.answer}", "the same")
    return Pass()


@rule(
    "run.immediate",
    "So far it runs in the request's thread, where nobody ends it and nothing is sent meanwhile.",
    needs=("run.accepts",),
)
def immediate(subject: Subject) -> Outcome:
    """An immediate backend yields an empty list before it waits."""
    if not subject.capabilities.immediate:
        raise Inapplicable("it is not immediate")
    for run in subject.plain():
        if run.waited_first:
            return Fail(
                f"in a {run.request.type} run: it waits before that",
                "yield [] before context.sleep() and all else that takes its time",
            )
    return Pass()


@rule(
    "cancel.before_start",
    "Jobs wait in a queue; a client may have left long before its turn.",
    needs=("run.accepts",),
)
def cancel_before_start(subject: Subject) -> Outcome:
    """A run that is cancelled before it begins ends within cancel_deadline_s."""
    return _in_time(subject, subject.ask(_long(subject), stop=Stop(0, "cancel")))


@rule(
    "cancel.between_events",
    "Generation for a client that has left costs the others.",
    needs=("run.accepts",),
)
def cancel_between_events(subject: Subject) -> Outcome:
    """A run that is cancelled after its first event ends within cancel_deadline_s."""
    return _in_time(subject, subject.ask(_long(subject), stop=Stop(1, "cancel")))


@rule(
    "cancel.while_working",
    "A blocked call cannot poll; context.on_cancel must end it, or the thread is lost.",
    needs=("run.accepts",),
)
def cancel_while_working(subject: Subject) -> Outcome:
    """A run that is cancelled while the backend works or waits ends within cancel_deadline_s."""
    return _in_time(subject, subject.ask(_long(subject), stop=Stop(0, "thread")))


@rule(
    "cancel.deadline",
    "The client is told that time is up and a slot is free again; both must be true.",
    needs=("run.accepts",),
)
def deadline_kept(subject: Subject) -> Outcome:
    """A run whose deadline has passed ends within cancel_deadline_s."""
    return _in_time(subject, subject.ask(_long(subject), timeout_s=_DEADLINE_S))


def _in_time(subject: Subject, run: Run) -> Outcome:
    allowed_s = subject.capabilities.cancel_deadline_s
    if run.end_s <= allowed_s:
        return Pass()
    return Fail(f"it went on for {run.end_s:.2f} s", f"an end within {allowed_s:g} s")


def _long(subject: Subject) -> Request:
    """Return a request whose answer takes its time, where a request can say so."""
    able = subject.capabilities
    request = text_request(able, max_tokens=400) if able.max_tokens else text_request(able)
    return request or _first_plain(subject)
