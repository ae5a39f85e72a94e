"""Minted tokens are what their recipes say, by the word of an independent library, and leave no trace."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import time
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from quenchz.mint import Mint, Redactor, SigningKey, UnknownIssuerError, secrets_in
from quenchz_spec.outcomes import UntestableError
from quenchz_spec.resources import Edit, Uri
from quenchz_spec.vocabulary import (
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
ISSUER = "http://127.0.0.1:1"
STRANGER = "http://127.0.0.1:2"
KEY = SigningKey.generate("trusted-1")
STRANGER_KEY = SigningKey.generate("stranger-1")
GOOD = TokenRecipe(caller="broad")
NOW = time.time()
LIFETIME = 36_000
"""Seconds; longer than any session of tests, since PyJWT reads the clock for itself."""
MINT = Mint(ISSUER, KEY, STRANGER_KEY, STRANGER, RESOURCE, lambda: NOW, lifetime=LIFETIME)


def mint(recipe: TokenRecipe = GOOD, issuer: str | None = None) -> str:
    return MINT.mint(recipe, subject="broad", scopes=["rates:read", "rates:history"], issuer=issuer)


def verify(token: str, key: SigningKey = KEY, issuer: str = ISSUER) -> dict[str, Any]:
    """Judge a token as a resource server would, with PyJWT and the published key."""
    public = jwt.PyJWK(key.jwk()).key
    required = ["exp", "iat", "sub", "jti"]
    options: Any = {"require": required}
    return jwt.decode(token, public, algorithms=["ES256"], audience=RESOURCE, issuer=issuer, options=options)


def decoded(segment: str) -> str:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)).decode()


def payload_text(token: str) -> str:
    return decoded(token.split(".")[1])


# --- good tokens ----------------------------------------------------------------------------------------------------


def test_a_plain_recipe_makes_a_token_that_an_independent_library_admits() -> None:
    token = mint()
    claims = verify(token)
    assert list(claims) == ["iss", "sub", "aud", "exp", "iat", "jti", "client_id", "scope"]
    assert claims["scope"] == "rates:read rates:history"
    assert (claims["iat"], claims["exp"]) == (int(NOW), int(NOW) + LIFETIME)
    assert jwt.get_unverified_header(token) == {"alg": "ES256", "typ": "at+jwt", "kid": "trusted-1"}


@settings(deadline=None, database=None)
@given(
    seconds=st.integers(1_000, 10_000), serial=st.integers(0, 10**6), issuer=st.sampled_from([None, f"{ISSUER}/run-7"])
)
def test_a_harmless_change_leaves_a_token_valid(seconds: int, serial: int, issuer: str | None) -> None:
    recipe = TokenRecipe(caller="broad", serial=serial, claims=(Claim("exp", SecondsFromNow(seconds)),))
    assert verify(mint(recipe, issuer), issuer=issuer or ISSUER)["exp"] == int(NOW) + seconds


def test_a_signature_is_64_bytes_whatever_its_numbers_are() -> None:
    for _ in range(300):
        assert len(mint().split(".")[2]) == 86


def test_no_two_tokens_have_the_same_id() -> None:
    assert len({verify(mint())["jti"] for _ in range(100)}) == 100


def test_ids_come_from_the_given_source() -> None:
    counter = itertools.count()
    source = Mint(
        ISSUER,
        KEY,
        STRANGER_KEY,
        STRANGER,
        RESOURCE,
        lambda: NOW,
        lifetime=3600,
        random=lambda size: next(counter).to_bytes(size, "big"),
    )
    claims = [verify(source.mint(GOOD, subject="quiet", scopes=[])) for _ in range(2)]
    assert [claim["jti"] for claim in claims] == ["A" * 22, "A" * 20 + "AQ"]
    assert claims[0]["exp"] == int(NOW) + 3600
    assert claims[0]["scope"] == ""


def test_the_key_has_no_textual_form() -> None:
    assert repr(KEY) == "SigningKey(kid='trusted-1')"


# --- forgeries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signature", [member for member in Signature if member is not Signature.OWN])
def test_every_forgery_is_refused_by_an_independent_library(signature: Signature) -> None:
    token = mint(TokenRecipe(caller="broad", signature=signature))
    with pytest.raises(jwt.InvalidTokenError):
        verify(token)
    # The forgery is in the signature alone: the claims are those of a good token.
    assert set(json.loads(payload_text(token))) == set(json.loads(payload_text(mint())))
    assert json.loads(payload_text(token))["aud"] == RESOURCE


def test_each_forgery_is_the_one_it_is_called() -> None:
    tokens = {member: mint(TokenRecipe(caller="broad", signature=member)) for member in Signature}
    headers = {member: jwt.get_unverified_header(token) for member, token in tokens.items()}
    assert {header["kid"] for header in headers.values()} == {"trusted-1"}
    assert {member: header["alg"] for member, header in headers.items() if header["alg"] != "ES256"} == {
        Signature.NONE: "none",
        Signature.HS256_PUBLIC_KEY: "HS256",
        Signature.HS256_PUBLIC_KEY_DER: "HS256",
        Signature.HS256_PUBLIC_KEY_JWK: "HS256",
        Signature.HS256_EMPTY: "HS256",
        Signature.UNLISTED_ALGORITHM: "ES512",
    }
    assert {member for member, token in tokens.items() if token.endswith(".")} == {Signature.NONE, Signature.STRIPPED}
    assert verify(tokens[Signature.STRANGER], STRANGER_KEY)["sub"] == "broad"


def spki(encoding: Encoding) -> bytes:
    return jwt.PyJWK(KEY.jwk()).key.public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("signature", "secret"),
    [
        (Signature.HS256_PUBLIC_KEY, spki(Encoding.PEM)),
        (Signature.HS256_PUBLIC_KEY_DER, spki(Encoding.DER)),
        (Signature.HS256_PUBLIC_KEY_JWK, json.dumps(KEY.jwk()).encode()),
        (Signature.HS256_EMPTY, b""),
    ],
    ids=["pem", "der", "jwk", "empty"],  # the secrets themselves are new in every process
)
def test_an_hmac_with_what_is_public_is_what_a_confused_verifier_computes(signature: Signature, secret: bytes) -> None:
    head, payload, tail = mint(TokenRecipe(caller="broad", signature=signature)).split(".")
    digest = hmac.new(secret, f"{head}.{payload}".encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == tail


def test_a_signature_of_an_unlisted_algorithm_is_good_for_a_verifier_that_ignores_the_name() -> None:
    token = mint(TokenRecipe(caller="broad", signature=Signature.UNLISTED_ALGORITHM))
    signed, _, signature = token.rpartition(".")
    algorithm = jwt.get_algorithm_by_name("ES256")
    raw = base64.urlsafe_b64decode(signature + "==")
    assert algorithm.verify(signed.encode(), KEY.private.public_key(), raw)


def test_the_signature_of_another_token_fits_no_token_without_an_id_either() -> None:
    with pytest.raises(jwt.InvalidSignatureError):
        verify(mint(TokenRecipe(caller="broad", signature=Signature.OTHER_TOKEN, without=("jti",))))


def test_a_stranger_signs_properly_in_its_own_name() -> None:
    token = mint(TokenRecipe(caller="broad", issuer="stranger"), issuer=f"{ISSUER}/run-1")
    assert verify(token, STRANGER_KEY, STRANGER)["iss"] == STRANGER
    assert jwt.get_unverified_header(token)["kid"] == "stranger-1"
    with pytest.raises(jwt.InvalidSignatureError):
        verify(token, issuer=STRANGER)


def test_an_issuer_that_is_neither_is_refused() -> None:
    with pytest.raises(UnknownIssuerError, match="'somebody'"):
        mint(TokenRecipe(caller="broad", issuer="somebody"))


def test_the_signature_of_another_token_is_over_its_header_too() -> None:
    recipe = TokenRecipe(caller="broad", signature=Signature.OTHER_TOKEN, header=(Claim("kid", "../x"),))
    assert jwt.get_unverified_header(mint(recipe))["kid"] == "../x"
    with pytest.raises(jwt.InvalidSignatureError):
        verify(mint(recipe))


# --- headers --------------------------------------------------------------------------------------------------------


def test_members_of_a_header_are_replaced_in_place_added_last_and_removed() -> None:
    changes = (Claim("typ", "JWT"), Claim("crit", ["b64"]), Claim("b64", False), Claim("kid", Filler(3)))
    token = mint(TokenRecipe(caller="broad", header=changes, without_header=("alg", "absent")))
    assert decoded(token.split(".")[0]) == '{"typ":"JWT","kid":"aaa","crit":["b64"],"b64":false}'


def test_raw_json_and_moments_stand_in_headers_too() -> None:
    changes = (Claim("kid", RawJson('"a","kid":"b"')), Claim("iat", SecondsFromNow(-5)))
    token = mint(TokenRecipe(caller="broad", header=changes))
    assert decoded(token.split(".")[0]).endswith(f'"kid":"a","kid":"b","iat":{int(NOW) - 5}}}')


def test_a_changed_header_is_signed_along() -> None:
    changed = TokenRecipe(caller="broad", header=(Claim("typ", "JWT"),), without_header=("kid",))
    assert verify(mint(changed))["aud"] == RESOURCE


CANARY = "http://127.0.0.1:3/canary"
NAMING = Mint(ISSUER, KEY, STRANGER_KEY, STRANGER, RESOURCE, lambda: NOW, lifetime=LIFETIME, canary=CANARY)


def naming(name: str, key: OurKey) -> str:
    recipe = TokenRecipe(caller="broad", signature=Signature.STRANGER, header=(Claim(name, key),))
    return NAMING.mint(recipe, subject="broad", scopes=[])


def test_a_token_that_carries_its_own_key_verifies_with_that_key_alone() -> None:
    token = naming("jwk", OurKey.JWK)
    header = jwt.get_unverified_header(token)
    assert header["kid"] == header["jwk"]["kid"] == "trusted-1"
    assert "d" not in header["jwk"]
    own = jwt.PyJWK(header["jwk"]).key
    assert jwt.decode(token, own, algorithms=["ES256"], audience=RESOURCE)["sub"] == "broad"
    with pytest.raises(jwt.InvalidSignatureError):
        verify(token)


def test_a_token_that_carries_its_own_certificate_verifies_with_the_key_in_it_alone() -> None:
    token = naming("x5c", OurKey.X5C)
    (text,) = jwt.get_unverified_header(token)["x5c"]
    certificate = x509.load_der_x509_certificate(base64.b64decode(text, validate=True))
    certificate.verify_directly_issued_by(certificate)
    assert certificate.not_valid_before_utc.timestamp() < NOW < certificate.not_valid_after_utc.timestamp()
    own: Any = certificate.public_key()
    assert jwt.decode(token, own, algorithms=["ES256"], audience=RESOURCE)["sub"] == "broad"
    with pytest.raises(jwt.InvalidSignatureError):
        verify(token)


@pytest.mark.parametrize(("name", "file"), [("jku", "jwks.json"), ("x5u", "cert.pem")])
def test_a_token_that_says_where_its_key_is_names_the_canary(name: str, file: str) -> None:
    header = jwt.get_unverified_header(naming(name, OurKey[name.upper()]))
    assert header[name] == f"{CANARY}/{file}"


@pytest.mark.parametrize("key", [OurKey.JKU, OurKey.X5U])
def test_without_a_canary_no_url_can_be_named(key: OurKey) -> None:
    with pytest.raises(UntestableError, match="canary"):
        mint(TokenRecipe(caller="broad", header=(Claim("x", key),)))


# --- generations ----------------------------------------------------------------------------------------------------


def test_each_generation_signs_with_a_key_of_its_own() -> None:
    keys = [KEY, SigningKey.generate("trusted-2")]
    turning = Mint(ISSUER, KEY, STRANGER_KEY, STRANGER, RESOURCE, lambda: NOW, lifetime=LIFETIME, keys=keys.__getitem__)
    for number, key in enumerate(keys):
        token = turning.mint(TokenRecipe(caller="broad", generation=number), subject="broad", scopes=[])
        assert verify(token, key)["sub"] == "broad"
        assert jwt.get_unverified_header(token)["kid"] == f"trusted-{number + 1}"
        with pytest.raises(jwt.InvalidSignatureError):
            verify(token, keys[1 - number])


def test_a_mint_with_one_key_has_no_later_generation() -> None:
    with pytest.raises(UntestableError, match="one key"):
        mint(TokenRecipe(caller="broad", generation=1))


# --- shapes ---------------------------------------------------------------------------------------------------------


def shaped(shape: Shape, **more: Any) -> str:
    return mint(TokenRecipe(caller="broad", shape=shape, **more))


LENIENT = (Shape.PADDED, Shape.URL_UNSAFE)
"""What PyJWT decodes although RFC 7515 §2 has no such base64url."""


@pytest.mark.parametrize("shape", [s for s in Shape if s not in (Shape.COMPACT, Shape.OPAQUE, *LENIENT)])
def test_every_other_shape_is_refused_by_an_independent_library(shape: Shape) -> None:
    with pytest.raises(jwt.InvalidTokenError):
        verify(shaped(shape))


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [
        (Shape.EMPTY, "0"),
        (Shape.ONE, "n"),
        (Shape.TWO, "nn"),
        (Shape.FOUR, "nnnn"),
        (Shape.FIVE, "nnnnn"),
        (Shape.ENCRYPTED, "n0nnn"),
        (Shape.DETACHED, "n0n"),
        (Shape.HEADERLESS, "0nn"),
        (Shape.TRUNCATED, "nnn"),
        (Shape.PADDED, "nnn"),
        (Shape.URL_UNSAFE, "nnn"),
        (Shape.NO_JSON, "nnn"),
        (Shape.LIST, "nnn"),
    ],
)
def test_a_shape_has_its_segments(shape: Shape, lengths: str) -> None:
    assert "".join("n" if segment else "0" for segment in shaped(shape).split(".")) == lengths


@pytest.mark.parametrize("shape", [Shape.FOUR, Shape.FIVE])
def test_what_has_segments_more_begins_with_a_good_token(shape: Shape) -> None:
    assert verify(".".join(shaped(shape).split(".")[:3]))["aud"] == RESOURCE


def test_what_is_written_twice_is_a_good_token_once_it_is_put_together() -> None:
    found = json.loads(shaped(Shape.JSON))
    assert verify(f"{found['protected']}.{found['payload']}.{found['signature']}")["aud"] == RESOURCE
    assert "\n" not in shaped(Shape.JSON)


@pytest.mark.parametrize("shape", LENIENT)
def test_a_lenient_reader_admits_what_is_padded_or_in_the_other_alphabet(shape: Shape) -> None:
    for _ in range(50):
        token = shaped(shape)
        wanted = "=" if shape is Shape.PADDED else "+/"
        assert set(token) & set(wanted)
        signed, _, tail = token.rpartition(".")
        raw = base64.b64decode(tail + "==", altchars=b"-_" if shape is Shape.PADDED else b"+/")
        assert jwt.get_algorithm_by_name("ES256").verify(signed.encode(), KEY.private.public_key(), raw)


def test_a_truncated_signature_is_a_byte_short() -> None:
    assert len(base64.urlsafe_b64decode(shaped(Shape.TRUNCATED).split(".")[2])) == 63


def test_a_payload_of_another_kind_is_rightly_signed() -> None:
    public = jwt.PyJWK(KEY.jwk()).key
    texts = [jwt.PyJWS().decode(shaped(shape), public, ["ES256"]) for shape in (Shape.NO_JSON, Shape.LIST)]
    assert texts[0] == b"quenchz"
    assert [claims["aud"] for claims in json.loads(texts[1])] == [RESOURCE]


def test_an_encrypted_token_opens_with_the_private_key_of_its_issuer() -> None:
    """ECDH-ES written out from RFC 7518 §4.6 with nothing of the mint: no library that is installed knows JWE."""
    head, wrapped, nonce, sealed, tag = shaped(Shape.ENCRYPTED).split(".")
    header = json.loads(decoded(head))
    assert (header["alg"], header["enc"], header["kid"], wrapped) == ("ECDH-ES", "A256GCM", "trusted-1", "")
    shared = KEY.private.exchange(ec.ECDH(), jwt.PyJWK({**header["epk"], "alg": "ES256"}).key)
    info = b"\0\0\0\7A256GCM" + b"\0\0\0\0" + b"\0\0\0\0" + b"\0\0\1\0"
    secret = hashlib.sha256(b"\0\0\0\1" + shared + info).digest()
    raw = [base64.urlsafe_b64decode(segment + "==") for segment in (nonce, sealed, tag)]
    claims = json.loads(AESGCM(secret).decrypt(raw[0], raw[1] + raw[2], head.encode()))
    assert claims["aud"] == RESOURCE


def test_an_opaque_token_is_not_of_this_mint() -> None:
    with pytest.raises(UntestableError, match="opaque"):
        shaped(Shape.OPAQUE)


# --- claims ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("audience", "text"),
    [
        (Audience(AudienceForm.LIST, (Uri(), Uri(Edit.SUFFIX, "/x"))), f'["{RESOURCE}", "{RESOURCE}/x"]'),
        (Audience(AudienceForm.LITERAL, literal="null"), "null"),
        (Audience(AudienceForm.LITERAL, literal='"x","aud":"%us%"'), f'"x","aud":"{RESOURCE}"'),
        (Audience(AudienceForm.LITERAL, literal='  { "a" : NaN }'), '  { "a" : NaN }'),
    ],
)
def test_an_audience_is_written_as_it_stands(audience: Audience, text: str) -> None:
    token = mint(TokenRecipe(caller="broad", audience=audience))
    assert f',"aud":{text},"exp":' in payload_text(token)
    jwt.decode(token, jwt.PyJWK(KEY.jwk()).key, algorithms=["ES256"], options={"verify_aud": False})


def test_an_absent_audience_is_no_member() -> None:
    token = mint(TokenRecipe(caller="broad", audience=Audience(AudienceForm.ABSENT)))
    assert "aud" not in json.loads(payload_text(token))
    with pytest.raises(jwt.MissingRequiredClaimError):
        verify(token)


def test_claims_are_replaced_in_place_added_last_and_removed() -> None:
    claims = (Claim("exp", SecondsFromNow(-30)), Claim("nbf", SecondsFromNow(60)), Claim("sub", ["é", None, True]))
    text = payload_text(mint(TokenRecipe(caller="broad", claims=claims, without=("jti", "absent"))))
    assert list(json.loads(text)) == ["iss", "sub", "aud", "exp", "iat", "client_id", "scope", "nbf"]
    assert json.loads(text)["exp"] == int(NOW) - 30
    assert json.loads(text)["nbf"] == int(NOW) + 60
    assert json.loads(text)["sub"] == ["é", None, True]


def test_our_audience_can_stand_in_another_claim() -> None:
    text = payload_text(mint(TokenRecipe(caller="broad", claims=(Claim("resource", Audience()),))))
    assert json.loads(text)["resource"] == RESOURCE


def test_a_filler_is_so_many_letters() -> None:
    text = payload_text(mint(TokenRecipe(caller="broad", claims=(Claim("padding", Filler(8192)),))))
    assert json.loads(text)["padding"] == "a" * 8192


def test_raw_json_is_written_as_it_stands() -> None:
    text = payload_text(mint(TokenRecipe(caller="broad", claims=(Claim("exp", RawJson("1e400")),))))
    assert '"exp":1e400,' in text


@pytest.mark.parametrize(
    ("claim", "error"),
    [
        (Claim("exp", SecondsFromNow(-1)), jwt.ExpiredSignatureError),
        (Claim("nbf", SecondsFromNow(36_000)), jwt.ImmatureSignatureError),
        (Claim("iss", "https://other.example"), jwt.InvalidIssuerError),
        (Claim("aud", f"{RESOURCE}/"), jwt.InvalidAudienceError),
    ],
)
def test_a_changed_claim_makes_the_refusal_it_is_for(claim: Claim, error: type[Exception]) -> None:
    with pytest.raises(error):
        verify(mint(TokenRecipe(caller="broad", claims=(claim,))))


# --- secrets --------------------------------------------------------------------------------------------------------


def test_the_secrets_of_a_token_are_the_whole_its_payload_and_its_signature() -> None:
    token = mint()
    _, payload, signature = token.split(".")
    assert secrets_in(token) == [token.encode(), payload.encode(), signature.encode()]


@pytest.mark.parametrize(
    ("token", "secrets"),
    [
        ("eyJhbGciOiJub25lIn0.eyJh.", [b"eyJhbGciOiJub25lIn0.eyJh."]),
        ("opaque-token-of-somebody", [b"opaque-token-of-somebody"]),
        ("first-half-12.second-half-12", [b"first-half-12.second-half-12", b"first-half-12", b"second-half-12"]),
        ("short", []),
    ],
)
def test_a_short_piece_or_a_header_is_no_secret(token: str, secrets: list[bytes]) -> None:
    assert secrets_in(token) == secrets


@pytest.mark.parametrize("frame", [b'{"seen":"%s"}', b"%s", b"prefix-%s_suffix", b"%s%s", b"a\x00%s\xff\n"])
def test_an_echoed_token_is_blotted_out_at_equal_length(frame: bytes) -> None:
    redactor = Redactor()
    tokens = [mint() for _ in range(50)]
    for token in tokens:
        redactor.remember(token)
    for secret in secrets_in(tokens[20]):
        body = frame.replace(b"%s", secret)
        redacted, found = redactor.redact(body)
        assert found
        assert len(redacted) == len(body)
        assert not [left for left in secrets_in(tokens[20]) if left in redacted]
        assert redacted.strip(b"*")[:1] == body[:1] or frame.startswith(b"%s")


@settings(deadline=None, database=None)
@given(before=st.binary(max_size=40), after=st.binary(max_size=40), piece=st.sampled_from([0, 1, 2]))
def test_whatever_surrounds_a_secret_stays(before: bytes, after: bytes, piece: int) -> None:
    redactor = Redactor()
    token = mint()
    redactor.remember(token)
    secret = secrets_in(token)[piece]
    redacted, found = redactor.redact(before + secret + after)
    assert found
    assert redacted.startswith(before)
    assert redacted.endswith(after)
    assert len(redacted) == len(before + secret + after)


def test_a_body_without_secrets_is_the_same_object() -> None:
    redactor = Redactor()
    redactor.remember(mint())
    body = b'{"header":"eyJhbGciOiJFUzI1NiJ9","id":"' + mint().encode() + b'"}'
    assert redactor.redact(body) == (body, False)
    assert redactor.redact(body)[0] is body


def test_an_opaque_token_is_blotted_out_too() -> None:
    redactor = Redactor()
    redactor.remember("opaque+token/of~somebody-else")
    assert redactor.redact(b'"opaque+token/of~somebody-else"') == (b'"opaque+token/of~*************"', True)


def test_memory_is_bounded_and_the_newer_half_is_always_remembered() -> None:
    redactor = Redactor(keep=20)
    tokens = [mint() for _ in range(95)]
    for token in tokens:
        redactor.remember(token)
    known = [redactor.redact(token.encode())[1] for token in tokens]
    assert all(known[-10:])
    assert sum(known) <= 20


def test_redacting_costs_the_same_with_many_tokens_as_with_few() -> None:
    def steps(tokens: int) -> int:
        redactor = Redactor()
        for _ in range(tokens):
            redactor.remember(mint())
        looked = 0

        class Counting(set[bytes]):
            def __contains__(self, item: object) -> bool:
                nonlocal looked
                looked += 1
                return super().__contains__(item)

        for generation in (redactor._young, redactor._old):
            generation.pieces = Counting(generation.pieces)
        redactor.redact(b"".join(b"word-%d-abcdefghijkl " % n for n in range(100)) + mint().encode())
        return looked

    assert steps(500) <= steps(5) + 10
