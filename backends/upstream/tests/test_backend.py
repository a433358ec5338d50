"""The backend as an operator meets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from caesar_backend_upstream import UpstreamBackend
from caesar_server.app import create_app
from caesar_server.cli import main
from caesar_server.contract import BrainstormRequest
from caesar_server.mock.backend import MockBackend
from caesar_server.registry import Registry
from caesar_server.testing import LiveServer, collect_events


def test_importing_it_imports_no_http_client() -> None:
    code = (
        "import sys, caesar_backend_upstream as b; b.UpstreamBackend().models()\n"
        "sys.exit(bool({'requests', 'urllib3'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_check_tries_the_configured_server(tmp_path: Path) -> None:
    with LiveServer(create_app(registry=Registry.of({"mock": MockBackend}))) as server:
        config = tmp_path / "caesar-server.toml"
        config.write_text(f'[backends.upstream.servers.one]\nurl = "{server.base_url}/v1"\n')
        result = CliRunner().invoke(main, ["check", "upstream", "--config", str(config)])
    lines = {line.split()[1]: line.split()[0] for line in result.output.splitlines()[1:-1] if line}
    assert lines["run.accepts"] == "pass"
    assert lines["concurrency.same_answers"] == "pass"
    assert lines["sampling.token_prompts"] == "pass"
    assert result.exit_code == 0, result.output


def test_what_it_does_not_take_is_refused(opened, told, raw, wire) -> None:
    ask = opened(raw(wire.hello()))
    assert told(collect_events(ask.backend, BrainstormRequest(query="x"))).error.status == 400


def test_it_is_asked_only_while_it_is_open(told) -> None:
    from caesar_server.contract import CompletionRequest

    events = collect_events(UpstreamBackend(), CompletionRequest(prompts=("x",)))
    assert told(events).error.code == "backend_error"


def test_attempts_are_counted_by_server(raw, opened, wire, requests_of) -> None:
    from caesar_server.testing import make_context

    class Numbers:
        def __init__(self) -> None:
            self.counted: list[tuple] = []

        def count(self, name, amount=1, **labels) -> None:
            self.counted.append((name, labels))

        def observe(self, name, value, **labels) -> None:
            self.counted.append((name, labels))

    context = make_context()
    context.metrics = numbers = Numbers()
    ask = opened(raw(wire.head(status="500 No")), raw(wire.hello()))
    collect_events(ask.backend, requests_of.completion("x"), context)
    assert numbers.counted == [
        ("attempts", {"server": "s1", "outcome": "502"}),
        ("first_byte_s", {"server": "s2"}),
        ("attempts", {"server": "s2", "outcome": "completed"}),
    ]


@pytest.mark.parametrize("status", ["500 No", "200 OK"])
def test_the_log_names_the_server_that_failed(raw, opened, wire, caplog, status) -> None:
    opened(raw(wire.head(status=status))).complete()
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.upstream == "s1"
    assert "s1" in record.getMessage()
