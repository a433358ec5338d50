"""Golden streams: ``NNN.events.json`` is what a backend yields, ``NNN.sse`` every byte sent.

A case is an object of ``about`` (what it shows), ``path``, ``body`` (the request), ``channels``
(those that the backend declares) and ``events``.  In the golden files the job's id is written as
``ID``.  To record a changed or new case, run the test with ``RECORD_TRANSCRIPTS`` set to 1 in the
environment and look at what git shows.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from caesar_server.app import create_app
from caesar_server.contract.events import event_from_json
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import FakeClock, decode_frames, scripted_backend


def play(case: dict[str, Any], body: dict[str, Any]) -> Any:
    """Send ``body`` to a server whose backend yields the case's events."""
    backend = scripted_backend(
        [event_from_json(event) for event in case["events"]],
        channels=frozenset(case.get("channels", ["content"])),
    )
    settings = Settings(default_backend="golden")
    app = create_app(
        settings, Registry.of({"golden": backend}, settings), clock=FakeClock(1_700_000_000)
    )
    try:
        # read to its end before the app ends
        return app.test_client().post(case["path"], json=body, buffered=True)
    finally:
        app.extensions["caesar_server"].close()


def test_every_byte_of_the_stream_is_as_recorded(case: Path):
    data = json.loads(case.read_text())
    reply = play(data, {**data["body"], "stream": True})
    assert reply.status_code == 200
    raw = reply.get_data()
    job_id = decode_frames(raw)[0]["id"]
    raw = raw.replace(job_id.encode(), b"ID")
    golden = case.with_name(case.name.replace(".events.json", ".sse"))
    if os.environ.get("RECORD_TRANSCRIPTS") == "1":
        golden.write_bytes(raw)
    assert raw == golden.read_bytes()


def test_there_is_no_recording_without_a_case():
    here = Path(__file__).parent
    streams = {path.name.split(".")[0] for path in here.glob("*.sse")}
    assert streams == {path.name.split(".")[0] for path in here.glob("*.events.json")}
    assert len(streams) >= 9
