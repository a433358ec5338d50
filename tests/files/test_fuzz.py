"""Forms that were damaged at random: whatever is not taken whole is refused and leaves nothing."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

import pytest

FILES = "/research/files"
ROUNDS = 150

PIECES = (
    *(b"\r\n", b"\n", b"\r", b"--", b"\0", b'"', b";", b": ", b"\r\n\r\n", b"\xff\xfe"),
    *(b"--boundary-1", b"\r\n--boundary-1\r\n", b"\r\n--boundary-1--\r\n"),
    *(b"filename*=UTF-8''%00%2F", b" " * 5000, b"\r\n" * 5000),
)
Mutation = Callable[[random.Random, bytearray], None]


def flip(dice: random.Random, body: bytearray) -> None:
    body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)


def cut(dice: random.Random, body: bytearray) -> None:
    del body[dice.randrange(len(body)) :]


def drop(dice: random.Random, body: bytearray) -> None:
    start = dice.randrange(len(body))
    del body[start : start + dice.randrange(1, 40)]


def repeat(dice: random.Random, body: bytearray) -> None:
    start = dice.randrange(len(body))
    body[start:start] = body[start : start + dice.randrange(1, 200)] * dice.randrange(1, 5)


def insert(dice: random.Random, body: bytearray) -> None:
    start = dice.randrange(len(body) + 1)
    body[start:start] = dice.choice([*PIECES, dice.randbytes(dice.randrange(1, 50))])


def swap(dice: random.Random, body: bytearray) -> None:
    lines = bytes(body).split(b"\r\n")
    dice.shuffle(lines)
    body[:] = b"\r\n".join(lines)


MUTATIONS: list[Mutation] = [flip, cut, drop, repeat, insert, swap]


def whole(forms: Any, dice: random.Random, collection: str) -> bytes:
    """Return a good form."""
    parts = [
        forms.part(
            "file", dice.randbytes(dice.randrange(1, 3000)), "näme.bin", b"Content-Type: a/b"
        ),
        forms.part("collection_id", collection.encode()),
        forms.part("purpose", b"research"),
    ]
    dice.shuffle(parts)
    return b"".join(parts) + bytes(forms.end)


@pytest.mark.parametrize("seed", range(6))
def test_damaged_forms(serve_files: Any, forms: Any, seed: int) -> None:
    dice = random.Random(seed)
    served = serve_files(max_file_bytes=10_000)
    collection = served.collection()
    taken = refused = 0
    for _ in range(ROUNDS):
        body = bytearray(whole(forms, dice, collection))
        for _ in range(dice.randrange(1, 4)):
            if body:
                dice.choice(MUTATIONS)(dice, body)
        reply = served.post_form(bytes(body))
        assert reply.status_code in (200, 400), (seed, bytes(body), reply.text)
        if reply.status_code == 400:
            refused += 1
            assert list(reply.json) == ["error"]
        else:
            taken += 1
            data = served.client.get(f"{FILES}/{reply.json['id']}/content").data
            assert hashlib.sha256(data).hexdigest() == reply.json["sha256"]
            assert len(data) == reply.json["size"]
        total = served.client.get(FILES).json["pagination"]["total"]
        assert (total, len(served.kept())) == (taken, taken)
    assert taken > ROUNDS / 10
    assert refused > ROUNDS / 10


@pytest.mark.parametrize("seed", range(3))
def test_noise(serve_files: Any, forms: Any, seed: int) -> None:
    dice = random.Random(seed)
    served = serve_files()
    words = [b"--boundary-1", b"\r\n", b"--", b'Content-Disposition: form-data; name="file"', b"x"]
    for _ in range(ROUNDS):
        noise = b"".join(dice.choices(words, k=dice.randrange(40)))
        assert served.post_form(noise).status_code in (200, 400), noise
    rows = served.client.get(FILES).json["data"]
    assert len(served.kept()) == len({row["sha256"] for row in rows})
