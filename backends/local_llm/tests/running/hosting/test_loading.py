"""Models that are loaded when they are needed, and those that cannot be."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from caesar_server.contract import ProgressNoted
from caesar_server.testing import make_context


def test_nothing_is_loaded_before_it_is_asked(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path)
    assert ask.backend.health().message == "tiny: not loaded"
    assert ask.backend.health().status == "ok"
    ask.complete("Once", max_tokens=1)
    assert ask.backend.health().message == ("tiny: loaded, 0 of 1 instances at work, 0 waiting")


def test_load_at_the_start(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, load="start")
    pause = threading.Event()
    for _ in range(10_000):
        if "loaded, 0" in ask.backend.health().message:
            break
        pause.wait(0.001)
    assert "loaded, 0" in ask.backend.health().message


def test_closing_while_it_loads(opened, tiny_model) -> None:
    ask = opened(tiny_model("random", layers=40).path, load="start", instances=4)
    ask.backend.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("caesar-local-llm")]


def test_closed_and_opened_again(echo) -> None:
    first = echo.complete("Once upon").text
    for _ in range(3):
        echo.backend.close()
        echo.backend.open()
        assert echo.complete("Once upon").text == first


def test_a_backend_that_is_not_open(opened) -> None:
    ask = opened()
    ask.backend.close()
    assert ask.complete("x").error.code == "backend_error"


@pytest.fixture
def bad(tmp_path, tiny_model):
    """Files that cannot be served, by what is wrong with them."""
    good = tiny_model("echo").path

    def make(what: str):
        path = tmp_path / f"{what}.gguf"
        if what == "empty":
            path.touch()
        elif what == "junk":
            path.write_bytes(b"\x07junk" * 1000)
        elif what == "cut":
            path.write_bytes(good.read_bytes()[: good.stat().st_size // 2])
        elif what == "architecture":
            shutil.copy(tiny_model("echo", architecture="unheard").path, path)
        elif what == "header":
            data = bytearray(good.read_bytes())
            data[24:32] = b"\xff" * 8
            path.write_bytes(data)
        elif what == "folder":
            path.mkdir()
        return path

    return make


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("missing", "does not exist"),
        ("empty", "is empty"),
        ("junk", "no GGUF file"),
        ("cut", "is cut"),
        ("architecture", "unheard"),
        ("header", "damaged"),
        ("folder", "is a folder"),
    ],
)
def test_a_bad_file_gets_a_sentence_and_the_others_are_served(
    opened, tiny_model, bad, caplog, what: str, words: str
) -> None:
    path = bad(what)
    ask = opened(
        models={"good": {"path": str(tiny_model("echo").path)}, "bad": {"path": str(path)}},
        temperature=0,
    )
    error = ask.complete("Once upon", model="bad").error
    assert (error.status, error.code) == (503, "model_not_loaded")
    assert error.message.startswith("The model 'bad' cannot be loaded: ")
    assert words in error.message
    assert str(path.parent) not in error.message  # the caller need not know the machine's folders
    health = ask.backend.health()
    assert health.status == "degraded"
    assert f"bad: not loaded: {path}" in health.message
    assert any(str(path) in record.getMessage() for record in caplog.records)
    assert ask.complete("Once upon", model="good", max_tokens=1).text == " a"


def test_what_is_wrong_is_known_at_the_start(opened, bad) -> None:
    health = opened(bad("cut")).backend.health()
    assert health.status == "down"
    assert "is cut" in health.message


def test_a_file_that_comes_later_is_served(opened, tiny_model, tmp_path) -> None:
    path = tmp_path / "later.gguf"
    ask = opened(path, temperature=0)
    assert ask.backend.health().status == "down"
    shutil.copy(tiny_model("echo").path, path)
    assert ask.complete("Once upon", max_tokens=1).text == " a"
    assert ask.backend.health().status == "ok"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"chat_template": "{% if %}"}, "the chat template is no Jinja"),
        ({"chat_template": "{{ 1 / 0 }}"}, "the chat template fails"),
        ({"chat_template_file": "/nowhere/at/all"}, "chat_template_file: cannot be read"),
        ({"chat_template": "x", "chat_template_file": "y"}, "both set"),
        ({"n_ctx": 10_000_000, "instances": 256}, "not enough memory: 256 x a context"),
    ],
)
def test_options_that_cannot_be(opened, tiny_model, options, words: str) -> None:
    ask = opened(tiny_model("echo").path, **options)
    error = ask.complete("Once").error
    assert (error.status, error.code) == (503, "model_not_loaded")
    assert words in error.message


def test_no_memory_in_the_library(opened, tiny_model, raw_models, monkeypatch) -> None:
    ask = opened(tiny_model("echo").path)
    from caesar_backend_local_llm.engine.native import native

    monkeypatch.setattr(native().lib, "llama_init_from_model", lambda model, parameters: None)
    error = ask.complete("Once").error
    assert "no memory for a context of 2048 tokens: lower n_ctx or instances" in error.message


def test_it_is_told_how_far_the_loading_is(opened, tiny_model, monkeypatch) -> None:
    from caesar_backend_local_llm.hosting import host

    monkeypatch.setattr(host, "PROGRESS_EVERY_S", 0.01)
    go_on = threading.Event()

    class SlowModel(host.LoadedModel):
        def __init__(self, plan, progress) -> None:
            progress(0.4)
            go_on.wait(60)
            super().__init__(plan, progress)

    ask = opened(tiny_model("echo").path)
    (one,) = ask.backend._hosts.values()
    monkeypatch.setattr(one, "_loader", SlowModel)
    from caesar_server.contract import CompletionRequest, Sampling

    request = CompletionRequest(prompts=("Once upon",), sampling=Sampling(max_tokens=1))
    events = ask.backend.run(request, make_context())
    notes = [next(events) for _ in range(2)]
    assert notes[-1] == ProgressNoted("Loading the model tiny: 40%")
    assert ask.backend.health().message == "tiny: loading, 40%"
    go_on.set()
    assert any(type(event).__name__ == "Completed" for event in events)


def test_who_waits_for_the_loading_may_leave(opened, tiny_model, monkeypatch) -> None:
    from caesar_backend_local_llm.hosting import host

    go_on = threading.Event()

    class SlowModel(host.LoadedModel):
        def __init__(self, plan, progress) -> None:
            go_on.wait(60)
            super().__init__(plan, progress)

    ask = opened(tiny_model("echo").path, temperature=0)
    (one,) = ask.backend._hosts.values()
    monkeypatch.setattr(one, "_loader", SlowModel)
    context = make_context()
    timer = threading.Timer(0.05, context.cancel)
    timer.start()
    assert ask.complete("Once upon", context=context).error.code == "cancelled"
    timer.join()
    go_on.set()
    assert ask.complete("Once upon", max_tokens=1).text == " a"


@pytest.mark.slow
def test_unloading_gives_all_memory_back(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, instances=4, n_ctx=65_536, temperature=0)

    def cycle() -> int:
        ask.complete("Once upon", max_tokens=2)
        ask.backend.close()
        ask.backend.open()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    first = max(cycle() for _ in range(5))
    # four contexts of 17 MB each time
    assert max(cycle() for _ in range(20)) - first < 30e6
