"""A model file as a whole: facts for people, and what is wrong with it in a sentence."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from caesar_backend_local_llm.gguf_files.header import MAGIC, Header, HeaderError, read_header
from caesar_backend_local_llm.gguf_files.quantisation import REMOVED_TYPES, quantisation

#: Larger than any vocabulary's piece of a header; tokens are so read from memory.
_BUFFER_BYTES = 1 << 20
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")

#: How files begin that are mistaken for GGUF files, and what each is.
_MISTAKEN: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer: fetch the file itself with `git lfs pull`"),
    (b"<", "an HTML or XML page: a download link gives the page, not the file"),
    (b"PK\x03\x04", "a zip archive, perhaps a PyTorch model: convert it with llama.cpp"),
    (b"\x80", "a Python pickle, perhaps a PyTorch model: convert it with llama.cpp"),
    (b"lmgg", "a GGML file, the format before GGUF: convert the model again"),
    (b"fmgg", "a GGML file, the format before GGUF: convert the model again"),
    (b"tjgg", "a GGML file, the format before GGUF: convert the model again"),
    (b"algg", "a GGML adapter, the format before GGUF: convert it again"),
    (b"\x1f\x8b", "a gzip archive: unpack it"),
    (b"7z\xbc\xaf", "a 7z archive: unpack it"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it"),
)
#: What ``general.type`` calls files that go with a model.
_BESIDES_MODELS = {
    "adapter": "an adapter (LoRA), which changes a model and is none",
    "mmproj": "the image part of a model; name the file with the text model",
    "imatrix": "an importance matrix, which helps to make models and is none",
}
#: Architectures of llama.cpp without a decoder.
_ENCODERS = frozenset(
    {
        "bert",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "t5encoder",
        "wavtokenizer-dec",
    }
)


class UnusableFileError(ValueError):
    """A file that cannot be served.

    :param path: absolute, if it could be found out.
    :param problem: a clause without a subject: ``is empty``.  The message is path and problem.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model that may be served; only the engine knows whether it has the architecture.

    :param path: absolute; of a model in several files the first.
    :param parts: all its files.
    :param size_bytes: of all parts together.
    :param architecture: llama.cpp's name, such as ``llama`` or ``qwen3``.
    :param name: as the file calls the model; may be empty.
    :param parameters: how many numbers its tensors hold.
    :param context: tokens that it was trained for; None where the file does not say.
    :param quantisation: such as ``Q4_K_M`` or ``F16``.
    :param chat_template: whether it has one of its own.
    """

    path: Path
    parts: tuple[Path, ...]
    size_bytes: int
    architecture: str
    name: str
    parameters: int
    context: int | None
    quantisation: str
    chat_template: bool


def read_model_file(path: str | Path) -> ModelFile:
    """Return what a file says about itself, after looking whether it is whole.

    Reads the header and none of the weights.  A path may begin with ``~``; a relative one belongs
    to the current folder.

    :raises UnusableFileError: if it is missing, unreadable, empty, of another format, cut, damaged,
        a part of a model whose other parts are missing, or no model that writes text.
    """
    whole = _absolute(path)
    first = _read(whole)
    _check_kind(whole, first)
    paths = tuple(_parts(whole, first))
    headers = (first, *map(_read, paths[1:]))
    tensors = [tensor for header in headers for tensor in header.tensors]
    if not tensors:
        raise UnusableFileError(whole, "holds a vocabulary and no weights")
    architecture = first.text("general.architecture")
    return ModelFile(
        path=whole,
        parts=paths,
        size_bytes=sum(part.stat().st_size for part in paths),
        architecture=architecture,
        name=first.text("general.name"),
        parameters=sum(tensor.parameters for tensor in tensors),
        context=first.number(f"{architecture}.context_length"),
        quantisation=quantisation(
            first.number("general.file_type"),
            ((tensor.type, tensor.parameters) for tensor in tensors),
        ),
        chat_template=bool(first.text("tokenizer.chat_template")),
    )


def format_size(size_bytes: int) -> str:
    """Return a size with about three digits: ``98.4 MB``; a MB is a million bytes."""
    if size_bytes < 1000:
        return f"{size_bytes} bytes"
    size, units = size_bytes / 1000, iter(("kB", "MB", "GB"))
    unit = next(units)
    while size >= 999.5 and (larger := next(units, None)):
        size, unit = size / 1000, larger
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{size:.{digits}f} {unit}"


def is_later_part(path: Path) -> bool:
    """Whether the name is that of the second or a later file of a model in several."""
    match = _PART.fullmatch(path.name)
    return match is not None and int(match["number"]) > 1


def _absolute(path: str | Path) -> Path:
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:  # ~nobody
        raise UnusableFileError(Path(path), f"cannot be found: {error}") from error


def _read(path: Path) -> Header:
    """Return the header of one file that holds all the data that it lists."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UnusableFileError(path, f"is a folder; {_files_in(path)}")
        if not stat.S_ISREG(mode):
            raise UnusableFileError(path, "is no regular file")
        size = path.stat().st_size
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            begins = file.read(64)
            file.seek(0)
            if not begins.startswith(MAGIC):
                raise UnusableFileError(path, _mistaken(begins))
            header = read_header(file)
    except FileNotFoundError as error:
        raise UnusableFileError(path, "does not exist") from error
    except OSError as error:
        raise UnusableFileError(path, f"cannot be read: {error.strerror or error}") from error
    except HeaderError as error:
        raise UnusableFileError(path, str(error)) from error
    _check_data(path, header, size)
    return header


