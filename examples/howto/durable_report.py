"""A durable backend: goes on where another process left off, and never repeats a paid step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from caesar_server.contract import (
    Backend,
    Capabilities,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    Event,
    InvalidRequestError,
    Request,
    ResearchRequest,
    Started,
    StatusChanged,
    split_words,
)

_PARTS = re.compile(r"[,;]\s*|\band\b")


class ReportBackend(Backend):
    """Looks into each part of a question, then writes a report."""

    capabilities = Capabilities(accepts=frozenset({"research"}), prompts=False, durable=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Do what the last checkpoint does not hold yet, then tell the whole text."""
        if not isinstance(request, ResearchRequest):
            raise InvalidRequestError("takes research requests only", param=None)
        # The state is JSON: lists and strings, not tuples or dataclasses.
        state: Mapping[str, Any] = context.restored or {"findings": []}
        findings: list[str] = list(state["findings"])
        yield Started()

        parts = [part.strip() for part in _PARTS.split(request.query) if part.strip()]
        for part in parts[len(findings) :]:
            yield StatusChanged("researching", f"Looking into {part!r}")
            context.raise_if_cancelled()
            findings.append(self.look_into(part))
            # From here on this part is paid for and never asked for again.
            context.checkpoint({"findings": findings})

        yield StatusChanged("summarizing")
        text = state.get("text") or self.write(findings)
        # All of it, before any of it is told: another process must be able to repeat it.
        context.checkpoint({"findings": findings, "text": text})
        for word in split_words(text):
            context.raise_if_cancelled()
            yield ContentDelta(word)
        yield ChoiceFinished()
        yield Completed({"parts": len(parts)})

    def look_into(self, part: str) -> str:
        """Return a finding; here would be the slow call that costs money."""
        return f"{part} has {len(part)} characters"

    def write(self, findings: list[str]) -> str:
        """Return the report; here would be a model, which writes differently every time."""
        return "Findings: " + "; ".join(findings) + "."
