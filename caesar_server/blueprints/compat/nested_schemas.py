"""The schemas of the objects inside a body, ``stream_options`` and ``metadata``."""

from __future__ import annotations

from typing import Any

from marshmallow import EXCLUDE, post_load

from caesar_server.contract.request import ResearchParameters
from caesar_server.web.fields import (
    MAX_ITEMS,
    Array,
    Boolean,
    Id,
    Integer,
    ModelName,
    NullIsAbsent,
    Text,
    means,
)


class StreamOptionsSchema(NullIsAbsent):
    """``stream_options``; ``include_obfuscation`` is accepted without effect."""

    class Meta:
        unknown = EXCLUDE

    include_usage = Boolean(
        load_default=False,
        metadata=means("Send one more chunk before the end, with `choices: []` and the usage."),
    )
    include_obfuscation = Boolean(metadata=means("Accepted without effect."))


class MetadataSchema(NullIsAbsent):
    """``metadata``: Caesar's research parameters among whatever else the caller keeps there.

    Values may be strings (``"4"``, ``"true"``), as OpenAI types metadata.
    """

    class Meta:
        unknown = EXCLUDE

    auto = Boolean(
        coerce=True,
        metadata=means(
            "Let the backend choose loops, timeout, mode, early exit and social sources.",
            default=False,
        ),
    )
    reasoning_loops = Integer(
        low=1,
        high=10,
        coerce=True,
        metadata=means("The most loops of research.", default=1, examples=[4]),
    )
    # the older name of the same (version 2025-08-08)
    compute_units = Integer(
        low=1,
        high=10,
        coerce=True,
        metadata=means("The older name of `reasoning_loops`.", deprecated=True),
    )
    source_timeout = Integer(
        low=3,
        high=180,
        coerce=True,
        metadata=means("Seconds to wait for one source.", default=60, examples=[30]),
    )
    reasoning_mode = Boolean(coerce=True, metadata=means("Use the stronger model.", default=False))
    allow_early_exit = Boolean(
        coerce=True,
        metadata=means("Finish before all loops are done if enough is known.", default=False),
    )
    exclude_social = Boolean(coerce=True, metadata=means("Leave social media out.", default=False))
    excluded_domains = Array(
        Text(min_length=1),
        max_items=MAX_ITEMS,
        metadata=means("Leave these domains and their subdomains out.", examples=[["example.com"]]),
    )
    system_prompt = Text(
        metadata=means(
            "How to shape the answer; in a chat it takes the place of the system message.",
            examples=["Answer in three bullet points."],
        )
    )
    model = ModelName(metadata=means("Which model writes the answer."))
    collection_ids = Array(
        Id(),
        max_items=MAX_ITEMS,
        metadata=means("Collections whose files to ground the answer on."),
    )

    @post_load
    def make(self, data: dict[str, Any], **kwargs: Any) -> ResearchParameters:
        """Return the parameters; without any of them the mode is auto."""
        if not data:
            return ResearchParameters(auto=True)
        compute_units = data.pop("compute_units", None)
        if compute_units is not None:
            data.setdefault("reasoning_loops", compute_units)
        if "source_timeout" in data:
            data["source_timeout_s"] = data.pop("source_timeout")
        for name in ("excluded_domains", "collection_ids"):
            data[name] = tuple(data.get(name, ()))
        return ResearchParameters(**data)
