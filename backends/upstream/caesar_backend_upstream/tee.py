"""Writes what goes upstream and what comes back into files, with its timing."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from caesar_server.contract import frames
from caesar_server.contract.context import BackendLogger


class Tee:
    """One exchange's file; it never holds up or spoils an answer: what cannot be written is left.

    :param folder: None writes nothing.
    :param name: of the file, without its ending; an exchange with the same name is added to it.
    """

    def __init__(self, folder: Path | None, name: str, logger: BackendLogger) -> None:
        self._began = time.monotonic()
        self._logger = logger
        self._file: TextIO | None = None
        self._ended = False
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Callers' texts: for the operator alone.
            descriptor = os.open(
                folder / f"{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
            )
            self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        except OSError as error:
            self._give_up(error)

    @property
    def on(self) -> bool:
        """Whether anything is written."""
        return self._file is not None

    def request(self, path: str, body: Mapping[str, Any], server: str, created: float) -> None:
        """Begin with what is sent."""
        if self._file is not None:
            self._write(frames.request_line(path, body, created=created, server=server))

    def response(self, status: int, headers: Mapping[str, str]) -> None:
        """Note that the headers came."""
        self._write(frames.response_line(self._at_s(), status, headers))

    def frame(self, text: str) -> None:
        """Note an event of the stream."""
        if self._file is not None:
            self._write(frames.frame_line(self._at_s(), text))

    def body(self, text: str) -> None:
        """Note an answer that is no stream."""
        self._write(frames.body_line(self._at_s(), text))

    def end(self, reason: frames.EndReason) -> None:
        """Note how it ended; only the first end counts."""
        if not self._ended:
            self._ended = True
            self._write(frames.end_line(self._at_s(), reason))

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.close()
        except OSError as error:
            self._give_up(error)

    def _at_s(self) -> float:
        return time.monotonic() - self._began

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(line)
        except OSError as error:
            self.close()
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._file = None
        self._logger.warning("an exchange is not recorded: %s", error)
