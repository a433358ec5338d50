"""Clients as the users of the mock write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import openai
import pytest

Ask = Callable[..., str]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Ask for a completion as a program with openai-python would; return the text.

    Called with a mock (or a base URL) and a prompt; streams if ``stream`` is set.
    """
    clients: dict[str, openai.OpenAI] = {}

    def ask(mock, prompt: str, *, stream: bool = False, max_retries: int = 0, **fields) -> str:
        url = mock if isinstance(mock, str) else mock.base_url
        if url not in clients:
            clients[url] = openai.OpenAI(base_url=f"{url}/compat", api_key="test")
        client = clients[url].with_options(max_retries=max_retries)
        asked = {"model": "any", "prompt": prompt, **fields}
        if not stream:
            return client.completions.create(**asked).choices[0].text
        with client.completions.create(**asked, stream=True) as chunks:
            return "".join(chunk.choices[0].text for chunk in chunks)

    yield ask
    for client in clients.values():
        client.close()
