"""marshmallow fields for JSON: strict about types, clear about what was expected."""

from caesar_server.web.fields.json_types import (
    MAX_INTEGER,
    MAX_ITEMS,
    Array,
    Boolean,
    Id,
    Integer,
    ModelName,
    Number,
    Object,
    Text,
    described,
    within,
)
from caesar_server.web.fields.loading import load_object
from caesar_server.web.fields.problems import (
    Problem,
    WrongType,
    problems_in,
    shown,
    wrong,
    wrong_type,
)
from caesar_server.web.fields.schema import NullIsAbsent, means

__all__ = [
    "MAX_INTEGER",
    "MAX_ITEMS",
    "Array",
    "Boolean",
    "Id",
    "Integer",
    "ModelName",
    "NullIsAbsent",
    "Number",
    "Object",
    "Problem",
    "Text",
    "WrongType",
    "described",
    "load_object",
    "means",
    "problems_in",
    "shown",
    "within",
    "wrong",
    "wrong_type",
]
