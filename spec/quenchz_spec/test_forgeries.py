"""Audience equality, forgeries: what the trusted issuer did not sign reaches nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from quenchz_spec import norms
from quenchz_spec.admissions import ADMITTED, NO_COST, a_changed_token_is_refused, of_broad
from quenchz_spec.outcomes import ViolationError
from quenchz_spec.requirement import Level, Norm, Row, requirement
from quenchz_spec.vocabulary import Claim, Filler, OurKey, RawJson, Shape, Signature, TokenRecipe

if TYPE_CHECKING:
    from quenchz_spec.subject import Subject

TOO_LARGE = (400, 401, 413, 431)
"""What also turns a request away whose token is too large (RFC 9110 §15.5.14, RFC 6585 §5) or no token at all
(RFC 6750 §3.1)."""


def naming(algorithm: str | RawJson, signature: Signature) -> TokenRecipe:
    """Return the recipe of a forgery whose header names an algorithm in letters of its own."""
    return TokenRecipe(caller="", signature=signature, header=(Claim("alg", algorithm),))


FORGERIES: dict[str, Row] = {
    **{kind.name.lower(): Row(kind.value, kind) for kind in Signature if kind is not Signature.OWN},
    **{
        f"alg {name}": Row(f"alg {name!r} and an empty signature", naming(name, Signature.NONE))
        for name in ("None", "NONE", "nOnE", "none ", "")
    },
    "alg null": Row("alg null and an empty signature", naming(RawJson("null"), Signature.NONE)),
    "alg absent": Row(
        "no alg and an empty signature", TokenRecipe(caller="", signature=Signature.NONE, without_header=("alg",))
    ),
    "alg none, signed": Row("alg none and a good signature", naming("none", Signature.OWN)),
    "alg twice": Row(
        "alg twice, none at last, and a good signature", naming(RawJson('"ES256","alg":"none"'), Signature.OWN)
    ),
    "alg in small letters": Row("alg es256 and a good signature", naming("es256", Signature.OWN)),
    "alg a list": Row("alg a list and a good signature", naming(RawJson('["ES256"]'), Signature.OWN)),
}


@requirement(
    "QZ-AUD-5",
    level=Level.MUST,
    claim="A token that the trusted issuer did not sign with an offered algorithm reaches nothing.",
    norm=norms.RFC9068_SIGNATURE,
    cost=NO_COST,
    control=ADMITTED,
    rows=FORGERIES,
    drawn=st.sampled_from([row.value for row in FORGERIES.values()]),
)
def test_a_forged_signature_reaches_nothing(subject: Subject, row: Signature | TokenRecipe) -> None:
    """Right claims, wrong signature, or a right one under another name."""
    recipe = of_broad(subject, row if isinstance(row, TokenRecipe) else TokenRecipe(caller="", signature=row))
    named = "".join(f" and {claim.name} {_shown(claim.value)}" for claim in recipe.header)
    held = f"a token of {recipe.caller} with the right claims, signed with {recipe.signature.value}{named}."
    a_changed_token_is_refused(subject, recipe, held)


def _shown(value: Any) -> str:
    return value.words if isinstance(value, (RawJson, Filler)) else json.dumps(value)


@requirement(
    "QZ-AUD-7",
    level=Level.MUST,
    claim="A token of an issuer that this resource does not trust reaches nothing.",
    norm=norms.RFC9068_ISSUER,
    cost=NO_COST,
    control=ADMITTED,
    rows={
        "stranger": Row("a stranger's token under the stranger's name", TokenRecipe(caller="", issuer="stranger")),
        "renamed": Row(
            "the trusted key under another issuer's name",
            TokenRecipe(caller="", claims=(Claim("iss", "https://stranger.example"),)),
        ),
        "absent": Row(
            "the trusted key under no issuer's name",
            TokenRecipe(caller="", without=("iss",)),
        ),
        "number": Row("the trusted key under a number", TokenRecipe(caller="", claims=(Claim("iss", 1),))),
        "list": Row(
            "the trusted key under a list of names",
            TokenRecipe(caller="", claims=(Claim("iss", ["https://stranger.example"]),)),
        ),
    },
    drawn=st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=12).map(
        lambda iss: TokenRecipe(caller="", claims=(Claim("iss", f"https://{iss}.example"),))
    ),
)
def test_a_token_of_another_issuer_reaches_nothing(subject: Subject, row: TokenRecipe) -> None:
    """The key alone decides nothing: the issuer's name is compared as well."""
    changed = of_broad(subject, row)
    issuer = row.claims[0].value if row.claims else ("absent" if row.without else "a stranger, who signed it")
    a_changed_token_is_refused(subject, changed, f"a token for this resource whose iss is {issuer}.")


