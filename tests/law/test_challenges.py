"""A challenge parses if it follows the grammar of RFC 9110 §11, and not a byte more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quenchz_spec.claims import Challenge, parse_challenges

GOOD: dict[str, list[tuple[str, dict[str, str]]]] = {
    "Bearer": [("bearer", {})],
    'Bearer realm="a, b"': [("bearer", {"realm": "a, b"})],
    'BEARER error="invalid_token",resource_metadata="https://a/b"': [
        ("bearer", {"error": "invalid_token", "resource_metadata": "https://a/b"})
    ],
    'Basic realm="x", Bearer a=b': [("basic", {"realm": "x"}), ("bearer", {"a": "b"})],
    "Negotiate abc==, Bearer": [("negotiate", {}), ("bearer", {})],
    "Bearer abc": [("bearer", {})],
    'Bearer A = "b"  ,\tc=d': [("bearer", {"a": "b", "c": "d"})],
    r'Newauth realm="apps", type=1, title="Login to \"apps\"", Basic realm="simple"': [
        ("newauth", {"realm": "apps", "type": "1", "title": 'Login to "apps"'}),
        ("basic", {"realm": "simple"}),
    ],
    'Bearer a=""': [("bearer", {"a": ""})],
    'Bearer a="\xe9\t"': [("bearer", {"a": "\xe9\t"})],
}
BAD = [
    "",
    "Bearer resource_metadata=https://a/b",
    'Bearer a="b',
    'Bearer a="b" c="d"',
    'Bearer a="b",',
    'Bearer a="b",,c="d"',
    ", Bearer",
    'Bearer a="The "aud" is wrong"',
    "Bearer a=b, A=c",
    "Bearer: a=b",
    'Bearer "a"',
    "Bearer a b",
    "Bearer abc==, d=e",
    'Bearer a="\x01"',
    "Bearer\ta=b",
    "Bearer a==b",
    'Bearer a="b"; c="d"',
    r'Bearer a="b\"',
]


@pytest.mark.parametrize("value", list(GOOD))
def test_what_follows_the_grammar_is_read(value: str) -> None:
    assert parse_challenges(value) == [Challenge(scheme, parameters) for scheme, parameters in GOOD[value]]


@pytest.mark.parametrize("value", BAD)
def test_what_breaks_the_grammar_is_not_read(value: str) -> None:
    assert parse_challenges(value) is None


TOKENS = st.text("abcXYZ019!#$%&'*+-.^_`|~", min_size=1, max_size=8)
QUOTED = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=12)
CHALLENGES = st.lists(
    st.tuples(TOKENS, st.dictionaries(TOKENS.map(str.lower), QUOTED, max_size=3)), min_size=1, max_size=3
)


def quoted(text: str) -> str:
    return '"' + "".join("\\" + letter if letter in '"\\' else letter for letter in text) + '"'


@settings(max_examples=200, deadline=None, database=None)
@given(CHALLENGES)
def test_what_is_written_by_the_grammar_comes_back(drawn: list[tuple[str, dict[str, str]]]) -> None:
    written = ", ".join(
        " ".join([scheme, ", ".join(f"{name}={quoted(value)}" for name, value in parameters.items())]).strip()
        for scheme, parameters in drawn
    )
    assert parse_challenges(written) == [Challenge(scheme.lower(), parameters) for scheme, parameters in drawn]


@settings(max_examples=500, deadline=None, database=None)
@given(st.text('Bearer a="\\,\t=x', max_size=40))
def test_no_text_is_read_in_part(value: str) -> None:
    """Whatever parses still does with another challenge after it, and does not with a quotation mark after it."""
    if (found := parse_challenges(value)) is not None:
        assert parse_challenges(value + ", Other") == [*found, Challenge("other", {})]
        assert parse_challenges(value + '"') is None
