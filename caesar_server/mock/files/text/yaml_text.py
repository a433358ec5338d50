"""YAML, with the place of each value.

Plain scalars mean what YAML 1.2 says they mean: ``no`` and ``12:30`` are strings.  Anchors and
merge keys work; tags do not.  Imported only for YAML: PyYAML comes with the extra ``mock``.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from caesar_server.mock.files.problems import Path
from caesar_server.mock.files.text.document import (
    MAX_DEPTH,
    MAX_VALUES,
    Document,
    Place,
    check_values,
    failure,
)

_STR = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_MAP = "tag:yaml.org,2002:map"
_SEQ = "tag:yaml.org,2002:seq"
#: The core schema of YAML 1.2 but for infinities and NaN, which JSON does not have.
_RESOLVERS = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?",
        list("-+.0123456789"),
    ),
    (_MERGE, r"<<", ["<"]),
)


def read_yaml(name: str, text: str) -> Document:
    """Return the document of a text.

    :raises FixturesError: if it is no YAML, or more than JSON can say, or has a key twice, or is
        too large.
    """
    try:
        node = yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else None
        problem = error.problem or error.context or "it cannot be read"
        raise failure(name, f"is not valid YAML: {problem}", place) from None
    except yaml.reader.ReaderError as error:
        place = _place_of(text, error.position)
        # typed as text, but its code where there was text to begin with
        letter = repr(text[error.position : error.position + 1])
        message = f"is not valid YAML: the character {letter} must be written as an escape"
        raise failure(name, message, place) from None
    except RecursionError:
        raise failure(name, "is nested too deeply") from None
    except (ValueError, OverflowError):
        # PyYAML does not look whether an escape such as \UFFFFFFFF is a character
        raise failure(name, "is not valid YAML: an escape stands for no character") from None
    if node is None:
        return Document(name, None)
    walk = _Walk(name)
    document = Document(name, walk.value(node, (), ()), walk.places)
    check_values(document)
    return document


class _CoreLoader(yaml.SafeLoader):
    """Knows the plain scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - typed so by PyYAML


for _tag, _pattern, _first in _RESOLVERS:
    _CoreLoader.add_implicit_resolver(_tag, re.compile(f"(?:{_pattern})$"), _first)


def _place_of(text: str, position: int) -> Place:
    before = text[:position]
    return before.count("\n") + 1, position - before.rfind("\n")


class _Walk:
    """Makes data of nodes."""

    def __init__(self, name: str) -> None:
        self.places: dict[Path, Place] = {}
        self._name = name

    def value(self, node: yaml.Node, path: Path, within: tuple[yaml.Node, ...]) -> Any:
        """Return the data of a node; ``within`` are the nodes around it."""
        place = _place(node)
        self.places.setdefault(path, place)
        if len(self.places) > MAX_VALUES:
            raise failure(self._name, f"has more than {MAX_VALUES} values", place, path)
        if any(node is one for one in within):
            raise failure(self._name, "an anchor is used within itself", place, path)
        if len(within) >= MAX_DEPTH:
            raise failure(self._name, "is nested too deeply", place, path)
        within = (*within, node)
        if isinstance(node, yaml.MappingNode) and node.tag == _MAP:
            return {
                key: self.value(child, (*path, key), within)
                for key, child in self._members(node, path, within).items()
            }
        if isinstance(node, yaml.SequenceNode) and node.tag == _SEQ:
            return [self.value(node.value[i], (*path, i), within) for i in range(len(node.value))]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        raise failure(self._name, f"the tag {node.tag!r} is not supported", place, path)

    def _members(
        self, node: yaml.MappingNode, path: Path, within: tuple[yaml.Node, ...]
    ) -> dict[str, yaml.Node]:
        """Return the members of a mapping; its own win over merged ones, of these the first."""
        merged: dict[str, yaml.Node] = {}
        own: dict[str, yaml.Node] = {}
        for key_node, child in node.value:
            if key_node.tag == _MERGE:
                merged = {**self._merged(child, path, within), **merged}
                continue
            key = self._key(key_node, path)
            if key in own:
                raise failure(self._name, "is there twice", _place(key_node), (*path, key))
            own[key] = child
            self.places.setdefault((*path, key), _place(key_node))
        return {**merged, **own}

    def _merged(
        self, node: yaml.Node, path: Path, within: tuple[yaml.Node, ...]
    ) -> dict[str, yaml.Node]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found: dict[str, yaml.Node] = {}
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                raise failure(self._name, "<< takes objects", _place(source), path)
            if any(source is one for one in within) or len(within) >= MAX_DEPTH:
                raise failure(self._name, "an anchor is used within itself", _place(source), path)
            found = {**self._members(source, path, (*within, source)), **found}
        return found

    def _key(self, node: yaml.Node, path: Path) -> str:
        if node.tag != _STR or not isinstance(node, yaml.ScalarNode):
            message = "keys are strings, not lists or objects"
            if isinstance(node, yaml.ScalarNode):
                message = f"keys are strings: write {node.value!r} in quotes"
            raise failure(self._name, message, _place(node), path)
        return str(node.value)

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text, kind = node.value, node.tag.rpartition(":")[2]
        try:
            if node.tag in (_STR, _MERGE):
                return text
            if kind == "null" and text in ("", "~", "null", "Null", "NULL"):
                return None
            if kind == "bool" and text.lower() in ("true", "false"):
                return text.lower() == "true"
            if kind == "int":
                return int(text, 0 if text[:2] in ("0o", "0x") else 10)
            if kind == "float":
                return float(text)
        except ValueError:
            message = f"{text[:40]!r} is no number, or one with too many digits"
            raise failure(self._name, message, _place(node), path) from None
        raise failure(self._name, f"the tag {node.tag!r} is not supported", _place(node), path)


def _place(node: yaml.Node) -> Place:
    mark = node.start_mark
    return mark.line + 1, mark.column + 1
