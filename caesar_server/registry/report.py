"""What the operator is told about each backend that is installed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from caesar_server.registry.discovery import Candidate

#: ``available``: may be loaded and was not asked yet; ``shadowed``: another one has its name;
#: ``disabled``: not in ``allowed_backends``.
State: TypeAlias = Literal["available", "loaded", "failed", "shadowed", "disabled"]


@dataclass(frozen=True, slots=True)
class BackendReport:
    """The state of one backend, for people.

    :param entry_point: ``module:Class``.
    :param distribution: the installed package that brings it, or None if the settings name it.
    :param version: of that package.
    :param reason: why it is in this state, or None.
    :param hint: what to do about it, or None.
    :param detail: what the plugin's exception said, for the operator alone: it was not written to
        be seen by clients.
    """

    name: str
    state: State
    entry_point: str
    distribution: str | None = None
    version: str | None = None
    reason: str | None = None
    hint: str | None = None
    detail: str | None = None

    @property
    def sentence(self) -> str:
        """The report in one line."""
        words = [f"backend {self.name} ({self.entry_point}) is {self.state}"]
        if self.reason:
            words.append(f": {self.reason}")
        if self.detail:
            words.append(f": {self.detail}")
        if self.hint:
            words.append(f" (hint: {self.hint})")
        return "".join(words)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return dataclasses.asdict(self)


def report_on(
    candidate: Candidate,
    state: State,
    reason: str | None = None,
    hint: str | None = None,
    detail: str | None = None,
) -> BackendReport:
    """Return the report on ``candidate``."""
    return BackendReport(
        name=candidate.name,
        state=state,
        entry_point=candidate.entry_point,
        distribution=candidate.distribution,
        version=candidate.version,
        reason=reason,
        hint=hint,
        detail=detail,
    )
