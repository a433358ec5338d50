from collections.abc import Callable

import pytest

from caesar_backend_echo import EchoBackend, EchoOptions
from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Event,
    OptionsError,
    Sampling,
    UsageCounted,
)
from caesar_server.contract.options import parse_options
from caesar_server.testing import collect_events

Ask = Callable[..., list[Event]]


@pytest.fixture
def ask() -> Ask:
    """Return the events for some prompts; the other arguments are sampling parameters."""

    def ask(*prompts: str, prefix: str = "", echo: bool = False, **sampling: object) -> list[Event]:
        request = CompletionRequest(prompts=prompts, echo=echo, sampling=Sampling(**sampling))
        return collect_events(EchoBackend(EchoOptions(prefix)), request)

    return ask


def test_the_answer_is_the_prompt_word_by_word(ask: Ask) -> None:
    assert ask("to  be\n") == [
        UsageCounted(prompt_tokens=2),
        ContentDelta("to"),
        ContentDelta("  be\n"),
        UsageCounted(completion_tokens=2),
        ChoiceFinished(0, "stop"),
        Completed(),
    ]


def test_the_prefix_comes_before_it(ask: Ask) -> None:
    events = ask("hi", prefix="You said: ", echo=True)
    deltas = [event.text for event in events if isinstance(event, ContentDelta)]
    assert deltas == ["hi", "You", " said:", " hi"]


def test_choices_are_numbered_prompt_by_prompt(ask: Ask) -> None:
    events = ask("a", "b", n=2)
    deltas = [(event.choice, event.text) for event in events if isinstance(event, ContentDelta)]
    assert deltas == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    assert sum(event.prompt_tokens for event in events if isinstance(event, UsageCounted)) == 2


def test_stop_and_max_tokens_end_an_answer(ask: Ask) -> None:
    assert ChoiceFinished(0, "length") in ask("one two three", max_tokens=2)
    stopped = ask("one two three", stop=("two",))
    assert ContentDelta("one") in stopped
    assert not any("two" in event.text for event in stopped if isinstance(event, ContentDelta))


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(OptionsError, match="did you mean prefix"):
        parse_options(EchoOptions, {"prefx": ">"})
