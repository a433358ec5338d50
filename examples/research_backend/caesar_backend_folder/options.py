"""What an operator may set under ``[backends.folder]``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from caesar_server.contract import option

SAMPLE = Path(__file__).parent / "sample"


@dataclass(frozen=True)
class FolderOptions:
    """Options of the backend."""

    folder: str | None = option(
        None,
        help="Folder whose .txt, .md and .html files are searched; unset: a small sample.",
        example="notes",
    )
    base_url: str = option(
        "file:", help="What the URL of a source begins with; its path in the folder follows."
    )
    max_sources: int = option(5, help="Most passages that a loop reads.", minimum=1, maximum=50)
    max_file_bytes: int = option(
        1_000_000, help="Longer files are left out.", unit="bytes", minimum=1, maximum=100_000_000
    )
    listen_s: float = option(
        0.0,
        help="How long each loop but the first waits for updates of the caller.",
        unit="seconds",
        minimum=0,
        maximum=3600,
    )

    @property
    def path(self) -> Path:
        """The folder."""
        return SAMPLE if self.folder is None else Path(self.folder)
