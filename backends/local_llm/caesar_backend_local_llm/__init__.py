"""A backend for the Caesar server that runs GGUF models in its own process."""

from caesar_backend_local_llm.backend import LocalLlmBackend
from caesar_backend_local_llm.options import LocalLlmOptions, ModelOptions

__all__ = ["LocalLlmBackend", "LocalLlmOptions", "ModelOptions"]
