"""The Python sample of Caesar's own page on this endpoint, with our host and no other change.

It wraps the body in a member ``body`` and sets a stop sequence, metadata and a seed.
"""

from __future__ import annotations

from typing import Any

import requests


def test_the_documented_sample_works_as_it_is_printed(server: Any):
    payload = {
        "body": {
            "model": "caesar-research",
            "prompt": "What are the latest breakthroughs in quantum computing and their potential "
            "applications?",
            "max_tokens": 150,
            "temperature": 0.7,
            "top_p": 0.9,
            "stop": ["\n", "###"],
            "seed": 42,
            "stream": False,
            "metadata": {
                "reasoning_loops": 4,
                "source_timeout": 30,
                "reasoning_mode": True,
                "allow_early_exit": True,
                "exclude_social": False,
                "system_prompt": "You are a research assistant synthesizing recent scientific "
                "papers.",
            },
        }
    }
    headers = {"Authorization": "Bearer <token>", "Content-Type": "application/json"}
    response = requests.post(
        server.url + "/compat/completions", json=payload, headers=headers, timeout=30
    )
    assert response.status_code == 200
    body = response.json()
    assert set(body) == {"id", "object", "created", "model", "choices", "usage"}
    assert (body["object"], body["model"]) == ("text_completion", "caesar-research")
    (choice,) = body["choices"]
    assert choice["text"] == payload["body"]["prompt"]
    assert (choice["index"], choice["finish_reason"]) == (0, "stop")
    assert body["usage"] == {"prompt_tokens": 12, "completion_tokens": 12, "total_tokens": 24}
