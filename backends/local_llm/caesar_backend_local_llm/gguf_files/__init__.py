"""Model files: what is in a GGUF file, and why one cannot be served, without the engine.

The package ``gguf`` has a reader too.  It decodes every token of the vocabulary and takes seconds
for a small model; here only what is shown or checked is decoded.
"""

from caesar_backend_local_llm.gguf_files.model_file import (
    ModelFile,
    UnusableFileError,
    format_size,
    is_later_part,
    read_model_file,
)

__all__ = [
    "ModelFile",
    "UnusableFileError",
    "format_size",
    "is_later_part",
    "read_model_file",
]
