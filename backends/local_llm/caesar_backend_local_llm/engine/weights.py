"""A model's weights, loaded once and shared by all its instances."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from caesar_backend_local_llm.engine.failures import ModelLoadError
from caesar_backend_local_llm.engine.native import native
from caesar_backend_local_llm.engine.vocabulary import Vocabulary

#: What ``general.sampling.NAME`` of a file may recommend, and our names for it.
_RECOMMENDED = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
}
_TEXT_BYTES = 256
#: Half floats.
_BYTES_A_NUMBER = 2


class Weights:
    """A loaded model.  It never changes: instances in several threads may use it at once.

    :param progress: asked now and then while it loads, with the share that is done, 0 to 1, in the
        thread that loads; False ends the loading.
    :raises ModelLoadError: if the file is no model that can be loaded.
    """

    def __init__(
        self,
        path: str,
        *,
        gpu_layers: int = 0,
        mmap: bool = True,
        mlock: bool = False,
        progress: Callable[[float], bool] | None = None,
    ) -> None:
        self._native = native()
        self._lib = lib = self._native.lib
        parameters = lib.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        parameters.load_mode = _load_mode(lib, mmap, mlock)
        callback = lib.llama_progress_callback(
            lambda share, _data: progress is None or bool(progress(share))
        )
        parameters.progress_callback = callback
        with self._native.listening() as said:
            self.model: Any = lib.llama_model_load_from_file(path.encode(), parameters)
        if not self.model:
            raise ModelLoadError(_why(said))
        try:
            self._check()
            self.vocabulary = Vocabulary(self.model)
        except ModelLoadError:
            self.close()
            raise
        self.trained_context_tokens: int = lib.llama_model_n_ctx_train(self.model)
        #: Whether an instance can forget the end of what it holds.  Recurrent models cannot, and
        #: those with a sliding window have already lost what they would need.
        self.rewinds = not (
            lib.llama_model_is_recurrent(self.model)
            or lib.llama_model_is_hybrid(self.model)
            or lib.llama_model_n_swa(self.model) > 0
        )

    def _check(self) -> None:
        lib = self._lib
        for found, what in (
            (lib.llama_model_has_encoder, "has an encoder"),
            (lib.llama_model_is_diffusion, "is a diffusion model"),
        ):
            if found(self.model):
                raise ModelLoadError(f"it {what}; only models that continue text can be run")
        if not lib.llama_model_n_ctx_train(self.model) > 0:
            raise ModelLoadError("it says of no context how long it may be")

    def close(self) -> None:
        """Free it; every instance must be closed before."""
        if self.model:
            self._lib.llama_model_free(self.model)
            self.model = None

    @property
    def chat_template(self) -> str | None:
        """The file's own chat template, in Jinja."""
        template: bytes | None = self._lib.llama_model_chat_template(self.model, None)
        return None if template is None else template.decode("utf-8", errors="replace")

    def recommended(self) -> dict[str, float]:
        """Return the sampling parameters that the file recommends, by our names for them."""
        found: dict[str, float] = {}
        for key, name in _RECOMMENDED.items():
            text = self._text(f"general.sampling.{key}")
            if text is not None:
                try:
                    found[name] = float(text)
                except ValueError:
                    continue  # no number: no recommendation
        return found

    def context_bytes(self, tokens: int, batch_tokens: int) -> int | None:
        """Return about how much memory a context of so many tokens takes.

        That is each token's keys and values, and which tokens of a batch look at which of the
        context.  None for models that keep less than that.
        """
        architecture = self._text("general.architecture")
        compressed = self._text(f"{architecture}.attention.kv_lora_rank") is not None
        if compressed or not self.rewinds:
            return None
        lib, model = self._lib, self.model
        width = lib.llama_model_n_embd(model) // max(1, lib.llama_model_n_head(model))
        key, value = (
            int(self._text(f"{architecture}.attention.{what}_length") or width)
            for what in ("key", "value")
        )
        heads = lib.llama_model_n_head_kv(model) * lib.llama_model_n_layer(model)
        return int(tokens * (heads * (key + value) + batch_tokens) * _BYTES_A_NUMBER)

    def _text(self, key: str) -> str | None:
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        count = self._lib.llama_model_meta_val_str(self.model, key.encode(), buffer, _TEXT_BYTES)
        return buffer.value.decode("utf-8", errors="replace") if count >= 0 else None


def _load_mode(lib: Any, mmap: bool, mlock: bool) -> Any:
    if mmap:
        return lib.LLAMA_LOAD_MODE_MMAP_MLOCK if mlock else lib.LLAMA_LOAD_MODE_MMAP
    return lib.LLAMA_LOAD_MODE_MLOCK if mlock else lib.LLAMA_LOAD_MODE_NONE


def _why(said: list[str]) -> str:
    """Return a sentence from what the library logged; its last line says only that it failed."""
    causes = [line for line in said if "error loading model" in line]
    line = (causes or said or ["llama.cpp does not say why"])[0]
    return f"llama.cpp cannot load it: {line.split('error loading model:')[-1].strip()}"
