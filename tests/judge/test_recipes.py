"""A recipe in JSON is read as what it says, written as what it is, or refused by name."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quenchz.recipes import RecipeError, parse_recipe, read_recipe, write_recipe
from quenchz_spec.codec import encode
from quenchz_spec.resources import Edit, Uri
from quenchz_spec.strategies.audiences import (
    listed,
    lists_with_us,
    literal,
    one,
    other_resources,
    unnamed_audiences,
)
from quenchz_spec.vocabulary import (
    OURS,
    Audience,
    AudienceForm,
    Claim,
    Filler,
    OurKey,
    RawJson,
    SecondsFromNow,
    Shape,
    Signature,
    TokenRecipe,
)

RESOURCE = "https://rates.quenchz.invalid/mcp"
ABSENT = Audience(AudienceForm.ABSENT, ())
BROAD = TokenRecipe(caller="broad")

BY_HAND: list[tuple[str, TokenRecipe]] = [
    ("{}", BROAD),
    ('{"aud": "%us%"}', BROAD),
    (
        '{"aud": ["%us%", "https://other.example/mcp"]}',
        TokenRecipe(caller="broad", audience=literal('["%us%", "https://other.example/mcp"]')),
    ),
    ('{"aud": null}', TokenRecipe(caller="broad", audience=literal("null"))),
    ('{"aud": {"raw": "[1e400]"}}', TokenRecipe(caller="broad", audience=literal("[1e400]"))),
    ('{"without": ["aud", "iss"]}', TokenRecipe(caller="broad", audience=ABSENT, without=("iss",))),
    (
        '{"claims": {"exp": "-3600", "nbf": "+60", "iat": "yesterday", "jti": {"raw": "1e400"}, "x": {"y": [null]}}}',
        TokenRecipe(
            caller="broad",
            claims=(
                Claim("exp", SecondsFromNow(-3600)),
                Claim("nbf", SecondsFromNow(60)),
                Claim("iat", "yesterday"),
                Claim("jti", RawJson("1e400")),
                Claim("x", {"y": [None]}),
            ),
        ),
    ),
    (
        '{"header": {"typ": "JWT", "kid": {"filler": 3}}, "without_header": ["alg"], "shape": "four", "generation": 1}',
        TokenRecipe(
            caller="broad",
            header=(Claim("typ", "JWT"), Claim("kid", Filler(3))),
            without_header=("alg",),
            shape=Shape.FOUR,
            generation=1,
        ),
    ),
    (
        '{"signature": "stranger", "issuer": "stranger", "serial": 3}',
        TokenRecipe(caller="broad", signature=Signature.STRANGER, issuer="stranger", serial=3),
    ),
]


@pytest.mark.parametrize(("text", "recipe"), BY_HAND, ids=[text for text, _ in BY_HAND])
def test_a_recipe_by_hand_says_what_it_says(text: str, recipe: TokenRecipe) -> None:
    assert parse_recipe(json.dumps({"caller": "broad", **json.loads(text)})) == recipe


def test_an_object_with_a_tag_is_in_the_codecs_form() -> None:
    recipe = TokenRecipe(caller="broad", audience=one(Edit.SUFFIX, "/x"), claims=(Claim("exp", RawJson("1e400")),))
    assert parse_recipe(json.dumps(encode(recipe))) == recipe


def _with_claim(value: str) -> str:
    claim = f'{{"!": "Claim", "name": "x", "value": {value}}}'
    return f'{{"!": "TokenRecipe", "caller": "a", "claims": {{"!": "tuple", "of": [{claim}]}}}}'


WRONG: list[tuple[str, str]] = [
    ("{", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("[]", "caller is None"),
    ('{"caller": 7}', "caller is 7; expected the name"),
    ('{"caller": "a", "audience": "x"}', "audience is no member of a recipe; it has caller, aud"),
    ('{"caller": "a", "signature": "forged"}', "signature is 'forged'; expected one of own, stranger"),
    ('{"caller": "a", "signature": []}', r"signature is \[\]; expected one of"),
    ('{"caller": "a", "claims": []}', r"claims is \[\]; expected an object"),
    ('{"caller": "a", "without": "aud"}', "without is 'aud'; expected a list"),
    ('{"caller": "a", "without": [7]}', r"recipe\.without\[0\] is of type int; expected str"),
    ('{"caller": "a", "aud": "x", "without": ["aud"]}', "aud is both given and left out"),
    ('{"caller": "a", "issuer": "me"}', "issuer is 'me'; expected"),
    ('{"caller": "a", "issuer": 7}', r"recipe\.issuer is of type int"),
    ('{"caller": "a", "serial": true}', r"recipe\.serial is of type bool; expected int"),
    ('{"caller": "a", "header": {"kid": {"filler": 9000000}}}', r"header\[0\]\.value is a filler of 9000000 letters"),
    ('{"!": "TokenRecipe"}', "cannot be decoded"),
    ('{"!": []}', "cannot be decoded"),
    ('{"!": "Uri"}', "recipe is of type Uri; expected TokenRecipe"),
    ('{"!": "TokenRecipe", "caller": 7}', r"recipe\.caller is of type int"),
    ('{"!": "TokenRecipe", "caller": "a", "audience": "x"}', r"recipe\.audience is of type str; expected Audience"),
    (
        '{"!": "TokenRecipe", "caller": "a", "claims": {"!": "tuple", "of": ["x"]}}',
        r"recipe\.claims\[0\] is of type str; expected Claim",
    ),
    (
        _with_claim('{"!": "date", "iso": "2026-01-01"}'),
        r"claims\[0\]\.value is no JSON value",
    ),
    (
        _with_claim('{"!": "SecondsFromNow", "seconds": "1"}'),
        r"claims\[0\]\.value\.seconds is of type str",
    ),
    ('{"!": "TokenRecipe", "caller": ' + "[" * 900 + "]" * 900 + "}", "cannot be decoded|of type list"),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[text[:60] for text, _ in WRONG])
def test_what_is_no_recipe_is_refused_by_member_value_and_fix(text: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        parse_recipe(text)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.just("-3600"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["!", "raw", "of", "name", "value", "caller", "aud", "claims"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, database=None)
@given(data=ANY_JSON | st.fixed_dictionaries({"!": st.just("TokenRecipe"), "caller": ANY_JSON, "audience": ANY_JSON}))
def test_any_json_is_a_recipe_or_refused(data: Any) -> None:
    try:
        assert isinstance(read_recipe(data), TokenRecipe)
    except RecipeError:
        return


AUDIENCES = (
    st.just(OURS)
    | other_resources()
    | unnamed_audiences()
    | lists_with_us()
    | st.sampled_from(
        [literal('"x","aud":"%us%"'), literal("NaN"), literal('{"%us%": 1}'), literal('{"raw": "x"}'), listed(Uri())]
    )
)
RECIPES = st.builds(
    TokenRecipe,
    caller=st.sampled_from(["broad", "narrow"]),
    audience=AUDIENCES,
    signature=st.sampled_from(Signature),
    claims=st.lists(
        st.builds(
            Claim,
            st.sampled_from(["exp", "nbf", "x"]),
            ANY_JSON | st.builds(RawJson, st.text(max_size=4)) | st.builds(SecondsFromNow, st.integers(-9999, 9999)),
        ),
        max_size=2,
        unique_by=lambda claim: claim.name,
    ).map(tuple),
    without=st.sampled_from([(), ("iss",), ("iss", "exp")]),
    issuer=st.sampled_from(["trusted", "stranger"]),
    serial=st.integers(0, 3),
    header=st.sampled_from([(), (Claim("typ", "JWT"), Claim("kid", Filler(9)), Claim("x", {"filler": 9}))]),
    without_header=st.sampled_from([(), ("kid",)]),
    shape=st.sampled_from(Shape),
    generation=st.integers(0, 2),
)


def effect(claim: Claim) -> tuple[str, object]:
    """Return a claim as it is minted: text, or a moment."""
    if isinstance(claim.value, (SecondsFromNow, Filler)):
        return claim.name, claim.value
    return claim.name, claim.value.text if isinstance(claim.value, RawJson) else json.dumps(claim.value)


@settings(max_examples=300, deadline=None, database=None)
@given(recipe=RECIPES)
def test_a_recipe_survives_being_written_and_read(recipe: TokenRecipe) -> None:
    again = parse_recipe(json.dumps(write_recipe(recipe, RESOURCE)))
    written, wanted = (r.audience.json(RESOURCE) for r in (again, recipe))
    assert written == wanted
    assert [effect(claim) for claim in again.claims] == [effect(claim) for claim in recipe.claims]
    assert [effect(claim) for claim in again.header] == [effect(claim) for claim in recipe.header]
    assert dataclasses.replace(again, audience=OURS, claims=(), header=()) == dataclasses.replace(
        recipe, audience=OURS, claims=(), header=()
    )


def test_a_good_recipe_is_written_in_full_and_nothing_else_is() -> None:
    assert write_recipe(BROAD, RESOURCE) == {"caller": "broad", "aud": RESOURCE}


def test_a_recipe_that_the_form_has_no_words_for_is_never_written_as_another() -> None:
    twice = TokenRecipe(caller="broad", claims=(Claim("exp", 1), Claim("exp", 2)))
    with pytest.raises(RecipeError, match="cannot be written by hand"):
        write_recipe(twice, RESOURCE)
    with pytest.raises(RecipeError, match="a key of the judge's own"):
        write_recipe(TokenRecipe(caller="broad", header=(Claim("jwk", OurKey.JWK),)), RESOURCE)


def test_our_audience_in_another_claim_is_written_out() -> None:
    recipe = TokenRecipe(caller="broad", claims=(Claim("resource", Audience()),))
    written = write_recipe(recipe, "https://rates.example/mcp")
    assert written["claims"] == {"resource": "https://rates.example/mcp"}
    assert read_recipe(encode(recipe)) == recipe