def _files_in(folder: Path) -> str:
    found = sorted(islice(folder.glob("*.gguf"), 4))
    if not found:
        return "name a .gguf file; there is none in it"
    names = ", ".join(file.name for file in found[:3])
    return f"name a file in it: {names}{', ...' if len(found) > 3 else ''}"


def _mistaken(begins: bytes) -> str:
    if not begins:
        return "is empty"
    for start, what in _MISTAKEN:
        if begins.startswith(start):
            return f"is no GGUF file but {what}"
    if begins[8:10] == b'{"':
        return "is no GGUF file but a safetensors file: convert it with llama.cpp"
    if not any(begins):
        return "is no GGUF file: it begins with zeros, as a download does that is not complete"
    return f"is no GGUF file: it begins with {begins[:4]!r}"


def _check_data(path: Path, header: Header, size: int) -> None:
    removed = {tensor.type for tensor in header.tensors} & set(REMOVED_TYPES)
    if removed:
        names = ", ".join(REMOVED_TYPES[number] for number in sorted(removed))
        raise UnusableFileError(
            path, f"is quantised as {names}, which llama.cpp reads no more: take another file"
        )
    if size < header.expected_bytes:
        said = f"{size} of {header.expected_bytes} bytes"
        raise UnusableFileError(path, f"is cut: it has {said}; its download was not complete")


def _check_kind(path: Path, header: Header) -> None:
    kind, architecture = header.text("general.type"), header.text("general.architecture")
    if architecture == "clip":
        kind = "mmproj"
    if kind in _BESIDES_MODELS:
        raise UnusableFileError(path, f"is {_BESIDES_MODELS[kind]}")
    if not architecture:
        raise UnusableFileError(path, "names no architecture (general.architecture)")
    if architecture in _ENCODERS:
        raise UnusableFileError(
            path, f"is of the architecture {architecture}, which writes no text"
        )
    if header.text("tokenizer.ggml.model") in ("", "none", "no_vocab"):
        raise UnusableFileError(path, "has no tokenizer (tokenizer.ggml.model)")


def _parts(path: Path, header: Header) -> Iterator[Path]:
    """Yield all files of the model whose first file is ``path``."""
    count, number = header.number("split.count") or 1, header.number("split.no") or 0
    if count == 1:
        yield path
        return
    match = _PART.fullmatch(path.name)
    if match is None:
        raise UnusableFileError(
            path,
            f"is part {number + 1} of {count}: its name must end in "
            f"-{number + 1:05}-of-{count:05}.gguf, or the other parts are not found",
        )
    parts = [
        path.with_name(f"{match['stem']}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)
    ]
    if number != 0:
        raise UnusableFileError(
            path, f"is part {number + 1} of {count}; name the first: {parts[0].name}"
        )
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        raise UnusableFileError(path, f"is part 1 of {count}; missing beside it: {missing[0]}")
    yield from parts
