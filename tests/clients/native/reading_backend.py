"""A backend that reads the files of its request; copied beside the server of these tests."""

from __future__ import annotations

from collections.abc import Iterator

from caesar_server.contract import (
    Backend,
    Capabilities,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    Event,
    Request,
)


class ReadingBackend(Backend):
    """Answers with name, type and text of each file."""

    capabilities = Capabilities(accepts=frozenset({"research"}), files=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield a line for each file."""
        for file in context.files.values():
            text = file.path.read_text()
            yield ContentDelta(f"{file.name} {file.content_type} {text!r}\n")
        yield ChoiceFinished()
        yield Completed()