def _stranger(*header: Claim, without: tuple[str, ...] = (), signature: Signature = Signature.STRANGER) -> TokenRecipe:
    """Return the recipe of a token that a stranger signed and to whose header something was done."""
    return TokenRecipe(caller="", signature=signature, header=header, without_header=without)


_FETCHING = Norm(
    "RFC 8725 §3.10",
    'Similarly, blindly following a "jku" (JWK set URL) or "x5u" (X.509 URL) header, which may contain an arbitrary '
    "URL, could result in server-side request forgery (SSRF) attacks. Applications SHOULD protect against such attacks",
)
"""What a fetch alone offends, when the key is not used."""

OWN_KEYS = {
    "jwk": Row("the stranger's key", _stranger(Claim("jwk", OurKey.JWK))),
    "jwk, no kid": Row("the stranger's key and no key id", _stranger(Claim("jwk", OurKey.JWK), without=("kid",))),
    "x5c": Row("a certificate of the stranger's key", _stranger(Claim("x5c", OurKey.X5C))),
    "x5c, no kid": Row(
        "a certificate of the stranger's key and no key id", _stranger(Claim("x5c", OurKey.X5C), without=("kid",))
    ),
    "jku": Row("the URL of a key set with the stranger's key", _stranger(Claim("jku", OurKey.JKU))),
    "jku, no kid": Row(
        "the URL of a key set with the stranger's key and no key id",
        _stranger(Claim("jku", OurKey.JKU), without=("kid",)),
    ),
    "x5u": Row("the URL of a certificate of the stranger's key", _stranger(Claim("x5u", OurKey.X5U))),
    "x5u, no kid": Row(
        "the URL of a certificate of the stranger's key and no key id",
        _stranger(Claim("x5u", OurKey.X5U), without=("kid",)),
    ),
    "kid a URL": Row("the URL of a key set as its key id", _stranger(Claim("kid", OurKey.JKU))),
}


@requirement(
    "QZ-AUD-14",
    level=Level.MUST,
    claim="A key that a token itself names, or says where to find, is never used and never fetched.",
    norm=norms.RFC9068_KEYS,
    cost=NO_COST,
    control=ADMITTED,
    rows=OWN_KEYS,
    drawn=st.sampled_from([row.value for row in OWN_KEYS.values()]),
)
def test_a_key_that_a_token_names_itself_is_never_used(subject: Subject, row: TokenRecipe) -> None:
    """Each of these tokens verifies with the key that it brings along; nobody else vouches for that key.

    The URLs are the suite's own, and nothing but a token names them.
    """
    recipe = of_broad(subject, row)
    named = " and ".join(f"{claim.name} is {claim.value.value}" for claim in recipe.header)
    held = f"a token with the right claims, signed by a stranger, in whose header {named}."
    urls = [claim for claim in recipe.header if claim.value in (OurKey.JKU, OurKey.X5U)]
    before = subject.issuer({}).get("canary") if urls else None
    a_changed_token_is_refused(subject, recipe, held)
    after = subject.issuer({}).get("canary") if urls else None
    if before != after:
        raise ViolationError(
            held=held,
            sent="the token.",
            received=f"a refusal, and a request for the URL in {urls[0].name}.",
            expected="no request for what a token names.",
            signature="what a token names was fetched",
            norm=_FETCHING,
        )


_EXTENSION = "https://quenchz.invalid/extension"
NO_JWS = {
    **{
        shape.name.lower(): Row(shape.value, TokenRecipe(caller="", shape=shape))
        for shape in Shape
        if shape not in (Shape.COMPACT, Shape.OPAQUE)
    },
    "unknown extension": Row(
        "a critical extension that nobody knows",
        TokenRecipe(caller="", header=(Claim("crit", [_EXTENSION]), Claim(_EXTENSION, 1))),
    ),
    "absent extension": Row(
        "a critical extension that is not there", TokenRecipe(caller="", header=(Claim("crit", [_EXTENSION]),))
    ),
    "unencoded payload": Row(
        "the critical extension b64, whose payload is not encoded",
        TokenRecipe(caller="", header=(Claim("crit", ["b64"]), Claim("b64", False))),
    ),
}
"""A member `zip`, or `b64` without `crit`, may be ignored or refused (RFC 7515 §4), so no row has it."""


