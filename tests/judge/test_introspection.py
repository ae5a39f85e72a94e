"""Opaque tokens: the issuer says of each what its recipe says, and a target that has them is asked about no others."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from quenchz.introspection import References
from quenchz.issuer import SuiteIssuer
from quenchz.mint import Redactor, UnmintableError
from quenchz.tokens import IssuerSource, SuiteSource, minted_by
from quenchz.web import is_bearer_token
from quenchz_spec.outcomes import NotDeclaredError, UntestableError
from quenchz_spec.strategies.audiences import OTHER_SERVER, literal
from quenchz_spec.subject import CallerSpec, Target
from quenchz_spec.vocabulary import (
    Ask,
    Claim,
    Credential,
    Filler,
    Introspection,
    RawJson,
    SecondsFromNow,
    Shape,
    Signature,
    TokenRecipe,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quenchz.tokens import TokenSource

RESOURCE = "https://rates.quenchz.invalid/mcp"
FORM = "application/x-www-form-urlencoded"
BROAD = TokenRecipe(caller="broad")
OPAQUE = TokenRecipe(caller="broad", shape=Shape.OPAQUE)
TARGET = Target(
    resource=RESOURCE,
    callers=(CallerSpec(name="broad", scopes=("a", "b")),),
    profiles=("introspection",),
    fresh_budgets=True,
)


@pytest.fixture(scope="module")
def issuer() -> Iterator[SuiteIssuer]:
    with SuiteIssuer(grants=True) as running:
        yield running


def minted(issuer: SuiteIssuer, /, **changes: Any) -> str:
    recipe = TokenRecipe(caller="broad", shape=Shape.OPAQUE, **changes)
    return issuer.mint(RESOURCE).mint(recipe, subject="broad", scopes=["a", "b"], issuer=issuer.tenant(3))


def asked(url: str, form: dict[str, str], media_type: str = FORM, timeout: float = 5) -> tuple[int, str, str]:
    """Return status, media type and body of the answer to a question."""
    data = urllib.parse.urlencode(form).encode()
    request = urllib.request.Request(url, data, {"Content-Type": media_type})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers["Content-Type"], refused.read().decode()


def about(issuer: SuiteIssuer, token: str, tenant: str = "") -> Any:
    status, media_type, body = asked(f"{issuer.base_url}{tenant}/introspect", {"token": token})
    assert (status, media_type) == (200, "application/json")
    return json.loads(body)


# --- what the issuer says -------------------------------------------------------------------------------------------


def test_an_opaque_token_is_a_reference_that_its_issuer_can_read(issuer: SuiteIssuer) -> None:
    one, other = minted(issuer), minted(issuer)
    assert one != other
    assert is_bearer_token(one)
    assert "." not in one
    told = about(issuer, one)
    assert told["active"] is True
    assert (told["iss"], told["sub"], told["aud"]) == (issuer.tenant(3), "broad", RESOURCE)
    assert (told["scope"], told["client_id"]) == ("a b", "broad")
    assert told["exp"] > time.time() + 3600


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"claims": (Claim("active", False),)}, '"active":false,'),
        ({"claims": (Claim("active", "true"),)}, '"active":"true",'),
        ({"claims": (Claim("exp", RawJson("1e400")),)}, '"exp":1e400,'),
        ({"audience": literal('"x","aud":"%us%"')}, f'"aud":"x","aud":"{RESOURCE}",'),
        ({"audience": OTHER_SERVER}, '"aud":"https://other.example/mcp",'),
    ],
    ids=["inactive", "a word", "raw JSON", "aud twice", "another aud"],
)
def test_the_answer_is_written_as_the_recipe_has_it(issuer: SuiteIssuer, changes: dict[str, Any], written: str) -> None:
    _, _, body = asked(f"{issuer.base_url}/introspect", {"token": minted(issuer, **changes)})
    assert written in body


def test_a_member_that_is_left_out_is_not_in_the_answer(issuer: SuiteIssuer) -> None:
    assert "active" not in about(issuer, minted(issuer, without=("active",)))


def test_of_a_token_of_nobody_the_issuer_says_that_it_is_not_active_and_nothing_else(issuer: SuiteIssuer) -> None:
    for token in ("", "unknown", minted(issuer, issuer="stranger")):
        assert about(issuer, token) == {"active": False}


def test_a_tenant_knows_its_own_tokens_alone(issuer: SuiteIssuer) -> None:
    token = minted(issuer)
    assert about(issuer, token, "/run-3")["active"] is True
    assert about(issuer, token, "/run-33") == {"active": False}
    assert about(issuer, token, "/run") == {"active": False}


def test_the_metadata_names_the_endpoint_of_the_issuer_that_was_asked_for(issuer: SuiteIssuer) -> None:
    place = f"{issuer.base_url}/.well-known/oauth-authorization-server"
    for tenant in ("", "/run-3"):
        with urllib.request.urlopen(place + tenant, timeout=5) as answer:
            assert json.load(answer)["introspection_endpoint"] == f"{issuer.base_url}{tenant}/introspect"


@pytest.mark.parametrize(
    ("form", "media_type"),
    [({}, FORM), ({"token": "x"}, "application/json"), ({"tokens": "x"}, FORM)],
    ids=["no token", "no form", "another name"],
)
def test_what_is_no_question_is_an_invalid_request(issuer: SuiteIssuer, form: dict[str, str], media_type: str) -> None:
    status, _, body = asked(f"{issuer.base_url}/introspect", form, media_type)
    assert (status, json.loads(body)["error"]) == (400, "invalid_request")


def test_two_tokens_in_one_question_are_an_invalid_request() -> None:
    assert References().reply(b"token=a&token=b", FORM, "https://issuer.invalid").status == 400


@pytest.mark.parametrize(
    ("introspection", "status", "media_type"),
    [(Introspection.SERVER_ERROR, 500, "application/json"), (Introspection.PAGE, 200, "text/html")],
)
def test_an_issuer_that_fails_gives_no_answer(
    issuer: SuiteIssuer, introspection: Introspection, status: int, media_type: str
) -> None:
    found = asked(f"{issuer.base_url}/introspect", {"token": minted(issuer, introspection=introspection)})
    assert found[:2] == (status, media_type)
    assert ('"active":true' in found[2]) == (introspection is Introspection.SERVER_ERROR)


def test_an_issuer_is_silent_until_it_ends() -> None:
    with SuiteIssuer() as issuer:
        question = {"token": minted(issuer, introspection=Introspection.SILENT)}
        url = f"{issuer.base_url}/introspect"
        with pytest.raises(TimeoutError):
            asked(url, question, timeout=0.3)
        ended: list[object] = []

        def wait() -> None:
            try:
                ended.append(asked(url, question))
            except OSError as error:
                ended.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
    waiting.join(2)
    assert len(ended) == 1
    assert isinstance(ended[0], OSError)  # the connection was closed without an answer


def test_the_oldest_tokens_are_forgotten_first() -> None:
    references = References(keep=2)
    for name in ("a", "b", "c"):
        references.remember(name, "https://issuer.invalid", f'{{"sub":"{name}"}}', Introspection.ANSWERED)
    said = [references.reply(f"token={name}".encode(), FORM, "https://issuer.invalid").body for name in "abc"]
    assert said == [b'{"active": false}', b'{"sub":"b"}', b'{"sub":"c"}']


def test_an_opaque_token_that_is_echoed_is_blotted_out(issuer: SuiteIssuer) -> None:
    token, redactor = minted(issuer), Redactor()
    redactor.remember(token)
    blotted, found = redactor.redact(f"so this is {token}, is it".encode())
    assert found
    assert token.encode() not in blotted


# --- where they come from -------------------------------------------------------------------------------------------


def sources(issuer: SuiteIssuer) -> list[TokenSource]:
    return [
        SuiteSource(issuer, issuer.mint(RESOURCE), TARGET, 40),
        IssuerSource(issuer.base_url, TARGET, 40),
    ]


def test_a_target_with_introspection_gets_opaque_tokens_of_the_suite(issuer: SuiteIssuer) -> None:
    for source in sources(issuer):
        token = source.token(BROAD, 2)
        assert source.token(BROAD, 2) == token
        told = about(issuer, token, "/run-42")
        assert (told["active"], told["aud"], told["scope"]) == (True, RESOURCE, "a b")
        expired = TokenRecipe(caller="broad", claims=(Claim("exp", SecondsFromNow(-60)),))
        assert about(issuer, source.token(expired, 2))["exp"] < time.time()


def test_a_running_issuer_mints_an_opaque_token_by_hand(issuer: SuiteIssuer) -> None:
    token = minted_by(issuer.base_url, {"caller": "broad", "shape": "opaque"}, RESOURCE, ["a"])
    assert about(issuer, token)["iss"] == issuer.base_url


NOT_OPAQUE: dict[str, dict[str, Any]] = {
    "a signature": {"signature": Signature.NONE},
    "a header": {"header": (Claim("kid", "x"),)},
    "a header member left out": {"without_header": ("kid",)},
    "a later key": {"generation": 1},
    "another issuer's name": {"claims": (Claim("iss", "https://x.example"),)},
    "no issuer's name": {"without": ("iss",)},
    "no expiry": {"without": ("exp",)},
    "a size": {"claims": (Claim("filler", Filler(6000)),)},
}
NOT_OPAQUE |= {shape.value: {"shape": shape} for shape in Shape if shape not in (Shape.COMPACT, Shape.OPAQUE)}


@pytest.mark.parametrize("changes", NOT_OPAQUE.values(), ids=NOT_OPAQUE)
def test_what_only_a_jwt_has_is_not_declared_by_a_target_with_introspection(changes: dict[str, Any]) -> None:
    recipe = TokenRecipe(**{"caller": "broad", **changes})
    for ask in (
        Ask(method="ping", token=recipe),
        Ask(method="ping", token=BROAD, also=(Credential(recipe),)),
        Ask(method="ping", also=(Credential(recipe),)),
    ):
        with pytest.raises(NotDeclaredError, match="reads itself"):
            TARGET.require_declared(ask)
        Target(resource=RESOURCE).require_declared(ask)


@pytest.mark.parametrize(
    "recipe",
    [
        BROAD,
        OPAQUE,
        TokenRecipe(caller="broad", audience=OTHER_SERVER, serial=3),
        TokenRecipe(caller="broad", claims=(Claim("exp", SecondsFromNow(-1)), Claim("active", None))),
        TokenRecipe(caller="broad", without=("active",), introspection=Introspection.PAGE),
        TokenRecipe(caller="broad", issuer="stranger"),
        None,
    ],
)
def test_what_an_issuer_can_say_of_a_token_is_asked(recipe: TokenRecipe | None) -> None:
    TARGET.require_declared(Ask(method="ping", token=recipe))


@pytest.mark.parametrize("name", ["a signature", "a header", "a later key", "a size", "no expiry"])
def test_an_opaque_token_with_what_only_a_jwt_has_cannot_be_minted(issuer: SuiteIssuer, name: str) -> None:
    with pytest.raises(UnmintableError, match="no header, signature or size"):
        minted(issuer, **NOT_OPAQUE[name])
    recipe = {"caller": "broad", "shape": "opaque", "signature": "none"}
    with pytest.raises(UntestableError, match="gives no token"):
        minted_by(issuer.base_url, recipe, RESOURCE, ["a"])
