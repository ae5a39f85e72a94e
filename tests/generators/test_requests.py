"""Odd requests of every sort can be drawn, and each is what its row says."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import Phase, find, given, settings

from quenchz.mint import Mint, SigningKey
from quenchz.placing import _FIELDS
from quenchz_spec.admissions import REFUSALS
from quenchz_spec.strategies.requests import Fields, hostile_fields, large_tokens, words
from quenchz_spec.test_placement import ELSEWHERE, LARGE_TOKENS, SEVERAL, Said, several_credentials
from quenchz_spec.test_refusals import ECHOES, MARK, marked
from quenchz_spec.vocabulary import OURS, Place, TokenRecipe

FAST = settings(max_examples=100, deadline=None, database=None, phases=[Phase.generate])
SEARCH = settings(FAST, max_examples=5000)
RESOURCE = "https://rates.example/mcp"
MINT = Mint(
    "https://issuer.example",
    SigningKey.generate("k"),
    SigningKey.generate("s"),
    "https://s.example",
    RESOURCE,
    time.time,
)


def minted(recipe: TokenRecipe) -> str:
    return MINT.mint(recipe, subject="broad", scopes=("a", "b"))


# --- places ---------------------------------------------------------------------------------------------------------


def test_every_place_but_bearer_credentials_is_a_row() -> None:
    admitted = {Place.FIELD, Place.SMALL_SCHEME, Place.MIXED_SCHEME}
    assert {row.value for row in ELSEWHERE.values()} == set(Place) - admitted - {Place.JOINED}


def test_every_place_is_a_field_or_has_a_way_of_its_own() -> None:
    assert set(Place) - set(_FIELDS) == {Place.JOINED, Place.QUERY, Place.FORM, Place.BODY, Place.META}


@settings(FAST)
@given(several_credentials())
def test_several_credentials_are_two_or_more_with_one_that_is_good(drawn: Said) -> None:
    assert len(drawn) >= 2
    assert any(whose != "bad" for whose, _ in drawn)
    assert drawn[0][1] is Place.FIELD


@pytest.mark.parametrize("row", [row.value for row in SEVERAL.values() if len({w for _, w in row.value}) <= 2])
def test_pairs_in_the_field_are_reached_by_drawing(row: Said) -> None:
    if {place for _, place in row} <= {Place.FIELD, Place.JOINED}:
        assert find(several_credentials(), lambda said: said == row, settings=SEARCH) == row


# --- large tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(LARGE_TOKENS))
def test_a_large_token_is_as_large_as_its_row_says(name: str) -> None:
    token = minted(LARGE_TOKENS[name].value)
    least = 8192 if name.startswith("8 kB") else 65_536
    assert least <= len(token) < 1.15 * least
    assert (LARGE_TOKENS[name].value.audience == OURS) == name.endswith("good")


@settings(FAST)
@given(large_tokens())
def test_drawn_tokens_are_large(drawn: TokenRecipe) -> None:
    assert 8192 <= len(minted(drawn)) < 70_000


# --- hosts and words ------------------------------------------------------------------------------------------------


@settings(FAST)
@given(hostile_fields())
def test_hostile_fields_name_a_host_that_is_nobodys(drawn: Fields) -> None:
    ((name, value),) = drawn
    assert ".example" in value
    assert name.isascii()
    assert value.isprintable()


@pytest.mark.parametrize("name", ["Host", "X-Forwarded-Host", "Forwarded", "X-Original-Host"])
def test_every_field_that_names_a_host_is_drawn(name: str) -> None:
    assert find(hostile_fields(), lambda fields: fields[0][0] == name, settings=SEARCH)


@settings(FAST)
@given(words())
def test_words_are_long_and_small(drawn: str) -> None:
    assert len(drawn) >= 14
    assert drawn.isalpha()
    assert drawn == drawn.lower()


@pytest.mark.parametrize("name", list(ECHOES))
def test_a_marked_token_has_the_word_in_the_one_member(name: str) -> None:
    member, word = ECHOES[name].value
    assert word == MARK
    token = minted(marked("broad", (member, word)))
    head, payload = (base64.urlsafe_b64decode(part + "==").decode() for part in token.split(".")[:2])
    assert (word in head, word in payload) == ((True, False) if member == "kid" else (False, True))
    assert f'"{member}"' in (head if member == "kid" else payload)


def test_every_way_of_being_refused_is_a_token_of_less_than_8_kb() -> None:
    tokens = [minted(row.value) for row in REFUSALS.values() if row.value is not None]
    assert len(set(tokens)) == len(tokens) >= 7
    assert max(map(len, tokens)) < 8192
