"""The command ``llm`` against a real server, configured by ``extra-openai-models.yaml``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MODELS = ("caesar-research", "endless", "limited", "lost", "mirror")
WITHIN_S = 60
kinds = pytest.mark.parametrize("kind", ["completions", "chat"])

Ask = Callable[..., subprocess.CompletedProcess[str]]


def model_entry(model: str, kind: str, base_url: str) -> str:
    entry = f"- model_id: {kind}-{model}\n  model_name: {model}\n  api_base: {base_url}\n"
    return entry + ("  completion: true\n" if kind == "completions" else "")


@pytest.fixture
def environment(server, tmp_path: Path) -> dict[str, str]:
    entries = [model_entry(m, k, server.base_url) for m in MODELS for k in ("completions", "chat")]
    (tmp_path / "extra-openai-models.yaml").write_text("".join(entries))
    return {**os.environ, "LLM_USER_PATH": str(tmp_path)}


def command(kind: str, prompt: str, *flags: str, model: str = "caesar-research") -> list[str]:
    return [sys.executable, "-m", "llm", "prompt", "-m", f"{kind}-{model}", *flags, prompt]


@pytest.fixture
def ask(environment) -> Ask:
    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments, **more),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )

    return run


@pytest.mark.parametrize("flags", [[], ["--no-stream"]], ids=["streamed", "plain"])
@kinds
def test_an_answer(ask, kind, flags):
    result = ask(kind, "capital?", *flags)
    assert (result.returncode, result.stdout) == (0, "The capital is Paris.\n"), result.stderr


@pytest.mark.parametrize("flags", [[], ["--no-stream"]], ids=["streamed", "plain"])
def test_usage_is_shown_for_a_chat_only(ask, flags):
    assert ask("chat", "capital?", "-u", *flags).stderr == "Token usage: 1 input, 4 output\n"
    # The usage arrives, but only in what is logged.
    assert ask("completions", "capital?", "-u", *flags).stderr == "Token usage: \n"
    (logged,) = json.loads(ask("completions", "capital?", "--json", *flags).stdout)
    assert logged["response_json"]["usage"]["total_tokens"] == 5


@kinds
def test_references(ask, kind):
    result = ask(kind, "research")
    assert result.stdout == (
        "Much is new [1].\n\n## References\n\n[1] [News](https://a.example/)\n"
    )


@pytest.mark.parametrize("flags", [[], ["--no-stream"]], ids=["streamed", "plain"])
@kinds
def test_an_error_before_the_answer_is_shown(ask, kind, flags):
    result = ask(kind, "refused", *flags)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "Error: Error code: 400 - Not that\n"


@kinds
def test_an_error_in_mid_stream_is_shown_after_the_text_so_far(ask, kind):
    result = ask(kind, "breaks")
    assert (result.returncode, result.stdout) == (1, "Half an")
    assert result.stderr == "Error: Gone\n"


def test_a_limit_is_retried_after_the_delay_that_it_names(ask, server):
    assert ask("completions", "llm limited", model="limited").stdout == "At last.\n"
    first, second = server.attempts("llm limited")
    assert second - first >= server.retry_after_s


def test_a_job_that_had_begun_is_not_tried_again(ask, server):
    result = ask("completions", "llm lost", "--no-stream", model="lost")
    assert result.stderr == "Error: Error code: 503 - Gone\n"
    assert len(server.attempts("llm lost")) == 1


def test_options_arrive_at_the_backend(ask):
    result = ask("completions", "x", "-o", "seed", "3", "-o", "max_tokens", "9", model="mirror")
    sampling = json.loads(result.stdout)["sampling"]
    assert (sampling["seed"], sampling["max_tokens"]) == (3, 9)


def test_a_system_prompt_is_for_chats_only(ask):
    asked = json.loads(ask("chat", "x", "-s", "Be brief.", model="mirror").stdout)
    assert asked["parameters"]["system_prompt"] == "Be brief."
    result = ask("completions", "x", "-s", "Be brief.", model="mirror")
    assert result.returncode == 1
    assert "System prompts are not supported" in result.stderr


def test_a_client_that_is_stopped_ends_the_run(environment, server):
    with subprocess.Popen(
        command("completions", "llm left", model="endless"),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as client:
        try:
            assert client.stdout.read(5) == b"tick "
        finally:
            client.kill()
    assert server.wait_for_end_of("llm left")
