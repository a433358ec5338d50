"""How weights are stored: ggml's types and the kinds of file made of them.

Source: ``ggml_type`` in ``ggml.h``, ``llama_ftype`` in ``llama.h`` and the block sizes of
``gguf-py/gguf/constants.py``.  A test compares these tables with that package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

#: By ggml's number: name, numbers in a block, bytes of a block.
TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
#: Types that llama.cpp once read and reads no more.
REMOVED_TYPES: Mapping[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
#: By the number under ``general.file_type``.
FILE_TYPES: Mapping[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
}


def type_name(number: int) -> str:
    """Return ggml's name of a type; ``type 99`` for one that is not known here."""
    if number in TYPES:
        return TYPES[number][0]
    return REMOVED_TYPES.get(number, f"type {number}")


def tensor_bytes(number: int, parameters: int) -> int | None:
    """Return how many bytes ``parameters`` numbers of a type take; None for an unknown type."""
    if number not in TYPES:
        return None
    _, block, block_bytes = TYPES[number]
    return -(-parameters // block) * block_bytes


def quantisation(file_type: int | None, tensors: Iterable[tuple[int, int]]) -> str:
    """Return the name for a file: what it says itself, else the type of most of its numbers.

    :param file_type: of its metadata, or None.
    :param tensors: type and number of parameters of each.
    """
    if file_type is not None and file_type in FILE_TYPES:
        return FILE_TYPES[file_type]
    counts: Counter[int] = Counter()
    for number, parameters in tensors:
        counts[number] += parameters
    return type_name(counts.most_common(1)[0][0])
