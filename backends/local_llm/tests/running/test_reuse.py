"""What an instance keeps of one prompt for the next changes nothing but the time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from caesar_server.testing import make_context


def words(count: int, start: int = 0) -> tuple[int, ...]:
    return tuple((7 * number + start) % 250 + 3 for number in range(count))


class Numbers:
    """Metrics that can be looked at."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        assert labels == {"model": "tiny"}
        self.found.setdefault(name, []).append(amount)

    observe = count


def asked(ask, prompt, **more):
    context = make_context()
    context.metrics = numbers = Numbers()
    return ask.complete(prompt, max_tokens=12, seed=1, context=context, **more), numbers.found


@pytest.mark.parametrize("batch", [1, 7, 32, 128])
@pytest.mark.parametrize("shared", [0, 31, 32, 33, 100, 150])
def test_texts_and_logprobs_are_the_same(opened, tiny_model, batch: int, shared: int) -> None:
    path = tiny_model("random").path
    prompt = words(150)
    other = prompt[:shared] + words(150 - shared, start=3)
    fresh = opened(path, batch_tokens=batch, reuse_prompts=False)
    used = opened(path, batch_tokens=batch)
    used.complete(other, max_tokens=5, seed=2)
    again, numbers = asked(used, prompt, logprobs=2)
    alone, none = asked(fresh, prompt, logprobs=2)
    assert again.tokens() == alone.tokens()  # to the last bit
    assert none["reused_prompt_tokens"] == [0]
    most = min(shared, 149) // batch * batch
    assert numbers["reused_prompt_tokens"] == [most]


def test_choices_use_one_evaluation_of_the_prompt(opened, tiny_model, monkeypatch) -> None:
    ask = opened(tiny_model("random").path)
    several, numbers = asked(ask, words(40), n=3)
    assert numbers["prompt_tokens"] == [40]
    assert several.usage[0] == 40
    # what cannot be forgotten is read again, to the same end
    from caesar_backend_local_llm.engine.instance import Instance

    kept = Instance.rewind
    monkeypatch.setattr(
        Instance, "rewind", lambda self, size: size in (0, self.size) and kept(self, size)
    )
    assert asked(ask, words(40), n=3)[0].texts == several.texts


def test_what_is_counted(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, temperature=0)
    answer, numbers = asked(ask, "Once upon")
    assert numbers["prompt_tokens"] == [3]
    assert numbers["completion_tokens"] == [12]
    for name in ("queue_length", "queue_wait_s", "prompt_s", "generation_s", "tokens_per_second"):
        (value,) = numbers[name]
        assert value >= 0
    assert answer.usage == (3, 12)


def test_an_instance_refuses_to_go_on_from_nothing(raw_models: SimpleNamespace, tiny_model) -> None:
    from caesar_backend_local_llm.engine.failures import EvaluationError

    weights = raw_models.Weights(str(tiny_model("random").path))
    instance = raw_models.Instance(weights, context_tokens=64, batch_tokens=16, threads=1)
    with pytest.raises(EvaluationError):
        instance.read(())
    instance.close()
    weights.close()


def test_a_full_context_is_an_error_and_not_the_end(
    raw_models: SimpleNamespace, tiny_model
) -> None:
    from caesar_backend_local_llm.engine.failures import EvaluationError

    weights = raw_models.Weights(str(tiny_model("random").path))
    instance = raw_models.Instance(weights, context_tokens=256, batch_tokens=64, threads=1)
    instance.read(words(256))
    with pytest.raises(EvaluationError, match="llama_decode"):
        instance.append(5)
    assert instance.size == 0
    instance.read(words(10))
    assert instance.size == 10
    instance.close()
    weights.close()
