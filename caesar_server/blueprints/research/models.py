"""Which backend a research request's ``model`` means."""

from __future__ import annotations

from caesar_server.errors import ValidationFailedError
from caesar_server.registry import Registry
from caesar_server.registry.routing import GENERIC_MODEL

#: The names that Caesar documents for the model that writes the answer: ``gemini-3-pro`` for
#: clients of yesterday, ``claude-opus-4.5`` in its older reference.
DOCUMENTED_MODELS = (
    "gpt-5.2",
    "gemini-3-pro",
    "gemini-3.1-pro",
    "gemini-3-flash",
    "claude-opus-4.5",
    "claude-opus-4.6",
)
_LONGEST_NAME = 100


def asked_model(registry: Registry, model: str | None) -> tuple[str, str | None]:
    """Return the name to look a backend up by, and the model that is to write the answer, if any.

    What the ``models`` table or a backend's name claims goes there; a documented name goes to the
    default backend, which may write with it.

    :raises ValidationFailedError: for any other name.
    """
    if model is None:
        return GENERIC_MODEL, None
    if registry.claims(model):
        return model, None
    if model in DOCUMENTED_MODELS:
        return GENERIC_MODEL, model
    known = ", ".join(dict.fromkeys((*DOCUMENTED_MODELS, *(one.id for one in registry.models()))))
    raise ValidationFailedError(
        f"model: {model[:_LONGEST_NAME]!r} is not known; expected one of {known}", param="model"
    )
