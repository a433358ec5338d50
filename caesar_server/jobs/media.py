"""Images and audio in chats: for backends that take them, and for nobody else."""

from __future__ import annotations

from caesar_server.contract.backend import Capabilities
from caesar_server.contract.errors import InvalidRequestError
from caesar_server.contract.request import ChatRequest, Request


def check_media(request: Request, capabilities: Capabilities, backend: str) -> None:
    """Refuse images and audio that the backend would not look at.

    A chat that becomes a prompt or a question for research has no place for them.

    :param request: as it came in, since the message names the part by its place.
    :param backend: its name, for messages.
    :raises InvalidRequestError: naming the first such part in ``param``.
    """
    if not isinstance(request, ChatRequest):
        return
    for place, part in request.media:
        name = "images" if part.image is not None else "audio"
        able = getattr(capabilities, name) and request.type in capabilities.accepts
        if able or name in capabilities.ignores:
            continue
        raise InvalidRequestError(
            f"{place}: the backend {backend!r} does not take {name}; leave this part out, or name "
            f"a model of a backend that takes {name}",
            param=place,
            code="unsupported_parameter",
        )
