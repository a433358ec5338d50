"""Streams: a job's records as frames, and the seam through which frames reach the client."""

from caesar_server.web.streaming.framing import Framing, OpenAIFraming
from caesar_server.web.streaming.response import UNHINDERED_BYTES, stream_response
from caesar_server.web.streaming.wire import WIRE_KEY, Wire, wire_of

__all__ = [
    "UNHINDERED_BYTES",
    "WIRE_KEY",
    "Framing",
    "OpenAIFraming",
    "Wire",
    "stream_response",
    "wire_of",
]
