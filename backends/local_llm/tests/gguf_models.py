"""Tiny models whose answers are known beforehand, as real GGUF files of the llama architecture.

A file has everything that a large one has: a vocabulary with one of two tokenizers, a chat template
and two layers with rotary attention, gated feed-forward and RMS norms.  Three kinds of weights:

``random``
    Seeded noise; the text is nonsense, and every part of the network takes part in it.
``bigram``
    The next-token probabilities of a text, put into the weights: embeddings are one-hot, the layers
    add nothing, and the output matrix holds ``log P(next | current)``.  A test so knows each log
    probability (:meth:`TinyModel.logprob`).
``echo``
    The bigram model of a text that never repeats a token, by default :data:`SCRIPT`: greedy text
    recites it and then ends.

Making one takes less than a second and about 1 MB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np

Kind = Literal["random", "bigram", "echo"]
Tokenizer = Literal["spm", "bpe"]

#: What the echo kind recites.  No word comes twice: each has one successor.
SCRIPT = (
    "Once upon a time there lived one small server who answered every request with gentle stories "
    "about rivers , lamps and quiet gardens until morning came ."
)
#: Control tokens of both tokenizers, in this order after all others.
SPECIALS = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
#: Those of a model that can fill in the middle, and the GGUF keys that name them.
FILL_IN = {
    "<|fim_prefix|>": "tokenizer.ggml.fim_pre_token_id",
    "<|fim_suffix|>": "tokenizer.ggml.fim_suf_token_id",
    "<|fim_middle|>": "tokenizer.ggml.fim_mid_token_id",
}
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|{{ message['role'] }}|> {{ message['content'] }}<|end|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
#: Every next token has at least this probability, so that each logarithm is finite.
FLOOR = 1e-6

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16
#: A lone byte, a word or a sign.
_PIECE = re.compile(r"<0x[0-9A-F]{2}>|[\w']+|[^\w\s]")
_TYPES = gguf.TokenType


@dataclass(frozen=True)
class TinyModel:
    """A file and what is known about it.

    :param tokens: the vocabulary as stored: ``▁cat`` (spm) or ``Ġcat`` (bpe).
    :param words: token id of each word of the text, with the space before it.
    :param special: token ids of :data:`SPECIALS`, and of :data:`FILL_IN` where there are any.
    :param byte_ids: token id of each of the 256 bytes.
    :param table: ``log P(next | current)``, current in rows; None for the random kind.
    """

    path: Path
    kind: Kind
    tokenizer: Tokenizer
    tokens: Sequence[str]
    words: Mapping[str, int]
    special: Mapping[str, int]
    byte_ids: Sequence[int]
    bos: int
    eos: int
    table: Any = None

    def ids(self, text: str) -> list[int]:
        """Return the tokens of words that the model knows, without one for the beginning."""
        return [token for piece in _PIECE.findall(text) for token in _tokens(self, piece)]

    def logprob(self, current: str | int, following: str | int) -> float:
        """Return ``log P(following | current)`` of two words or token ids, as the engine gives it.

        The file's half floats make it differ by up to 0.002.
        """
        row, column = (
            token if isinstance(token, int) else self.words[token] for token in (current, following)
        )
        return float(self.table[row, column])


class _Vocabulary:
    """Collects tokens, with scores, types and merges as the file needs them."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.scores: list[float] = []
        self.types: list[int] = []
        self.merges: list[str] = []
        self.words: dict[str, int] = {}
        self.special: dict[str, int] = {}
        self.byte_ids: list[int] = []
        self.bos = self.eos = self.unknown = 0

    def add(self, token: str, kind: int = _TYPES.NORMAL, score: float = 0.0) -> int:
        self.tokens.append(token)
        self.scores.append(score)
        self.types.append(int(kind))
        return len(self.tokens) - 1

    def add_spm(self, words: Iterable[str]) -> None:
        """Add tokens as sentencepiece has them: bytes, and pieces in which ``▁`` is a space."""
        self.unknown = self.add("<unk>", _TYPES.UNKNOWN)
        self.bos = self.add("<s>", _TYPES.CONTROL)
        self.eos = self.add("</s>", _TYPES.CONTROL)
        self.byte_ids = [self.add(f"<0x{byte:02X}>", _TYPES.BYTE) for byte in range(256)]
        ids: dict[str, int] = {}
        for piece in ("▁", *_prefixes("▁", words), *sorted(set("".join(words)))):
            # Two neighbours are merged where they make a piece; of several the best score wins.
            if piece not in ids:
                ids[piece] = self.add(piece, score=len(piece) - 100.0)
        self.words.update({word: ids[f"▁{word}"] for word in words})

    def add_bpe(self, words: Iterable[str]) -> None:
        """Add tokens as GPT-2 has them: each byte is a printable character, words are merges."""
        shown = _printable_bytes()
        self.byte_ids = [self.add(shown[byte]) for byte in range(256)]
        ids = {token: number for number, token in enumerate(self.tokens)}
        for piece in _prefixes(shown[ord(" ")], words):
            if piece not in ids:
                ids[piece] = self.add(piece)
                self.merges.append(f"{piece[:-1]} {piece[-1]}")
        self.words.update({word: ids[shown[ord(" ")] + word] for word in words})
        self.bos = self.eos = self.unknown = self.add("<|endoftext|>", _TYPES.CONTROL)


