"""How fast a reply is told."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

ChunkUnit: TypeAlias = Literal["character", "word", "token"]

#: No wait of the mock is longer.
LONGEST_WAIT_S = 24 * 60 * 60

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_S)]
Probability: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Pacing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the chunks of a reply come, by the scope's clock, and how its text is cut into them.

    :param first_chunk_s: from the request to the first chunk of text.
    :param tokens_per_s: from then on; None: at once.
    :param jitter: each wait is lengthened or shortened by up to this share of it, drawn from the
        scope's seed.
    :param unit: what one chunk holds: ``character``, ``word`` (with the space before it) or
        ``token`` (words and punctuation, longer words in pieces of four characters).
    :param size: so many units a chunk.
    """

    first_chunk_s: Seconds = 0
    tokens_per_s: Annotated[float, msgspec.Meta(gt=0, le=1_000_000_000)] | None = None
    jitter: Probability = 0
    unit: ChunkUnit = "word"
    size: Annotated[int, msgspec.Meta(ge=1)] = 1


#: One word a chunk, at once.
PLAIN_PACING = Pacing()
