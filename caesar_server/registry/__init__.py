"""How backends are found, loaded and chosen by model name.

``discovery`` knows what is installed without importing it, ``routing`` picks a name, ``loading``
turns the candidate of that name into an open backend or into the reason why not, ``class_checks``
tells which classes cannot be one.
"""

from caesar_server.registry.class_checks import methods_problem
from caesar_server.registry.discovery import (
    ENTRY_POINT_GROUP,
    Candidate,
    discover,
    extra_candidates,
    is_valid_name,
    names_file,
)
from caesar_server.registry.known import KNOWN_BACKENDS, KnownBackend
from caesar_server.registry.registry import Registry, ResolvedBackend
from caesar_server.registry.report import BackendReport, State
from caesar_server.registry.routing import GENERIC_MODEL, nearest

__all__ = [
    "ENTRY_POINT_GROUP",
    "GENERIC_MODEL",
    "KNOWN_BACKENDS",
    "BackendReport",
    "Candidate",
    "KnownBackend",
    "Registry",
    "ResolvedBackend",
    "State",
    "discover",
    "extra_candidates",
    "is_valid_name",
    "methods_problem",
    "names_file",
    "nearest",
]
