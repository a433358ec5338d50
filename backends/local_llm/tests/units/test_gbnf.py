"""The grammars of llama.cpp in another notation."""

from __future__ import annotations

import pytest

from caesar_backend_local_llm.engine.grammars.gbnf import GbnfError, lark_of_gbnf


@pytest.mark.parametrize(
    ("gbnf", "lark"),
    [
        ('root ::= "ab" | "c"', 'start: ("a" "b") | ("c")\n'),
        ('root ::= ""', 'start: ""\n'),
        ('root ::= | "a" |', 'start: "" | ("a") | ""\n'),
        ('root ::= ( | "a")', 'start: ( "" | ("a") )\n'),
        ("root ::= item{2,3} item{4} item{5,}\nitem ::= .", None),
        ("root ::= [a-c]*", "start: /[\\u{61}-\\u{63}]/ *\n"),
        ('root ::= [^"\\\\\\x7F]', "start: /[^\\u{22}-\\u{22}\\u{5c}-\\u{5c}\\u{7f}-\\u{7f}]/\n"),
        (
            "root ::= [-a^\\]]",
            "start: /[\\u{2d}-\\u{2d}\\u{61}-\\u{61}\\u{5e}-\\u{5e}\\u{5d}-\\u{5d}]/\n",
        ),
        ('root ::= "\\u00e9\\U0001F642\\x41\\n" # "', None),
        ('root ::= "("   # (\n  | ")"', 'start: ("(") | (")")\n'),
        ('root ::= a-b\na-b ::= "x"\n', 'start: r1\nr1: ("x")\n'),
    ],
)
def test_translations(gbnf: str, lark: str | None) -> None:
    found = lark_of_gbnf(gbnf)
    assert lark is None or found == lark


def test_characters_by_their_number() -> None:
    found = lark_of_gbnf('root ::= "\\u00e9\\U0001F642\\x41\\n"')
    assert found == 'start: ("\\u00e9" "\\ud83d\\ude42" "A" "\\n")\n'


@pytest.mark.parametrize(
    ("gbnf", "words"),
    [
        ("", "no rule root"),
        ('Root ::= "x"', "no rule root"),
        ('root := "x"', "expected name ::=, got 'root'"),
        ("root ::= missing", "rule root: there is no rule missing"),
        ('root ::= "a"\nroot ::= "b"', "two rules root"),
        ('root ::= "a', "line 1: cannot read"),
        ('root ::= "a"\n  [b', "line 2: cannot read"),
        ("root ::= (", "parentheses do not match"),
        ('root ::= "a")', "parentheses do not match"),
        ("root ::= *", "nothing before '*'"),
        ('root ::= "a" | {2}', "nothing before '{2}'"),
        ('root ::= "a"*+', "two repetitions"),
        ("root ::= []", "has no characters"),
        ("root ::= [z-a]", "begins after its end"),
        ('root ::= "\\q"', "no escape \\q"),
        ('root ::= "\\ud800"', "is no character"),
        ('root ::= "\\UFFFFFFFF"', "is no character"),
        ("root ::= " + "(" * 31 + '"a"' + ")" * 31, "more than 30 deep"),
        ('root ::= "a"\n' + "\n".join(f'r{n} ::= "a"' for n in range(1000)), "1001 rules"),
    ],
)
def test_what_is_no_grammar(gbnf: str, words: str) -> None:
    with pytest.raises(GbnfError) as caught:
        lark_of_gbnf(gbnf)
    assert words in str(caught.value)


def test_a_long_one_takes_no_longer_than_its_length() -> None:
    lark_of_gbnf("root ::= " + " ".join(['"a"', "[b-c]", "(", ")"] * 3000))
