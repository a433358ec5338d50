"""The backends that are made together with the server, each a distribution of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownBackend:
    """A backend that may not be installed.

    :param summary: what it does, in one sentence.
    """

    name: str
    summary: str

    @property
    def distribution(self) -> str:
        """The package that brings it."""
        return f"caesar-backend-{self.name.replace('_', '-')}"

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install {self.distribution}"


#: By name; ``backends/`` in the repository holds them.
KNOWN_BACKENDS: tuple[KnownBackend, ...] = (
    KnownBackend("echo", "Answers with the prompt: the example to start from."),
    KnownBackend("local_llm", "Runs GGUF models in the server's own process."),
    KnownBackend("upstream", "Passes requests on to another OpenAI-compatible server."),
)
