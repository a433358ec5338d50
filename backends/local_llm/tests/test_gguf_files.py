"""Files, good and bad: what is said about them without the engine."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from caesar_backend_local_llm.gguf_files import (
    ModelFile,
    UnusableFileError,
    format_size,
    quantisation,
    read_model_file,
)

TinyModels = Callable[..., Any]
Rewrite = Callable[[bytes], bytes]


def problem(path: str | Path) -> str:
    with pytest.raises(UnusableFileError) as caught:
        read_model_file(path)
    error = caught.value
    assert str(error) == f"{error.path} {error.problem}"
    return error.problem


@pytest.fixture
def changed(tiny_model: TinyModels, tmp_path: Path) -> Callable[[Rewrite], Path]:
    """Write the echo model's file, changed by a function, and return its path."""

    def change(rewrite: Rewrite) -> Path:
        path = tmp_path / "changed.gguf"
        path.write_bytes(rewrite(tiny_model().path.read_bytes()))
        return path

    return change


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of a few tensors with the package ``gguf``."""

    def write(
        *,
        architecture: str = "llama",
        tensors: int = 1,
        name: str = "model.gguf",
        tensor_type: Any = None,
        folder: Path = tmp_path,
        **pairs: str | int,
    ) -> Path:
        import numpy as np

        path = folder / name
        writer = gguf.GGUFWriter(path, architecture)
        for key, value in {"tokenizer.ggml.model": "llama", **pairs}.items():
            key = key.replace("__", ".")
            (writer.add_string if isinstance(value, str) else writer.add_uint32)(key, value)
        for number in range(tensors):
            data = np.zeros((8, 32), np.float32)
            writer.add_tensor(f"t{number}", data, raw_shape=(8, 32), raw_dtype=tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def test_a_file_tells_what_it_is(tiny_model: TinyModels) -> None:
    path = tiny_model("echo", "spm", context=512, name="Tiny one").path
    assert read_model_file(path) == ModelFile(
        path=path,
        parts=(path,),
        size_bytes=path.stat().st_size,
        architecture="llama",
        name="Tiny one",
        parameters=sum(tensor.n_elements for tensor in gguf.GGUFReader(path).tensors),
        context=512,
        quantisation="F16",
        chat_template=True,
    )


@pytest.mark.parametrize("tokenizer", ["spm", "bpe"])
@pytest.mark.parametrize("kind", ["echo", "bigram", "random"])
def test_every_tiny_model_is_whole(tiny_model: TinyModels, kind: str, tokenizer: str) -> None:
    model = tiny_model(kind, tokenizer, half=False, chat_template=None)
    found = read_model_file(model.path)
    assert (found.quantisation, found.chat_template) == ("F32", False)


def test_a_real_model_is_read(smollm2: Path) -> None:
    found = read_model_file(smollm2)
    assert (found.architecture, found.quantisation, found.context) == ("llama", "Q4_1", 8192)
    assert found.parameters == 134_515_008
    assert found.chat_template


def test_relative_paths_and_home_are_understood(
    tiny_model: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(tiny_model().path, tmp_path / "m.gguf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("m.gguf", "~/m.gguf", Path("m.gguf")):
        assert read_model_file(name).path == tmp_path / "m.gguf"
    with pytest.raises(UnusableFileError, match=f"^{tmp_path}/gone.gguf does not exist$"):
        read_model_file("gone.gguf")
    assert "cannot be found" in problem("~no-such-user-here/m.gguf")


def test_what_is_no_file_is_told(tiny_model: TinyModels, tmp_path: Path) -> None:
    assert problem(tmp_path) == "is a folder; name a .gguf file; there is none in it"
    for name in ("b", "a", "d", "c"):
        (tmp_path / f"{name}.gguf").touch()
    assert problem(tmp_path) == "is a folder; name a file in it: a.gguf, b.gguf, c.gguf, ..."
    os.mkfifo(tmp_path / "pipe")
    assert problem(tmp_path / "pipe") == "is no regular file"
    assert problem(tmp_path / "a.gguf" / "below") == "cannot be read: Not a directory"


def test_a_file_of_somebody_else_is_told(
    tiny_model: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A test that runs as root may read everything, so the answer of the system is made up.
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert problem(tiny_model().path) == "cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"<!DOCTYPE html>", "an HTML or XML page"),
        (b"PK\x03\x04...", "a zip archive"),
        (b"\x80\x02}q\x00", "a Python pickle"),
        (b"tjgg\x03\0\0\0", "the format before GGUF"),
        (b"\x1f\x8b\x08\0", "a gzip archive"),
        (struct.pack("<Q", 900) + b'{"__metadata__"', "a safetensors file"),
        (b"\0" * 4096, "it begins with zeros, as a download does that is not complete"),
        (b"Hello, world", "is no GGUF file: it begins with b'Hell'"),
    ],
)
def test_another_format_is_named(tmp_path: Path, begins: bytes, said: str) -> None:
    (tmp_path / "m.gguf").write_bytes(begins)
    assert said in problem(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (b"\1\0\0\0", "is GGUF version 1; versions 2 and 3 are read: convert the model again"),
        (b"\4\0\0\0", "is GGUF version 4; versions 2 and 3 are read: a newer engine may read it"),
        (b"\0\0\0\3", "is a big-endian GGUF file"),
    ],
)
def test_another_version_is_told(
    changed: Callable[[Rewrite], Path], version: bytes, said: str
) -> None:
    assert said in problem(changed(lambda data: b"GGUF" + version + data[8:]))


def test_wherever_a_file_is_cut_it_is_said(
    tiny_model: TinyModels, changed: Callable[[Rewrite], Path]
) -> None:
    size = tiny_model().path.stat().st_size
    for length in (*range(4, 400, 13), 5000, 10000):
        assert "ends within its header" in problem(changed(lambda data: data[:length]))  # noqa: B023
    for length in (size // 2, size - 1):
        assert problem(changed(lambda data: data[:length])) == (  # noqa: B023
            f"is cut: it has {length} of {size} bytes; its download was not complete"
        )


def test_any_damage_of_the_header_is_told_in_words(changed: Callable[[Rewrite], Path]) -> None:
    """Nothing but a sentence, and no long wait, whatever the header says."""
    said = set()
    for start in range(8, 600, 7):
        for junk in (b"\0" * 8, b"\xff" * 8, b"\7\0\0\0\t\0\0\0"):
            path = changed(lambda data: data[:start] + junk + data[start + 8 :])  # noqa: B023
            try:
                read_model_file(path)  # damage of a text does no harm
            except UnusableFileError as error:
                said.add(error.problem)
    assert {problem.split()[0] for problem in said} <= {"ends", "is", "names", "has", "holds"}
    assert len(said) > 5


def test_zeros_in_the_place_of_missing_parts_end_the_reading(
    changed: Callable[[Rewrite], Path],
) -> None:
    many = struct.pack("<QQ", 2**60, 2**60)
    path = changed(lambda data: b"GGUF\3\0\0\0" + many + b"\0" * len(data))
    assert problem(path) == "is damaged: something in its header has no name"


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ({"architecture": "clip"}, "is the image part of a model"),
        ({"general__type": "adapter"}, "is an adapter (LoRA), which changes a model and is none"),
        ({"general__type": "imatrix"}, "is an importance matrix"),
        ({"architecture": "nomic-bert"}, "is of the architecture nomic-bert, which writes no text"),
        ({"architecture": ""}, "names no architecture (general.architecture)"),
        ({"tokenizer.ggml.model": "no_vocab"}, "has no tokenizer (tokenizer.ggml.model)"),
        ({"tensors": 0}, "holds a vocabulary and no weights"),
    ],
)
def test_a_file_that_is_no_model_for_text_is_told(
    written: Callable[..., Path], pairs: dict[str, Any], said: str
) -> None:
    assert said in problem(written(**pairs))


def test_another_architecture_is_for_the_engine_to_judge(written: Callable[..., Path]) -> None:
    assert read_model_file(written(architecture="tomorrow")).architecture == "tomorrow"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (0, 31, "is quantised as Q4_0_4_4, which llama.cpp reads no more: take another file"),
        (0, 4, "is quantised as Q4_2, which llama.cpp reads no more: take another file"),
    ],
)
def test_a_quantisation_that_is_gone_is_told(
    written: Callable[..., Path], old: int, new: int, said: str
) -> None:
    path = written()
    before = b"t0" + struct.pack("<IQQI", 2, 32, 8, old)
    assert before in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(before, before[:-4] + struct.pack("<I", new)))
    assert problem(path) == said


def test_a_quantisation_of_tomorrow_is_for_the_engine_to_judge(
    written: Callable[..., Path],
) -> None:
    path = written()
    before = b"t0" + struct.pack("<IQQI", 2, 32, 8, 0)
    path.write_bytes(path.read_bytes().replace(before, before[:-4] + struct.pack("<I", 99)))
    assert read_model_file(path).quantisation == "type 99"


def test_a_model_in_several_files_is_one(written: Callable[..., Path], tmp_path: Path) -> None:
    def part(number: int) -> Path:
        name = f"big-{number + 1:05}-of-00003.gguf"
        return written(name=name, split__no=number, split__count=3, tensors=number + 1)

    first = part(0)
    assert problem(first) == "is part 1 of 3; missing beside it: big-00002-of-00003.gguf"
    second, third = part(1), part(2)
    found = read_model_file(first)
    assert found.parts == (first, second, third)
    assert found.parameters == 6 * 256
    assert found.size_bytes == sum(path.stat().st_size for path in found.parts)
    assert problem(second) == "is part 2 of 3; name the first: big-00001-of-00003.gguf"
    third.write_bytes(third.read_bytes()[:-1])
    assert problem(first).startswith("is cut: ")
    renamed = first.rename(tmp_path / "first.gguf")
    assert problem(renamed) == (
        "is part 1 of 3: its name must end in -00001-of-00003.gguf, or the other parts are not "
        "found"
    )


def test_the_tables_are_those_of_ggml() -> None:
    theirs = {int(number): (number.name, *sizes) for number, sizes in gguf.GGML_QUANT_SIZES.items()}
    ours = {number: entry for number, entry in quantisation.TYPES.items() if number in theirs}
    assert ours == {number: theirs[number] for number in ours}
    assert set(quantisation.REMOVED_TYPES) & set(theirs) == set()
    named = {int(kind): kind.name.partition("_")[2] for kind in gguf.LlamaFileType}
    ours_by_file = quantisation.FILE_TYPES
    assert {number: named[number] for number in ours_by_file if number in named} == {
        number: name for number, name in ours_by_file.items() if number in named
    }
    assert len(ours) >= 30


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.00 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (98_362_432, "98.4 MB"),
        (4_370_000_000, "4.37 GB"),
        (40_000_000_000, "40.0 GB"),
        (2_000_000_000_000, "2000 GB"),
    ],
)
def test_sizes_have_three_digits(size: int, said: str) -> None:
    assert format_size(size) == said
