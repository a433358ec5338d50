"""How far a durable backend is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a run begins again from.

    :param state: the backend's own, a JSON object.
    :param unrepeated: numbers of records that are stored although a run that begins here may tell
        them: earlier attempts did, and the one that stores this had not come to them yet.
    """

    state: Mapping[str, Any]
    unrepeated: tuple[int, ...] = ()

    def copy(self) -> Checkpoint:
        """Return it as a database would keep it, whatever becomes of the state.

        :raises TypeError: if the state is no JSON.
        """
        return Checkpoint(json.loads(json.dumps(self.state)), self.unrepeated)
