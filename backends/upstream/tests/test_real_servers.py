"""Real servers behind it: our own echo and mock, and one that others have written."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from caesar_backend_echo import EchoBackend
from caesar_backend_upstream import UpstreamBackend
from caesar_server.app import create_app
from caesar_server.contract import (
    Backend,
    Capabilities,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    LogprobToken,
    RateLimitedError,
    Request,
    TopLogprob,
    UsageCounted,
    choice_events,
    split_words,
)
from caesar_server.mock.backend import MockBackend
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import BackendConformance, LiveServer, check_backend, scripted_backend


class AbleBackend(Backend):
    """Can do all that OpenAI's completions can; always says the same; a word is a token."""

    capabilities = Capabilities(
        accepts=frozenset({"completion", "chat"}),
        n=True,
        best_of=True,
        logprobs=True,
        echo=True,
        suffix=True,
        token_prompts=True,
        max_tokens=True,
        stop=True,
        seed=True,
        usage=True,
    )

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        is_completion = isinstance(request, CompletionRequest)
        prompts = request.prompts if is_completion else (request.messages[-1].text,)
        for position, prompt in enumerate(prompts):
            text = prompt if isinstance(prompt, str) else " ".join(map(str, prompt))
            yield UsageCounted(prompt_tokens=len(text.split()))
            for k in range(request.sampling.n):
                choice = position * request.sampling.n + k
                words = split_words(f"Answer {k}: I have no idea about {text} and so I say so.")
                echo = text if is_completion and request.echo else ""
                events = choice_events(words, context, request.sampling, choice=choice, echo=echo)
                for event in events:
                    yield self._with_logprobs(event, request)
        yield Completed()

    @staticmethod
    def _with_logprobs(event: Event, request: Request) -> Event:
        count = request.sampling.logprobs
        if count is None or not isinstance(event, ContentDelta):
            return event
        tops = tuple(TopLogprob(f"t{n}", -1.0 - n) for n in range(count))
        return ContentDelta(
            event.text, event.choice, logprobs=(LogprobToken(event.text, -0.5, tops),)
        )


def conformance(**server_options):
    """Return a test class for the backend in front of an able server."""

    class Conformance(BackendConformance):
        backend_class = UpstreamBackend

        @pytest.fixture(scope="class")
        @classmethod
        def conformance_report(cls):
            app = create_app(registry=Registry.of({"able": AbleBackend}))
            with LiveServer(app) as server:
                servers = {"able": {"url": f"{server.base_url}/v1", **server_options}}
                return check_backend(UpstreamBackend, {"servers": servers})

    return Conformance


class TestStreams(conformance()):
    pass


class TestWholeAnswers(conformance(stream=False)):
    pass


@pytest.fixture
def through():
    """Ask a server whose only backend is in front of another server with these backends."""

    def ask(backends, path: str, body: dict, **server_options):
        with LiveServer(create_app(registry=Registry.of(backends))) as behind:
            servers = {"behind": {"url": f"{behind.base_url}/v1", **server_options}}
            settings = Settings(backends={"upstream": {"servers": servers}})
            registry = Registry.of({"upstream": UpstreamBackend}, settings)
            with LiveServer(create_app(settings, registry=registry)) as front:
                direct = behind.client().post(path, {**body, "model": "able"})
                relayed = front.client().post(path, {**body, "model": "upstream/able"})
                return settled(direct), settled(relayed)

    return ask


def settled(response) -> tuple[int, str]:
    """Return status and body without what is another at each request."""
    text = response.read().decode()
    text = re.sub(r'"(id|created|model)":("[^"]*"|\d+)', r'"\1":0', text)
    return response.status, text


