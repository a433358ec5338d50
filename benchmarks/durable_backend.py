"""A backend that says as many words as it is asked for, at the pace that it is asked for."""

from __future__ import annotations

from collections.abc import Iterator

from caesar_server.contract import (
    Backend,
    Capabilities,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    Request,
)


class DurableBackend(Backend):
    """Gets a prompt of two numbers: how many deltas, and the seconds from one to the next."""

    capabilities = Capabilities(durable=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield the deltas on time, whatever the time between took."""
        assert isinstance(request, CompletionRequest)
        count, pace_s = str(request.prompts[0]).split()[:2]
        context.checkpoint({"count": int(count)})
        start = context.clock.monotonic()
        for number in range(int(count)):
            if float(pace_s):
                due = start + number * float(pace_s)
                context.sleep(max(0.0, due - context.clock.monotonic()))
            yield ContentDelta(f"word{number:05} ")
        yield ChoiceFinished()
        yield Completed()


class FleetingBackend(DurableBackend):
    """The same, whose jobs end with their clients: what durability costs is the difference."""

    capabilities = Capabilities()