def _prefixes(space: str, words: Iterable[str]) -> list[str]:
    """Return what merging the space and each word from the left goes through."""
    return [(space + word)[:end] for word in words for end in range(2, len(word) + 2)]


def _printable_bytes() -> dict[int, str]:
    """Return GPT-2's characters for bytes: themselves if visible, else from 256 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return {byte: chr(byte if byte in visible else next(hidden)) for byte in range(256)}


def _tokens(model: _Vocabulary | TinyModel, piece: str) -> list[int]:
    """Return the tokens of a word, or of a space and bytes where it is not ASCII."""
    if re.fullmatch(r"<0x[0-9A-F]{2}>", piece):
        return [model.byte_ids[int(piece[3:5], 16)]]
    if piece.isascii():
        return [model.words[piece]]
    space = model.tokens.index("▁") if "▁" in model.tokens else model.byte_ids[ord(" ")]
    return [space, *(model.byte_ids[byte] for byte in piece.encode())]


def _bigrams(vocabulary: _Vocabulary, sentences: Sequence[Sequence[str]]) -> Any:
    """Return ``log P(next | current)`` as an array of float64, current in rows."""
    size = len(vocabulary.tokens)
    counts = np.zeros((size, size))
    starts = {vocabulary.bos, vocabulary.special["<|assistant|>"]}
    first = []
    for sentence in sentences:
        ids = [token for piece in sentence for token in _tokens(vocabulary, piece)]
        first.append(ids[0])
        for start in starts:
            counts[start, ids[0]] += 1
        for current, following in zip(ids, [*ids[1:], vocabulary.eos], strict=True):
            counts[current, following] += 1
    for unseen in np.flatnonzero(counts.sum(axis=1) == 0):
        for token in first:  # what stands before nothing is followed by a beginning
            counts[unseen, token] += 1
    shares = counts / counts.sum(axis=1, keepdims=True)
    return np.log(shares * (1 - FLOOR * size) + FLOOR)


def write_model(
    path: Path,
    kind: Kind = "echo",
    tokenizer: Tokenizer = "spm",
    *,
    text: str = SCRIPT,
    chat_template: str | None = CHAT_TEMPLATE,
    add_bos: bool = True,
    fill_in: bool = False,
    context: int = 2048,
    layers: int = 2,
    half: bool = True,
    seed: int = 0,
    name: str = "tiny",
    architecture: str = "llama",
) -> TinyModel:
    """Write a model to ``path``.

    :param text: a sentence a line, of words and signs with spaces between them.  A word that is not
        ASCII becomes a space and its bytes; ``<0xFF>`` is that byte alone, without a space.
    :param chat_template: in Jinja; None leaves it out.
    :param add_bos: whether the engine puts a beginning before a prompt.
    :param fill_in: with tokens to fill in the middle.
    :param context: tokens it was trained for, as the file says.
    :param layers: more make the random kind slower: 2 take about 0.2 ms a token.
    :param half: matrices of 16 bits; else of 32.
    :param seed: of the noise.
    :param architecture: written as it is: any but ``llama`` makes a file that cannot be loaded.
    """
    sentences = [_PIECE.findall(line) for line in text.splitlines() if line.strip()]
    vocabulary = _vocabulary(tokenizer, sentences, fill_in)
    size = len(vocabulary.tokens)
    table = None if kind == "random" else _bigrams(vocabulary, sentences)
    width = 64 if table is None else -(-size // 64) * 64  # one-hot: at least the vocabulary

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32))
    _write_shape(writer, width, layers, context, size)
    _write_vocabulary(writer, vocabulary, tokenizer, add_bos)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    for tensor, values in _weights(table, size, width, layers, np.random.default_rng(seed)).items():
        matrix = half and values.ndim > 1
        writer.add_tensor(tensor, values.astype(np.float16 if matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return TinyModel(
        path=path,
        kind=kind,
        tokenizer=tokenizer,
        tokens=vocabulary.tokens,
        words=vocabulary.words,
        special=vocabulary.special,
        byte_ids=vocabulary.byte_ids,
        bos=vocabulary.bos,
        eos=vocabulary.eos,
        table=table,
    )


def _vocabulary(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], fill_in: bool
) -> _Vocabulary:
    pieces = dict.fromkeys(piece for sentence in sentences for piece in sentence)
    words = [word for word in pieces if word.isascii() and not word.startswith("<0x")]
    made = _Vocabulary()
    (made.add_spm if tokenizer == "spm" else made.add_bpe)(words)
    for token in (*SPECIALS, *(FILL_IN if fill_in else ())):
        made.special[token] = made.add(token, _TYPES.CONTROL)
    return made


def _write_shape(
    writer: gguf.GGUFWriter, width: int, layers: int, context: int, vocabulary: int
) -> None:
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(vocabulary)


def _write_vocabulary(
    writer: gguf.GGUFWriter, vocabulary: _Vocabulary, tokenizer: Tokenizer, add_bos: bool
) -> None:
    writer.add_tokenizer_model("llama" if tokenizer == "spm" else "gpt2")
    writer.add_tokenizer_pre("default" if tokenizer == "spm" else "gpt-2")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    if tokenizer == "spm":
        writer.add_token_scores(vocabulary.scores)
    else:
        writer.add_token_merges(vocabulary.merges)
    writer.add_bos_token_id(vocabulary.bos)
    writer.add_eos_token_id(vocabulary.eos)
    writer.add_unk_token_id(vocabulary.unknown)
    writer.add_eot_token_id(vocabulary.special["<|end|>"])
    for token, key in FILL_IN.items():
        if token in vocabulary.special:
            writer.add_uint32(key, vocabulary.special[token])
    writer.add_add_bos_token(add_bos)
    writer.add_add_eos_token(False)


def _weights(
    table: Any, vocabulary: int, width: int, layers: int, noise: np.random.Generator
) -> dict[str, Any]:
    """Return all tensors; those of a known ``table`` keep each token's one-hot vector as it is."""

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Any:
        return noise.normal(0, scale / math.sqrt(columns), (rows, columns))

    live = table is None
    if live:
        weights = {
            "token_embd.weight": noise.normal(0, 1, (vocabulary, width)),
            "output.weight": matrix(vocabulary, width, scale=3.0),
        }
    else:
        output = np.zeros((vocabulary, width))
        # the norm before the output makes the hot place sqrt(width)
        output[:, :vocabulary] = table.T / math.sqrt(width)
        weights = {"token_embd.weight": np.eye(vocabulary, width), "output.weight": output}
    weights["output_norm.weight"] = np.ones(width)
    for layer in range(layers):
        parts = {
            "attn_norm": np.ones(width),
            "ffn_norm": np.ones(width),
            "attn_q": matrix(HEADS * HEAD_DIM, width),
            "attn_k": matrix(KV_HEADS * HEAD_DIM, width),
            "attn_v": matrix(KV_HEADS * HEAD_DIM, width),
            "attn_output": matrix(width, HEADS * HEAD_DIM) * live,
            "ffn_gate": matrix(64, width),
            "ffn_up": matrix(64, width),
            "ffn_down": matrix(width, 64) * live,
        }
        weights |= {f"blk.{layer}.{part}.weight": values for part, values in parts.items()}
    return weights
