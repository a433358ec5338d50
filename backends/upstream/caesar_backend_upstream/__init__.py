"""A backend for the Caesar server that passes requests on to OpenAI-compatible servers."""

from caesar_backend_upstream.backend import UpstreamBackend
from caesar_backend_upstream.options import ServerOptions, UpstreamOptions

__all__ = ["ServerOptions", "UpstreamBackend", "UpstreamOptions"]