@requirement(
    "QZ-AUD-15",
    level=Level.MUST,
    claim="What is no signed JWT in its compact form, or demands an extension, reaches nothing.",
    norm=norms.RFC7519_VALIDATION,
    cost="None: an issuer that encrypts tokens to a resource has a key of that resource.",
    control=ADMITTED,
    rows=NO_JWS,
    drawn=st.sampled_from([row.value for row in NO_JWS.values()]),
)
def test_a_token_of_another_shape_reaches_nothing(subject: Subject, row: TokenRecipe) -> None:
    """Everything else about these tokens is right, as far as they have it: the trusted issuer signed what is there."""
    recipe = of_broad(subject, row)
    what = recipe.shape.value if recipe.shape is not Shape.COMPACT else "three segments"
    what += "".join(f", {claim.name} {json.dumps(claim.value)}" for claim in recipe.header)
    no_token = recipe.shape in (Shape.EMPTY, Shape.JSON)  # by the grammar of RFC 6750 §2.1
    statuses = (400, 401) if no_token else (401,)
    a_changed_token_is_refused(subject, recipe, f"what would be a token of {recipe.caller}: {what}.", statuses)


def _kid(value: Any, signature: Signature = Signature.STRANGER) -> TokenRecipe:
    return _stranger(Claim("kid", value), signature=signature)


KEY_IDS = {
    "unknown": Row("an unknown key id", _kid("no-such-key")),
    "absent": Row("no key id", _stranger(without=("kid",))),
    "empty": Row("an empty key id", _kid("")),
    "path": Row("a path to an empty file", _kid("../../../../../../../../dev/null", Signature.HS256_EMPTY)),
    "absolute path": Row("the path of an empty file", _kid("/dev/null", Signature.HS256_EMPTY)),
    "file URL": Row("the URL of an empty file", _kid("file:///dev/null", Signature.HS256_EMPTY)),
    "SQL that selects nothing": Row(
        "SQL that selects an empty text", _kid("x' UNION SELECT '' -- ", Signature.HS256_EMPTY)
    ),
    "SQL that is always true": Row("SQL that is always true", _kid("x' OR '1'='1")),
    "a lone quote": Row("SQL that does not parse", _kid("'")),
    "wildcard": Row("a pattern that fits every key id", _kid("%")),
    "query": Row("a query document that fits every key id", _kid({"$ne": None})),
    "inherited name": Row("a name that every object has", _kid("__proto__")),
    "NUL": Row("a NUL", _kid("\x00")),
    "lone surrogate": Row("half a character", _kid(RawJson('"\\ud800"'))),
    "number": Row("a number", _kid(0)),
    "null": Row("null", _kid(None)),
    "list": Row("a list", _kid(["quenchz-suite-1"])),
    "twice": Row("two key ids", _kid(RawJson('"a","kid":"b"'))),
    "10,000 letters": Row("a key id of 10,000 letters", _kid(Filler(10_000))),
}


@requirement(
    "QZ-AUD-16",
    level=Level.MUST,
    claim="A key id finds a key of the trusted issuer or none, whatever text it is; with none a token reaches nothing.",
    norm=norms.RFC9068_KEYS,
    cost=NO_COST,
    control=ADMITTED,
    rows=KEY_IDS,
    drawn=st.text(max_size=40).map(_kid),
)
def test_a_hostile_key_id_finds_no_key(subject: Subject, row: TokenRecipe) -> None:
    """Signed by a stranger, or keyed with nothing where the id could lead to an empty file or text.

    The same id over the trusted issuer's own signature may be refused or admitted: an id is a hint (RFC 7515 §4.1.4).
    """
    recipe = of_broad(subject, row)
    what = f"whose kid is {_shown(recipe.header[0].value)}" if recipe.header else "without kid"
    held = f"a token with the right claims, signed with {recipe.signature.value}, {what}."
    large = any(isinstance(claim.value, Filler) for claim in recipe.header)
    a_changed_token_is_refused(subject, recipe, held, TOO_LARGE if large else (401,))
