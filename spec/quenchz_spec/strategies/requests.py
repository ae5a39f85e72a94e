"""Requests that carry tokens oddly, and hostile header fields, drawn; the written tables stand with the properties."""

from __future__ import annotations

from hypothesis import strategies as st

from quenchz_spec.strategies.audiences import OTHER_SERVER
from quenchz_spec.vocabulary import OURS, Claim, Filler, TokenRecipe

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
Fields = tuple[tuple[str, str], ...]


def large(letters: int, *, bad: bool = False) -> TokenRecipe:
    """Return the recipe of a token with a claim of so many letters; a bad one is for another resource."""
    claims = (Claim("quenchz_filler", Filler(letters)),)
    return TokenRecipe(caller="", audience=OTHER_SERVER if bad else OURS, claims=claims)


def large_tokens() -> st.SearchStrategy[TokenRecipe]:
    """Return recipes of tokens between 8 and 64 kB, good and bad."""
    return st.builds(large, st.integers(6_000, 49_500), bad=st.booleans())


def hostile_fields() -> st.SearchStrategy[Fields]:
    """Return header fields in which a client, or an intermediary, says under which name it reached the server."""
    hosts = st.text(_LETTERS, min_size=3, max_size=12).map(lambda label: f"{label}.example")
    names = ("Host", "X-Forwarded-Host", "X-Original-Host", "X-Host", "X-Forwarded-Server", "X-HTTP-Host-Override")
    forwarded = hosts.map(lambda host: ("Forwarded", f'for="[2001:db8::1]";host={host};proto=https'))
    return st.tuples(st.tuples(st.sampled_from(names), hosts) | forwarded)


def words() -> st.SearchStrategy[str]:
    """Return words that stand nowhere by chance."""
    return st.text(_LETTERS, min_size=14, max_size=24)
