"""Grammars of llama.cpp (GBNF), translated into the notation of the library that follows them.

The two notations are close: rules, alternatives, groups, repetitions.  Texts and sets of characters
are taken apart and written anew, character by character: the library reads as much as it can of one
text before it looks at the next, and a grammar of llama.cpp means every way to read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

#: One rule is recognised within another: a stack holds the calls.
MOST_RULES = 1000
_DEEPEST_NESTING = 30

_TOKEN = re.compile(
    r"""\s+ | \#[^\n]*
    | (?P<rule>[\w-]+) \s* ::=
    | (?P<name>[\w-]+)
    | "(?P<text>(?:\\.|[^"\\])*)"
    | \[(?P<set>\^?(?:\\.|[^\]\\])*)\]
    | (?P<times>\{\s*\d+\s*(?:,\s*\d*\s*)?\})
    | (?P<sign>[|()*+?.])""",
    re.VERBOSE,
)
_CHARACTER = re.compile(
    r"\\x(?P<x>[0-9a-fA-F]{2})|\\u(?P<u>[0-9a-fA-F]{4})|\\U(?P<U>[0-9a-fA-F]{8})"
    r"|\\(?P<escaped>.)|(?P<plain>[^\\])",
    re.DOTALL,
)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", **{sign: sign for sign in '\\"[]-^'}}
_AFTER_NOTHING = ("|", "(", "")
_POSTFIX = ("*", "+", "?")


class GbnfError(ValueError):
    """A text that is no grammar; says why."""


def lark_of_gbnf(source: str) -> str:
    """Return the rules of a grammar, beginning with ``start``.

    :raises GbnfError: if it is none, or has too many rules or parentheses.
    """
    rules = _rules(source)
    if "root" not in rules:
        raise GbnfError("there is no rule root")
    if len(rules) > MOST_RULES:
        raise GbnfError(f"there are {len(rules)} rules; at most {MOST_RULES} are allowed")
    names = {name: f"r{number}" for number, name in enumerate(rules)} | {"root": "start"}
    return "".join(
        f"{names[name]}: {' '.join(_parts(name, body, names))}\n" for name, body in rules.items()
    )


def _rules(source: str) -> dict[str, list[re.Match[str]]]:
    """Return the tokens of each rule by its name."""
    rules: dict[str, list[re.Match[str]]] = {}
    current: list[re.Match[str]] | None = None
    for token in _tokens(source):
        name = token["rule"]
        if name is not None:
            if name in rules:
                raise GbnfError(f"there are two rules {name:.50}")
            current = rules[name] = []
        elif current is None:
            raise GbnfError(f"expected name ::=, got {token[0]!r:.50}")
        else:
            current.append(token)
    return rules


def _tokens(source: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(source):
        token = _TOKEN.match(source, at)
        if token is None:
            line = source.count("\n", 0, at) + 1
            raise GbnfError(f"line {line}: cannot read {source[at : at + 20]!r}")
        if token.lastgroup is not None:
            yield token
        at = token.end()


def _parts(rule: str, body: Sequence[re.Match[str]], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the pieces of a rule's translation."""
    depth, before = 0, ""
    for token in body:
        sign = token["sign"] or ("*" if token["times"] else "")
        if sign in ("|", ")", *_POSTFIX) and before in _AFTER_NOTHING:
            if sign in _POSTFIX:
                raise GbnfError(f"rule {rule:.50}: there is nothing before {token[0]!r}")
            yield '""'
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if not 0 <= depth <= _DEEPEST_NESTING:
            what = "do not match" if depth < 0 else f"are more than {_DEEPEST_NESTING} deep"
            raise GbnfError(f"rule {rule:.50}: its parentheses {what}")
        if sign in _POSTFIX and before in _POSTFIX:
            raise GbnfError(f"rule {rule:.50}: two repetitions of the same")
        yield _part(rule, token, names)
        before = sign or token[0]
    if depth:
        raise GbnfError(f"rule {rule:.50}: its parentheses do not match")
    if before in _AFTER_NOTHING:
        yield '""'


def _part(rule: str, token: re.Match[str], names: Mapping[str, str]) -> str:
    if token["name"] is not None:
        if token["name"] not in names:
            raise GbnfError(f"rule {rule:.50}: there is no rule {token['name']:.50}")
        return names[token["name"]]
    if token["text"] is not None:
        characters = [json.dumps(character) for character in _characters(token["text"])]
        return f"({' '.join(characters)})" if characters else '""'
    if token["set"] is not None:
        return _set(rule, token["set"])
    return r"/(?s:.)/" if token[0] == "." else token[0]


def _set(rule: str, text: str) -> str:
    """Return a set of characters as a regular expression."""
    negated = text.startswith("^")
    items = list(_CHARACTER.finditer(text, pos=int(negated)))
    written, at = "", 0
    while at < len(items):
        first = last = _character(items[at])
        if at + 2 < len(items) and items[at + 1][0] == "-":
            last = _character(items[at + 2])
            at += 2
        if first > last:
            raise GbnfError(f"rule {rule:.50}: in [{text:.50}] a range begins after its end")
        written += rf"\u{{{ord(first):x}}}-\u{{{ord(last):x}}}"
        at += 1
    if not written:
        raise GbnfError(f"rule {rule:.50}: [{text}] has no characters")
    return f"/[{'^' if negated else ''}{written}]/"


def _characters(text: str) -> Iterator[str]:
    for item in _CHARACTER.finditer(text):
        yield _character(item)


def _character(item: re.Match[str]) -> str:
    code = item["x"] or item["u"] or item["U"]
    if code is None:
        escaped = item["escaped"]
        if escaped is not None and escaped not in _ESCAPED:
            raise GbnfError(f"there is no escape \\{escaped}")
        return item["plain"] if escaped is None else _ESCAPED[escaped]
    number = int(code, 16)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise GbnfError(f"{item[0]} is no character")
    return chr(number)