COMPLETION = {"prompt": "the sea", "max_tokens": 40}
CHAT = {"messages": [{"role": "user", "content": "the sea"}]}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"n": 3, "stop": ["idea", "so"]},
        {"prompt": ["a", "b"], "n": 2, "stream": True},
        {"logprobs": 2},
        {"logprobs": 2, "stream": True},
        {"echo": True, "max_tokens": 2},
        {"prompt": [1, 2, 3]},
        {"max_tokens": 0},
        {"temperature": 3},
    ],
    ids=str,
)
def test_a_completion_is_the_same_through_it(through, more) -> None:
    direct, relayed = through({"able": AbleBackend}, "/v1/completions", {**COMPLETION, **more})
    assert relayed == direct


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"n": 2, "logprobs": True, "top_logprobs": 4},
        {"max_completion_tokens": 3, "stream": True},
    ],
    ids=str,
)
def test_a_chat_is_the_same_through_it(through, more) -> None:
    direct, relayed = through({"able": AbleBackend}, "/v1/chat/completions", {**CHAT, **more})
    assert relayed == direct


def test_a_chat_by_completion_and_back(through) -> None:
    _, (status, text) = through(
        {"able": AbleBackend}, "/v1/chat/completions", CHAT, endpoint="completions"
    )
    assert status == 200
    assert (
        "I have no idea about User: the sea" in json.loads(text)["choices"][0]["message"]["content"]
    )


def test_a_completion_by_chat(through) -> None:
    body = {**COMPLETION, "n": 2, "stop": ["about"]}
    direct, relayed = through({"able": AbleBackend}, "/v1/completions", body, endpoint="chat")
    assert relayed == direct


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"n": 2, "echo": True}], ids=str)
def test_our_own_mock_and_echo_are_the_same_through_it(through, more) -> None:
    for backend in (MockBackend, EchoBackend):
        body = {**COMPLETION, **more}
        direct, relayed = through({"able": backend}, "/v1/completions", body)
        assert relayed == direct


def test_failures_come_through(through) -> None:
    refusing = scripted_backend([RateLimitedError("too fast", retry_after_s=3)])
    for stream in (False, True):
        body = {**COMPLETION, "stream": stream}
        direct, relayed = through({"able": refusing}, "/v1/completions", body)
        assert relayed == direct
        assert relayed[0] == 429


@pytest.fixture(scope="module")
def fakellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of fakellm, a server of chats by others, that is run here."""
    if importlib.util.find_spec("fakellm") is None:
        pytest.skip("fakellm is not installed")
    folder = tmp_path_factory.mktemp("fakellm")
    rules = (
        "rules:\n"
        "  - name: limited\n    when: {messages_contain: limited}\n"
        "    respond: {status: 429, error: slow down}\n"
        "  - name: hello\n    when: {messages_contain: sea}\n"
        "    respond: {content: The sea is deep and blue.}\n"
    )
    (folder / "fakellm.yaml").write_text(rules)
    code = (
        "import sys, uvicorn\nfrom fakellm.server import app\n"
        "uvicorn.run(app, port=0, log_level='info')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    lines = process.stderr
    try:
        address = next(
            found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line))
        )
        drain = threading.Thread(target=lines.read, daemon=True)
        drain.start()
        yield f"{address}/v1"
    finally:
        process.terminate()
        process.wait(60)
        drain.join(10)
        lines.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("request_kind", ["chat", "completion"])
def test_another_server_answers(fakellm, opened, told, stream, request_kind) -> None:
    options = {"stream": stream, "endpoint": "chat"}
    ask = opened(fakellm, per_server=options)
    answer = told(ask.chat("the sea") if request_kind == "chat" else ask.complete("the sea"))
    assert answer.error is None, answer.error
    assert answer.text() == "The sea is deep and blue."
    assert answer.reasons == {0: "stop"}
    assert min(answer.usage) > 0


def test_another_server_lacks_what_it_lacks(fakellm, opened, told) -> None:
    error = told(opened(fakellm).complete("the sea")).error
    assert (error.status, error.message) == (404, "Not Found")


def test_another_servers_refusal_is_kept(fakellm, opened, told) -> None:
    options = {"endpoint": "chat", "stream": False}  # its streams know no errors
    error = told(opened(fakellm, per_server=options).chat("limited")).error
    assert error.status == 429
