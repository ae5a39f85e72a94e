"""A token source gives exactly the token that was asked for, or says what is missing."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from quenchz.issuer import SuiteIssuer
from quenchz.tokens import FileSource, SuiteSource, TokensFileError, payload_of, read_tokens_file
from quenchz_spec.outcomes import UntestableError
from quenchz_spec.resources import Edit, Uri
from quenchz_spec.strategies.audiences import one
from quenchz_spec.subject import CallerSpec, Target
from quenchz_spec.vocabulary import (
    Audience,
    AudienceForm,
    Claim,
    RawJson,
    SecondsFromNow,
    Signature,
    TokenRecipe,
)

if TYPE_CHECKING:
    from pathlib import Path

RESOURCE = "https://rates.quenchz.invalid/mcp"
OTHER = "https://other.example/mcp"
NOW = int(time.time())


def token(**claims: Any) -> str:
    payload = {"sub": "broad", "aud": RESOURCE, "exp": NOW + 3600, **claims}
    kept = {key: value for key, value in payload.items() if value is not ...}
    parts = [json.dumps(part).encode() for part in ({"alg": "ES256"}, kept)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, b"s" * 64))


BAD = {
    "other_audience": token(aud=OTHER),
    "two_audiences": token(aud=[RESOURCE, OTHER]),
    "no_audience": token(aud=...),
    "expired": token(exp=NOW - 3600),
    "expired and for another": token(aud=OTHER, exp=NOW - 3600),
}
GOOD = [token(jti=str(n)) for n in range(3)]
DOCUMENT: dict[str, Any] = {
    "quenchz_tokens": 1,
    "resource": RESOURCE,
    "callers": {
        "broad": {"scopes": [], "token": GOOD[0], "fresh_tokens": GOOD[1:]},
        "narrow": {"token": token(sub="narrow")},
    },
    "bad_tokens": {name: {"caller": "broad", "token": text} for name, text in BAD.items()},
}
SOURCE = FileSource(DOCUMENT, RESOURCE)
BROAD = TokenRecipe(caller="broad")


def test_a_plain_recipe_gets_the_callers_tokens_by_serial() -> None:
    assert [SOURCE.token(BROAD.fresh(n), 0) for n in range(3)] == GOOD
    with pytest.raises(UntestableError, match="3 tokens of broad, not 4; add fresh_tokens"):
        SOURCE.token(BROAD.fresh(3), 0)
    with pytest.raises(UntestableError, match="no caller 'nobody'"):
        SOURCE.token(TokenRecipe(caller="nobody"), 0)


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        (TokenRecipe(caller="broad", audience=one(Edit.LITERAL, OTHER)), "other_audience"),
        (
            TokenRecipe(caller="broad", audience=Audience(AudienceForm.LIST, (Uri(), Uri(Edit.LITERAL, OTHER)))),
            "two_audiences",
        ),
        (TokenRecipe(caller="broad", audience=Audience(AudienceForm.ABSENT, ())), "no_audience"),
        (TokenRecipe(caller="broad", claims=(Claim("exp", SecondsFromNow(-3600)),)), "expired"),
    ],
)
def test_a_bad_token_is_found_by_the_one_thing_that_is_wrong_with_it(recipe: TokenRecipe, name: str) -> None:
    assert SOURCE.token(recipe, 0) == BAD[name]


@pytest.mark.parametrize(
    "recipe",
    [
        TokenRecipe(caller="broad", audience=one(Edit.SUFFIX, "/x")),
        TokenRecipe(caller="broad", audience=Audience(AudienceForm.LIST, (Uri(Edit.LITERAL, OTHER), Uri()))),
        TokenRecipe(caller="broad", audience=Audience(AudienceForm.LITERAL, (), "null")),
        TokenRecipe(caller="broad", signature=Signature.STRANGER),
        TokenRecipe(caller="broad", signature=Signature.STRANGER, audience=one(Edit.LITERAL, OTHER)),
        TokenRecipe(caller="broad", issuer="stranger"),
        TokenRecipe(caller="broad", without=("iss",)),
        TokenRecipe(caller="broad", claims=(Claim("nbf", SecondsFromNow(3600)),)),
        TokenRecipe(caller="broad", claims=(Claim("exp", 0),)),
        TokenRecipe(caller="broad", claims=(Claim("exp", RawJson("1e400")),)),
        TokenRecipe(caller="broad", claims=(Claim("exp", SecondsFromNow(3600)),)),
        TokenRecipe(caller="narrow", audience=one(Edit.LITERAL, OTHER)),
    ],
)
def test_a_token_that_the_file_does_not_hold_is_never_replaced_by_another(recipe: TokenRecipe) -> None:
    """Taken for another, a token that is refused for its own fault would pass a row that was never tried."""
    with pytest.raises(UntestableError, match=r"does not hold this token.*tokens\.source"):
        SOURCE.token(recipe, 0)


# --- the suite's issuer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [True, False])
def test_a_budget_domain_is_a_tenant_where_budgets_are_fresh(fresh: bool) -> None:
    target = Target(resource=RESOURCE, callers=(CallerSpec(name="broad", scopes=("a", "b")),), fresh_budgets=fresh)
    with SuiteIssuer() as issuer:
        source = SuiteSource(issuer, issuer.mint(RESOURCE), target)
        payloads = [payload_of(source.token(BROAD, domain)) for domain in (1, 2)]
        assert [p["iss"] for p in payloads] == (
            [issuer.tenant(1), issuer.tenant(2)] if fresh else [issuer.base_url, issuer.base_url]
        )
        assert {(p["sub"], p["scope"], p["aud"]) for p in payloads} == {("broad", "a b", RESOURCE)}
        assert source.token(BROAD, 1) == source.token(BROAD, 1)
        assert source.token(BROAD, 1) != source.token(BROAD.fresh(1), 1)
        listed = TokenRecipe(caller="broad", claims=(Claim("x", [1, {"y": 2}]),))
        assert payload_of(source.token(listed, 1))["x"] == [1, {"y": 2}]


def test_the_payload_of_what_is_no_token_is_empty() -> None:
    assert [payload_of(text) for text in ("", "a", "a.b.c", "a.bnVsbA.c", "é.ü.ß", "..")] == [{}] * 6
    assert payload_of(GOOD[0])["jti"] == "0"


# --- reading the file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "quenchz_tokens is None; expected 1"),
        ("null", "quenchz_tokens is None; expected 1"),
        ('{"quenchz_tokens": 2}', "quenchz_tokens is 2; expected 1"),
        ('{"quenchz_tokens": 1}', "resource is None; expected"),
        ('{"quenchz_tokens": 1, "resource": 7, "callers": {}}', "resource is 7; expected"),
        ('{"quenchz_tokens": 1, "resource": "r"}', "callers is missing; expected"),
        ('{"quenchz_tokens": 1, "resource": "r", "callers": []}', "callers .*; expected an object"),
        ('{"quenchz_tokens": 1, "resource": "r", "callers": {"a": {}}}', r"callers\.a\.token .*; expected"),
        ('{"quenchz_tokens": 1, "resource": "r", "callers": {"a": 7}}', r"callers\.a\.token .*; expected"),
    ],
    ids=lambda text: text[:40],
)
def test_a_tokens_file_that_cannot_be_used_is_refused_by_name(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TokensFileError, match=r"tokens\.json: " + said):
        read_tokens_file(path)


@pytest.mark.parametrize(
    "members",
    [
        {"bad_tokens": []},
        {"bad_tokens": {"x": 7}},
        {"bad_tokens": {"x": {"caller": "broad"}}},
        {"bad_tokens": {"x": {"caller": 7, "token": "t"}}},
        {"bad_tokens": {"x": {"caller": "broad", "token": 7}}},
        {"callers": {"broad": {"token": "t", "fresh_tokens": 7}}},
        {"callers": {"broad": {"token": "t", "fresh_tokens": [7]}}},
    ],
    ids=json.dumps,
)
def test_tokens_of_another_type_are_refused_before_the_first_request(members: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({**DOCUMENT, **members}), encoding="utf-8")
    with pytest.raises(TokensFileError, match=r"tokens\.json: " + next(iter(members))):
        FileSource(read_tokens_file(path), RESOURCE)


def test_an_error_never_says_a_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({**DOCUMENT, "callers": {"a": GOOD[0]}}), encoding="utf-8")
    with pytest.raises(TokensFileError) as error:
        read_tokens_file(path)
    assert GOOD[0] not in str(error.value)
    assert GOOD[0].split(".")[1] not in str(error.value)


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TokensFileError, match="no such tokens file"):
        read_tokens_file(tmp_path / "tokens.json")
    with pytest.raises(TokensFileError, match="cannot be read"):
        read_tokens_file(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(TokensFileError, match="not JSON"):
        read_tokens_file(tmp_path / "binary")
