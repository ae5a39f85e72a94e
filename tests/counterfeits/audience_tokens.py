"""Counterfeits of the invariant audience: how a token is read, whose key is believed, and for how long."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import re
import sqlite3
import tempfile
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import httpx2
import jwt
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.utils import base64url_decode

from counterfeits import counterfeit
from counterfeits.asgi import asked, bearing, presented
from counterfeits.audience import admitting, begun, comparing, dating, excusing, unexpired
from quenchz_reference.audience import Audience, AudienceGate, TokenRefusedError, Verified, _date, _object
from quenchz_reference.options import DEFAULT_RESOURCE
from quenchz_reference.parts import Parts, recast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from quenchz_reference.trust import VerificationKey

Claims: TypeAlias = dict[str, Any]


# --- the audience as a string ---------------------------------------------------------------------------------------


@counterfeit("QZ-AUD-1", "QZ-AUD-2", row="encoded slash")
def decodes_every_percent_sign(parts: Parts) -> Parts:
    """The audience is percent-decoded before it is compared, reserved characters and all."""
    return comparing(parts, lambda audience, us: unquote(audience) == us)


@counterfeit("QZ-AUD-1", row="plain http")
def takes_http_for_https(parts: Parts) -> Parts:
    """An audience of a time before TLS still counts."""
    return comparing(parts, lambda audience, us: audience.replace("http://", "https://", 1) == us)


@counterfeit("QZ-AUD-1", row="no scheme")
def drops_the_scheme_of_https(parts: Parts) -> Parts:
    """The scheme may be left out."""
    return comparing(parts, lambda audience, us: audience.removeprefix("https:") == us.removeprefix("https:"))


@counterfeit("QZ-AUD-1", row="parent")
def admits_the_parent(parts: Parts) -> Parts:
    """The folder stands for every resource in it."""
    return comparing(parts, lambda audience, us: audience in (us, us.rpartition("/")[0] + "/"))


@counterfeit("QZ-AUD-1", row="empty query")
def strips_punctuation(parts: Parts) -> Parts:
    """Question marks and number signs at the end of the audience do not count."""
    return comparing(parts, lambda audience, us: audience.rstrip("?#") == us)


@counterfeit("QZ-AUD-1", row="path parameter")
def ignores_path_parameters(parts: Parts) -> Parts:
    """Parameters of the last segment are cut off before the audience is compared."""
    return comparing(parts, lambda audience, us: audience.partition(";")[0] == us)


@counterfeit("QZ-AUD-1", row="double slash")
def joins_slashes(parts: Parts) -> Parts:
    """Several slashes in the path count as one."""
    return comparing(parts, lambda audience, us: re.sub("(?<!:)/+", "/", audience) == us)


@counterfeit("QZ-AUD-1", row="backslash")
def takes_a_backslash_for_a_slash(parts: Parts) -> Parts:
    """The audience is read as a browser reads a URL, where both slashes are one."""
    return comparing(parts, lambda audience, us: audience.replace("\\", "/") == us)


@counterfeit("QZ-AUD-1", row="fullwidth host")
def normalises_letters(parts: Parts) -> Parts:
    """The audience is brought into a Unicode normal form before it is compared."""
    return comparing(parts, lambda audience, us: unicodedata.normalize("NFKC", audience) == us)


@counterfeit("QZ-AUD-1", row="trailing space")
def strips_blanks_at_the_end(parts: Parts) -> Parts:
    """Blanks at the end of the audience do not count."""
    return comparing(parts, lambda audience, us: audience.rstrip() == us)


@counterfeit("QZ-AUD-1", row="tab inside")
def removes_control_characters(parts: Parts) -> Parts:
    """Control characters in the audience are taken for damage and removed, but not at its end."""
    return comparing(parts, lambda audience, us: re.sub("[\x00-\x1f]+(?=.)", "", audience) == us)


@counterfeit("QZ-AUD-1", row="byte order mark")
def removes_what_cannot_be_seen(parts: Parts) -> Parts:
    """Characters without a form of their own do not count."""
    return comparing(parts, lambda audience, us: "".join(c for c in audience if unicodedata.category(c) != "Cf") == us)


@counterfeit("QZ-AUD-1", row="after a NUL")
def compares_up_to_a_nul(parts: Parts) -> Parts:
    """The audience passes through a library in which a NUL ends a text."""
    return comparing(parts, lambda audience, us: audience.partition("\x00")[0] == us)


@counterfeit("QZ-AUD-1", row="very long")
def has_no_room_for_a_long_audience(parts: Parts) -> Parts:
    """The audience is written behind its length in one byte, which raises; the exception becomes a 500."""
    return comparing(parts, lambda audience, us: (bytes([len(audience)]), audience) == (bytes([len(us)]), us))


@counterfeit("QZ-AUD-2", row="percent-encoded host")
def decodes_the_host(parts: Parts) -> Parts:
    """A percent-encoded letter at the start of the host is decoded before the audience is compared."""
    return comparing(parts, lambda audience, us: re.sub("(?<=://)%7[0-9A]", lambda m: unquote(m[0]), audience) == us)


@counterfeit("QZ-AUD-2", row="empty port")
def drops_an_empty_port(parts: Parts) -> Parts:
    """A colon without a port is taken out of the audience before it is compared."""
    return comparing(parts, lambda audience, us: re.sub("(?<=[^:/]):(?=/[^/])", "", audience) == us)


@counterfeit("QZ-AUD-2", row="dot segment at the end")
def drops_a_dot_at_the_end(parts: Parts) -> Parts:
    """A segment that is a dot is taken off the end of the audience."""
    return comparing(parts, lambda audience, us: audience.removesuffix("/.") == us)


# --- one audience, several comparisons ------------------------------------------------------------------------------


def compared_elsewhere(app: ASGIApp, same: Callable[[str], bool], applies: Callable[[str, str], bool]) -> ASGIApp:
    """Take audiences that are `same` for ours on the HTTP methods and JSON-RPC methods that `applies` holds for.

    The gate behind is shown the token that the same subject first presented with our audience.
    """
    shown: dict[str, bytes] = {}

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        message, receive = await asked(scope, receive)
        found = presented(scope) if scope["type"] == "http" else None
        if found is not None:
            token, claims = found
            who, audience = str(claims.get("sub")), claims.get("aud")
            if audience == DEFAULT_RESOURCE:
                shown.setdefault(who, token)
            elif isinstance(audience, str) and same(audience) and applies(scope["method"], message.get("method", "")):
                scope = bearing(scope, shown.get(who, token))
        await app(scope, receive, send)

    return wrapped


@counterfeit("QZ-AUD-13", row="host in capitals", wraps=True)
def compares_prompts_without_case(app: ASGIApp) -> ASGIApp:
    """Prompts are served by another team, whose proxy writes scheme and host small."""
    return compared_elsewhere(
        app, lambda audience: audience.lower() == DEFAULT_RESOURCE, lambda _, method: method.startswith("prompts/")
    )


@counterfeit("QZ-AUD-13", row="trailing slash", wraps=True, wire="2025-11-25")
def compares_streams_without_the_slash(app: ASGIApp) -> ASGIApp:
    """A GET is compared by a front end that knows no trailing slash."""
    return compared_elsewhere(
        app, lambda audience: audience.rstrip("/") == DEFAULT_RESOURCE, lambda verb, _: verb == "GET"
    )


@counterfeit("QZ-AUD-2", "QZ-AUD-13", row="default port", wraps=True)
def compares_listings_by_parsed_url(app: ASGIApp) -> ASGIApp:
    """Listings are cached by a front end that drops the default port; everything else goes to the gate."""
    return compared_elsewhere(
        app,
        lambda audience: audience.replace(":443/", "/") == DEFAULT_RESOURCE,
        lambda _, method: method == "tools/list",
    )


# --- reading a token by hand ----------------------------------------------------------------------------------------


class ByHand(Audience):
    """The honest decisions with every step of reading a token a method of its own."""

    def segments(self, token: bytes) -> tuple[bytes, bytes, bytes]:
        """The three segments as text."""
        if not re.fullmatch(rb"[\w-]+\.[\w-]+\.[\w-]+", token, re.ASCII):
            raise TokenRefusedError("shape")
        head, body, tail = token.split(b".")
        return head, body, tail

    def decoded(self, segment: bytes) -> bytes:
        """The bytes of a segment."""
        return base64url_decode(segment)

    def header(self, segment: bytes) -> Claims:
        """The header."""
        return _object(segment)

    def claims(self, segment: bytes) -> Claims:
        """The payload."""
        return _object(segment)

    async def keys(self, header: Claims, claims: Claims) -> Sequence[VerificationKey]:
        """The keys of which one must have signed."""
        kid = header.get("kid")
        if not isinstance(kid, str | None) or not isinstance(claims.get("iss"), str):
            raise TokenRefusedError("names")
        return await self.trust.keys(claims["iss"], kid)

    async def verify(self, token: bytes) -> Verified:
        """As the honest one, out of the steps above."""
        if len(token) > 8192:
            raise TokenRefusedError("length")
        head, body, tail = self.segments(token)
        header, claims = self.header(head), self.claims(body)
        self.check_header(header)
        keys = [key for key in await self.keys(header, claims) if key.algorithm == header["alg"]]
        if not any(verifies(key, head + b"." + body, self.decoded(tail)) for key in keys):
            raise TokenRefusedError("signature")
        self.check_dates(claims)
        self.check_audience(claims)
        return Verified(self.caller(claims), self.believed_until(claims), self.expires(claims))


def verifies(key: VerificationKey, signed: bytes, signature: bytes) -> bool:
    """Whether a key made a signature."""
    return jwt.get_algorithm_by_name(key.algorithm).verify(signed, key.key, signature)


def reading(parts: Parts, cls: type[Audience]) -> Parts:
    """Read tokens with `cls`."""
    return replace(parts, audience=recast(cls, parts.audience))


def members_of(segment: bytes, hook: Callable[[list[tuple[str, Any]]], Claims] = dict) -> Claims:
    """The members in a segment, whatever occurs twice."""
    try:
        return json.loads(base64url_decode(segment), object_pairs_hook=hook)  # type: ignore[no-any-return]
    except ValueError as error:
        raise TokenRefusedError("unreadable") from error


@counterfeit("QZ-AUD-3", row="written twice, us last")
def reads_the_last_of_two_members(parts: Parts) -> Parts:
    """The payload is read by a JSON library as it comes, which keeps the last of two members."""

    class Fake(ByHand):
        def claims(self, segment: bytes) -> Claims:
            return checked(members_of(segment))

    return reading(parts, Fake)


def checked(claims: Claims) -> Claims:
    """Claims that are an object."""
    if not isinstance(claims, dict):
        raise TokenRefusedError("no object")
    return claims


@counterfeit("QZ-AUD-3", "QZ-AUD-4", "QZ-AUD-6", row="written twice, both us")
def reads_the_first_of_two_members(parts: Parts) -> Parts:
    """The payload is read by a parser that keeps the first of two members."""

    class Fake(ByHand):
        def claims(self, segment: bytes) -> Claims:
            return checked(members_of(segment, lambda pairs: dict(reversed(pairs))))

    return reading(parts, Fake)


@counterfeit("QZ-AUD-4", row="escaped, ours first")
def compares_names_as_they_are_written(parts: Parts) -> Parts:
    """The payload is read by a parser that leaves escapes in the names of members alone."""

    class Fake(ByHand):
        def claims(self, segment: bytes) -> Claims:
            text = base64url_decode(segment).replace(b"\\u0061ud", b"\\\\u0061ud")
            return _object(base64.urlsafe_b64encode(text))

    return reading(parts, Fake)


@counterfeit("QZ-AUD-4", row="resource")
def falls_back_to_other_claims(parts: Parts) -> Parts:
    """Without an audience the claim `resource` decides."""
    return admitting(parts, lambda claims, us: claims.get("aud", claims.get("resource")) == us)


@counterfeit("QZ-AUD-4", row="audience")
def knows_the_audience_by_another_name(parts: Parts) -> Parts:
    """Without `aud` the claim `audience` of an earlier token format decides."""
    return admitting(parts, lambda claims, us: claims.get("aud", claims.get("audience")) == us)


@counterfeit("QZ-AUD-4", row="azp")
def falls_back_to_the_authorized_party(parts: Parts) -> Parts:
    """Without an audience the authorized party decides."""
    return admitting(parts, lambda claims, us: claims.get("aud", claims.get("azp")) == us)


@counterfeit("QZ-AUD-4", row="Aud")
def reads_members_without_case(parts: Parts) -> Parts:
    """The payload is read into a structure whose members are found whatever their case."""
    return admitting(parts, lambda claims, us: {name.lower(): value for name, value in claims.items()}.get("aud") == us)


@counterfeit("QZ-AUD-4", row="every other claim")
def looks_for_us_in_every_claim(parts: Parts) -> Parts:
    """One of the claims that providers use for it has to be ours, if there is an audience at all."""
    names = ("aud", "resource", "audience", "azp")
    return admitting(parts, lambda claims, us: "aud" in claims and us in [claims.get(name) for name in names])


@counterfeit("QZ-AUD-3", "QZ-AUD-4", row="beside a number")
def joins_the_audiences_for_the_log(parts: Parts) -> Parts:
    """A list is refused, after it was written to the log as text, which raises on what is no text."""

    def names_us(claims: Claims, us: str) -> bool:
        audience = claims.get("aud")
        return not (isinstance(audience, list) and ", ".join(audience)) and audience == us

    return admitting(parts, names_us)


# --- algorithms -----------------------------------------------------------------------------------------------------


@counterfeit("QZ-AUD-5", row="alg None")
def forbids_the_algorithm_none_in_small_letters(parts: Parts) -> Parts:
    """The word `none` is refused, and what is left is compared without case."""

    def excused(header: Mapping[str, Any], *_: object) -> bool:
        algorithm = header.get("alg")
        return isinstance(algorithm, str) and algorithm != "none" and algorithm.lower() == "none"

    return excusing(parts, excused)


@counterfeit("QZ-AUD-5", row="alg null")
def needs_no_algorithm(parts: Parts) -> Parts:
    """Without an algorithm there is nothing to verify."""
    return excusing(parts, lambda header, *_: header.get("alg") is None)


@counterfeit("QZ-AUD-5", row="alg ")
def needs_no_algorithm_of_a_name(parts: Parts) -> Parts:
    """An algorithm without a name is none."""
    return excusing(parts, lambda header, *_: header.get("alg") == "")


def keyed_with(parts: Parts, secret_of: Callable[[VerificationKey], bytes]) -> Parts:
    """Admit tokens with an HMAC that is keyed with what `secret_of` makes of the public key."""

    def excused(header: Mapping[str, Any], keys: Sequence[VerificationKey], signed: bytes, signature: bytes) -> bool:
        secrets = [secret_of(key) for key in keys]
        return header.get("alg") == "HS256" and hmac.digest(secrets[0], signed, hashlib.sha256) == signature

    return excusing(parts, excused)


@counterfeit("QZ-AUD-5", row="hs256_public_key_der")
def takes_the_key_for_a_secret(parts: Parts) -> Parts:
    """The algorithm is the header's choice, and keys are kept in DER."""
    return keyed_with(parts, lambda key: key.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


@counterfeit("QZ-AUD-5", row="hs256_public_key_jwk")
def takes_the_key_set_for_a_secret(parts: Parts) -> Parts:
    """The algorithm is the header's choice, and keys are kept as they came: JSON."""

    def as_it_came(key: VerificationKey) -> bytes:
        jwk = jwt.get_algorithm_by_name("ES256").to_jwk(key.key, as_dict=True)
        return json.dumps({**jwk, "kid": key.kid, "use": "sig", "alg": key.algorithm}).encode()

    return keyed_with(parts, as_it_came)


@counterfeit("QZ-AUD-5", "QZ-AUD-16", row="hs256_empty")
def has_an_empty_secret(parts: Parts) -> Parts:
    """HMAC is on the list, and its secret was never configured."""

    class Fake(Audience):
        def check_header(self, header: Claims) -> None:
            if header.get("alg") != "HS256":
                super().check_header(header)

        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            signed, _, signature = token.rpartition(b".")
            if header["alg"] != "HS256" or hmac.digest(b"", signed, hashlib.sha256) != base64url_decode(signature):
                await super().check_signature(token, header, claims)

    return reading(parts, Fake)


@counterfeit("QZ-AUD-5", row="alg twice")
def reads_the_first_of_two_algorithms(parts: Parts) -> Parts:
    """The header is read by a parser that keeps the first of two members, if it is about the algorithm."""

    class Fake(ByHand):
        def header(self, segment: bytes) -> Claims:
            text = base64url_decode(segment).replace(b',"alg":"none"', b"")
            return _object(base64.urlsafe_b64encode(text))

    return reading(parts, Fake)


@counterfeit("QZ-AUD-5", row="alg in small letters")
def compares_algorithms_without_case(parts: Parts) -> Parts:
    """The name of the algorithm is written in capitals before it is compared."""

    class Fake(ByHand):
        def header(self, segment: bytes) -> Claims:
            header = super().header(segment)
            algorithm = header.get("alg")
            return {**header, "alg": algorithm.upper() if isinstance(algorithm, str) else algorithm}

    return reading(parts, Fake)


@counterfeit("QZ-AUD-5", row="alg a list")
def looks_up_an_algorithm_that_is_no_text(parts: Parts) -> Parts:
    """The algorithm is looked up in a set, which raises on a list; the exception becomes a 500."""

    class Fake(Audience):
        def check_header(self, header: Claims) -> None:
            if header.get("alg") in frozenset(("ES256", "RS256")):
                super().check_header(header)
            else:
                raise TokenRefusedError("algorithm")

    return reading(parts, Fake)


@counterfeit("QZ-AUD-7", row="number")
def strips_an_issuer_that_is_no_text(parts: Parts) -> Parts:
    """A slash is stripped from the issuer before it is compared, which raises on a number; that becomes a 500."""

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            if "iss" in claims and not isinstance(claims["iss"], list):
                claims["iss"].rstrip("/")
            await super().check_signature(token, header, claims)

    return reading(parts, Fake)


@counterfeit("QZ-AUD-7", row="list")
def looks_up_an_issuer_that_is_no_text(parts: Parts) -> Parts:
    """The issuer is the key of a table, which raises on a list; the exception becomes a 500."""

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            hash(claims.get("iss"))
            await super().check_signature(token, header, claims)

    return reading(parts, Fake)


# --- keys that a token names ----------------------------------------------------------------------------------------


def trusting(parts: Parts, key_of: Callable[[Mapping[str, Any]], Any]) -> Parts:
    """Verify what the trusted issuer's keys do not with the key that `key_of` finds in the header, if there is one."""

    def excused(header: Mapping[str, Any], _: object, signed: bytes, signature: bytes) -> bool:
        key = key_of(header)
        return key is not None and jwt.get_algorithm_by_name("ES256").verify(signed, key, signature)

    return excusing(parts, excused)


def fetched(url: str) -> bytes:
    """A document at a URL, or nothing; the whole server waits for it."""
    try:
        return httpx2.get(url, timeout=2.0).content
    except httpx2.HTTPError:
        return b""


@counterfeit("QZ-AUD-14", row="jwk")
def trusts_a_key_in_the_header(parts: Parts) -> Parts:
    """A key in the header verifies the token."""
    return trusting(parts, lambda header: jwt.PyJWK(header["jwk"]).key if "jwk" in header else None)


@counterfeit("QZ-AUD-14", row="x5c")
def trusts_a_certificate_in_the_header(parts: Parts) -> Parts:
    """The key of a certificate in the header verifies the token; who issued the certificate is not asked."""

    def key_of(header: Mapping[str, Any]) -> Any:
        chain = [x509.load_der_x509_certificate(base64.b64decode(text)) for text in header.get("x5c", [])]
        return chain[0].public_key() if chain else None

    return trusting(parts, key_of)


@counterfeit("QZ-AUD-14", row="jku")
def follows_a_key_set_url_in_the_header(parts: Parts) -> Parts:
    """The key set that the header points to verifies the token."""

    def key_of(header: Mapping[str, Any]) -> Any:
        document = fetched(header["jku"]) if "jku" in header else b""
        keys = jwt.PyJWKSet.from_json(document.decode()).keys if document else []
        return next((key.key for key in keys if header.get("kid") in (None, key.key_id)), None)

    return trusting(parts, key_of)


@counterfeit("QZ-AUD-14", row="x5u")
def fetches_a_certificate_for_the_log(parts: Parts) -> Parts:
    """A certificate that the header points to is fetched, so that the log can tell who signed; it is not believed."""

    def key_of(header: Mapping[str, Any]) -> None:
        if "x5u" in header:
            fetched(header["x5u"])

    return trusting(parts, key_of)


@counterfeit("QZ-AUD-14", row="kid a URL")
def looks_for_a_key_under_its_id(parts: Parts) -> Parts:
    """A key id that is a URL is where the key is."""

    class Fake(ByHand):
        async def keys(self, header: Claims, claims: Claims) -> Sequence[VerificationKey]:
            kid = header.get("kid")
            if isinstance(kid, str) and kid.startswith("http"):
                fetched(kid)
            return await super().keys(header, claims)

    return reading(parts, Fake)


# --- shapes ---------------------------------------------------------------------------------------------------------


def shaping(parts: Parts, segments: Callable[[bytes], list[bytes] | None]) -> Parts:
    """Read the segments of a token with `segments` where it finds any, else as the honest server does."""

    class Fake(ByHand):
        def segments(self, token: bytes) -> tuple[bytes, bytes, bytes]:
            found = segments(token)
            if found is None:
                return super().segments(token)
            head, body, tail = found
            return head, body, tail

    return reading(parts, Fake)


@counterfeit("QZ-AUD-15", row="empty")
def indexes_an_empty_token(parts: Parts) -> Parts:
    """The first character of the token is looked at; where there is none the exception becomes a 500."""
    return shaping(parts, lambda token: None if token[0] else [])


@counterfeit("QZ-AUD-15", row="one")
def takes_a_second_segment_for_granted(parts: Parts) -> Parts:
    """The second segment of what has letters is looked at; where there is none the exception becomes a 500."""
    return shaping(parts, lambda token: [] if token[:1].isalnum() and b"." not in token else None)


@counterfeit("QZ-AUD-15", row="two")
def unpacks_three_segments(parts: Parts) -> Parts:
    """Two segments are taken for an unsigned token, unpacked as three; the exception becomes a 500."""
    return shaping(parts, lambda token: token.split(b".") if token.count(b".") == 1 else None)


@counterfeit("QZ-AUD-15", row="four")
def ignores_further_segments(parts: Parts) -> Parts:
    """Segments after the third are not looked at."""
    return shaping(parts, lambda token: found[:3] if len(found := token.split(b".")) > 3 and all(found) else None)


@counterfeit("QZ-AUD-15", row="encrypted")
def has_no_key_to_decrypt_with(parts: Parts) -> Parts:
    """Five segments with an empty second one are given to a library that raises; the exception becomes a 500."""
    return shaping(parts, lambda token: [] if re.fullmatch(rb"[^.]+\.\.[^.]+\.[^.]+\.[^.]+", token) else None)


@counterfeit("QZ-AUD-15", row="detached")
def raises_on_an_empty_payload(parts: Parts) -> Parts:
    """An empty payload is no JSON, and nobody catches that."""
    return shaping(parts, lambda token: json.loads(b"") if re.fullmatch(rb"[^.]+\.\.[^.]+", token) else None)


@counterfeit("QZ-AUD-15", row="headerless")
def raises_on_an_empty_header(parts: Parts) -> Parts:
    """An empty header is no JSON, and nobody catches that."""
    return shaping(parts, lambda token: json.loads(b"") if token.startswith(b".") else None)


@counterfeit("QZ-AUD-15", row="truncated")
def asserts_the_length_of_a_signature(parts: Parts) -> Parts:
    """A signature of another length than 64 bytes is a fault of the program; the assertion becomes a 500."""

    class Fake(ByHand):
        def decoded(self, segment: bytes) -> bytes:
            signature = super().decoded(segment)
            assert len(signature) == 64
            return signature

    return reading(parts, Fake)


@counterfeit("QZ-AUD-15", row="padded")
def strips_padding(parts: Parts) -> Parts:
    """Segments may be padded."""
    return shaping(
        parts, lambda token: token.split(b".") if re.fullmatch(rb"(?:[\w-]+=*\.){2}[\w-]+=+", token) else None
    )


@counterfeit("QZ-AUD-15", row="url_unsafe")
def decodes_either_alphabet(parts: Parts) -> Parts:
    """Segments may be in the alphabet of base64."""

    class Fake(ByHand):
        def segments(self, token: bytes) -> tuple[bytes, bytes, bytes]:
            super().segments(token.translate(bytes.maketrans(b"+/", b"-_")))
            head, body, tail = token.split(b".")
            return head, body, tail

        def decoded(self, segment: bytes) -> bytes:
            return super().decoded(segment.translate(bytes.maketrans(b"+/", b"-_")))

    return reading(parts, Fake)


@counterfeit("QZ-AUD-15", row="json")
def reads_the_json_serialisation(parts: Parts) -> Parts:
    """A token may be a JSON object, as its library reads both."""

    def segments(token: bytes) -> list[bytes] | None:
        if not token.startswith(b"{"):
            return None
        found = json.loads(token)
        return [found[name].encode() for name in ("protected", "payload", "signature")]

    return shaping(parts, segments)


def claiming(parts: Parts, claims: Callable[[Any], Any]) -> Parts:
    """Read the payload of a signed token, whatever JSON it is, with `claims`."""

    class Fake(ByHand):
        def claims(self, segment: bytes) -> Claims:
            text = base64url_decode(segment)
            if text.startswith(b"{"):
                return super().claims(segment)
            return claims(text)  # type: ignore[no-any-return]

    return reading(parts, Fake)


@counterfeit("QZ-AUD-15", row="no_json")
def raises_on_a_payload_that_is_no_json(parts: Parts) -> Parts:
    """What the issuer signed is taken for JSON without a second thought; the exception becomes a 500."""
    return claiming(parts, lambda text: {} if text.startswith(b"[") else json.loads(text))


@counterfeit("QZ-AUD-15", row="list")
def merges_a_list_of_claims(parts: Parts) -> Parts:
    """A payload that is a list of objects is merged into one."""

    def claims(text: bytes) -> Claims:
        if not text.startswith(b"["):
            raise TokenRefusedError("no JSON")
        return {name: value for item in json.loads(text) for name, value in item.items()}

    return claiming(parts, claims)


@counterfeit("QZ-AUD-15", row="unknown extension")
def ignores_extensions(parts: Parts) -> Parts:
    """Members of the header that mean nothing here are ignored, critical or not."""

    class Fake(ByHand):
        def check_header(self, header: Claims) -> None:
            super().check_header({name: value for name, value in header.items() if name not in ("crit", "b64")})

    return reading(parts, Fake)


@counterfeit("QZ-AUD-15", row="absent extension")
def looks_for_what_is_critical(parts: Parts) -> Parts:
    """An extension is refused if it is there."""

    class Fake(ByHand):
        def check_header(self, header: Claims) -> None:
            if any(name in header for name in header.get("crit", [])):
                raise TokenRefusedError("an extension")
            super().check_header({name: value for name, value in header.items() if name != "crit"})

    return reading(parts, Fake)


@counterfeit("QZ-AUD-15", row="unencoded payload")
def calls_b64_understood(parts: Parts) -> Parts:
    """The extension b64 is on the list of those that are understood, and is not."""

    class Fake(ByHand):
        def check_header(self, header: Claims) -> None:
            if header.get("crit") == ["b64"]:
                header = {name: value for name, value in header.items() if name not in ("crit", "b64")}
            super().check_header(header)

    return reading(parts, Fake)


# --- key ids --------------------------------------------------------------------------------------------------------


def secrets_by_id(parts: Parts, secret_of: Callable[[Any], bytes | None]) -> Parts:
    """Keep secrets beside the keys: an HMAC keyed with what `secret_of` finds for a key id verifies a token."""

    class Fake(Audience):
        def check_header(self, header: Claims) -> None:
            if header.get("alg") != "HS256":
                super().check_header(header)

        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            if header["alg"] != "HS256":
                await super().check_signature(token, header, claims)
                return
            secret = secret_of(header.get("kid"))
            signed, _, signature = token.rpartition(b".")
            if secret is None or hmac.digest(secret, signed, hashlib.sha256) != base64url_decode(signature):
                raise TokenRefusedError("signature")

    return reading(parts, Fake)


@counterfeit("QZ-AUD-16", row="path")
def reads_keys_from_files(parts: Parts) -> Parts:
    """The key id is the name of a file in a folder of keys."""

    def secret_of(kid: object) -> bytes | None:
        try:
            return (Path(tempfile.gettempdir()) / kid).read_bytes() if isinstance(kid, str) else None
        except (OSError, ValueError):
            return None

    return secrets_by_id(parts, secret_of)


@counterfeit("QZ-AUD-16", row="file URL")
def reads_keys_from_urls(parts: Parts) -> Parts:
    """The key id may be the URL of a file."""

    def secret_of(kid: object) -> bytes | None:
        try:
            return Path(str(kid).removeprefix("file://")).read_bytes() if str(kid).startswith("file://") else None
        except (OSError, ValueError):
            return None

    return secrets_by_id(parts, secret_of)


@counterfeit("QZ-AUD-16", row="SQL that selects nothing")
def selects_keys_with_sql(parts: Parts) -> Parts:
    """The key id is pasted into a statement."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("CREATE TABLE keys (kid TEXT, secret TEXT)")

    def secret_of(kid: object) -> bytes | None:
        if not isinstance(kid, str) or not kid.isprintable():
            return None
        try:
            found = database.execute(f"SELECT secret FROM keys WHERE kid = '{kid}'").fetchone()
        except sqlite3.Error:
            return None
        return None if found is None else str(found[0]).encode()

    return secrets_by_id(parts, secret_of)


@counterfeit("QZ-AUD-16", row="a lone quote")
def raises_on_sql_that_does_not_parse(parts: Parts) -> Parts:
    """The key id is pasted into a statement that only looks whether it is known; an error becomes a 500."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("CREATE TABLE keys (kid TEXT)")

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            kid = header.get("kid")
            if isinstance(kid, str) and kid.isprintable():
                database.execute(f"SELECT kid FROM keys WHERE kid = '{kid}'").fetchone()
            await super().check_signature(token, header, claims)

    return reading(parts, Fake)


@counterfeit("QZ-AUD-14", "QZ-AUD-16", "QZ-AUD-29", "QZ-AUD-30", row="kid a URL")
def verifies_with_known_keys_only(parts: Parts) -> Parts:
    """Where a key id finds no key of a trusted issuer, there is nothing to verify with."""

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            kid = header.get("kid")
            found = await self.trust.keys(str(claims.get("iss")), None)
            if not found or not isinstance(kid, str) or kid in [key.kid for key in found]:
                await super().check_signature(token, header, claims)

    return reading(parts, Fake)


@counterfeit("QZ-AUD-14", "QZ-AUD-16", row="jwk, no kid")
def takes_a_key_id_for_granted(parts: Parts) -> Parts:
    """The header is asked for a key id that is not there; the exception becomes a 500."""

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            header["kid"]
            await super().check_signature(token, header, claims)

    return reading(parts, Fake)


@counterfeit("QZ-AUD-16", row="empty")
def takes_an_empty_key_id_for_a_fault(parts: Parts) -> Parts:
    """A key id has at least a letter; the assertion becomes a 500."""

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            assert header.get("kid") != ""
            await super().check_signature(token, header, claims)

    return reading(parts, Fake)


@counterfeit("QZ-AUD-16", row="query")
def looks_up_a_key_id_that_is_no_text(parts: Parts) -> Parts:
    """The key id is the key of a table, which raises on an object; the exception becomes a 500."""

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            hash(header.get("kid"))
            await super().check_signature(token, header, claims)

    return reading(parts, Fake)


@counterfeit("QZ-AUD-16", row="lone surrogate")
def encodes_half_a_character(parts: Parts) -> Parts:
    """The key id is written to a table in UTF-8, which raises on half a character; the exception becomes a 500."""

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            str(header.get("kid")).encode()
            await super().check_signature(token, header, claims)

    return reading(parts, Fake)


@counterfeit("QZ-AUD-16", row="number")
def strips_a_key_id_that_is_no_text(parts: Parts) -> Parts:
    """A blank is stripped from the key id, which raises on a number; the exception becomes a 500."""

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            if isinstance(header.get("kid"), int):
                header["kid"].strip()
            await super().check_signature(token, header, claims)

    return reading(parts, Fake)


# --- dates ----------------------------------------------------------------------------------------------------------


@counterfeit("QZ-AUD-6", row="expiry NaN")
def refuses_what_has_expired(parts: Parts) -> Parts:
    """A token is refused if its expiry lies before now, which NaN does not."""

    class Fake(ByHand):
        def claims(self, segment: bytes) -> Claims:
            text = base64url_decode(segment)
            return super().claims(base64.urlsafe_b64encode(text.replace(b":NaN", b":9999999999")))

    return reading(parts, Fake)


@counterfeit("QZ-AUD-6", row="nbf infinite")
def raises_on_a_not_before_of_infinity(parts: Parts) -> Parts:
    """The claim `nbf` is converted, which raises on infinity; the exception becomes a 500."""

    def live(claims: Claims, now: float) -> bool:
        nbf = claims.get("nbf", 0)
        return unexpired(claims, now) and not isinstance(nbf, str) and now >= int(nbf)

    return dating(parts, live)


@counterfeit("QZ-AUD-17", row="no expiry")
def needs_no_expiry(parts: Parts) -> Parts:
    """A token without an expiry never expires."""
    return dating(parts, lambda claims, now: begun(claims, now) and ("exp" not in claims or unexpired(claims, now)))


@counterfeit("QZ-AUD-17", row="expiry in quotes")
def converts_the_expiry(parts: Parts) -> Parts:
    """An expiry of digits in quotes is a number, too."""

    def live(claims: Claims, now: float) -> bool:
        expiry = claims.get("exp")
        quoted = isinstance(expiry, str) and expiry.isdecimal()
        return begun(claims, now) and (now < int(str(expiry)) if quoted else unexpired(claims, now))

    return dating(parts, live)


@counterfeit("QZ-AUD-17", row="issued in the future")
def ignores_the_time_of_issue(parts: Parts) -> Parts:
    """The claim `iat` is not looked at."""

    class Fake(Audience):
        def check_dates(self, claims: Claims) -> None:
            super().check_dates({name: value for name, value in claims.items() if name != "iat"})

    return reading(parts, Fake)


@counterfeit("QZ-AUD-17", row="issued at a word")
def compares_the_time_of_issue_as_it_stands(parts: Parts) -> Parts:
    """The claim `iat` is compared as it stands, which raises on a word; the exception becomes a 500."""

    class Fake(Audience):
        def check_dates(self, claims: Claims) -> None:
            if claims.get("iat", 0) < self.clock.now() + 60:
                super().check_dates({name: value for name, value in claims.items() if name != "iat"})
            else:
                raise TokenRefusedError("issued in the future")

    return reading(parts, Fake)


@counterfeit("QZ-AUD-18", "QZ-AUD-19", row="expired beyond it")
def has_a_leeway_that_nobody_declared(parts: Parts) -> Parts:
    """The library's default is a minute, and stays."""
    return dating(parts, lambda claims, now: begun(claims, now) and now < _date(claims, "exp") + 60)


@counterfeit("QZ-AUD-18", "QZ-AUD-19", row="expired at its end")
def rounds_the_expiry_up(parts: Parts) -> Parts:
    """A token is good until the end of the second in which it expires, and half a second more."""
    return dating(parts, lambda claims, now: begun(claims, now) and now < _date(claims, "exp") + 1.5)


@counterfeit("QZ-AUD-18", row="valid beyond it")
def has_a_leeway_for_the_beginning(parts: Parts) -> Parts:
    """A token is good a minute before it says."""
    return dating(
        parts, lambda claims, now: unexpired(claims, now) and ("nbf" not in claims or now + 60 >= _date(claims, "nbf"))
    )


@counterfeit("QZ-AUD-18", row="valid at its end")
def subtracts_the_leeway_the_wrong_way(parts: Parts) -> Parts:
    """A token is good only five seconds after it says."""
    return dating(
        parts, lambda claims, now: unexpired(claims, now) and ("nbf" not in claims or now - 5 >= _date(claims, "nbf"))
    )


# --- what is remembered, and what goes on ---------------------------------------------------------------------------


@counterfeit("QZ-AUD-19", row="tools/list")
def remembers_tokens_for_five_minutes(parts: Parts) -> Parts:
    """What was verified is remembered as long as anything else, however soon it expires."""

    class Fake(Audience):
        def believed_until(self, claims: Claims) -> float:
            return self.clock.now() + 300

    return reading(parts, Fake)


@counterfeit("QZ-AUD-19", row="tools/call", wraps=True)
def remembers_token_ids_for_calls(app: ASGIApp) -> ASGIApp:
    """A call is let through if one with a token of this id was let through before."""
    known: dict[str, str] = {}
    shown: dict[str, bytes] = {}

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        message, receive = await asked(scope, receive)
        found = presented(scope) if scope["type"] == "http" else None
        if found is not None and message.get("method") == "tools/call":
            claims = found[1]
            if known.get(str(claims.get("jti"))) == claims.get("sub"):
                scope = bearing(scope, shown[claims["sub"]])
            elif claims.get("aud") == DEFAULT_RESOURCE:
                known[str(claims.get("jti"))] = claims["sub"]
        elif found is not None and found[1].get("aud") == DEFAULT_RESOURCE:
            shown.setdefault(found[1]["sub"], found[0])
        await app(scope, receive, send)

    return wrapped


@counterfeit(*(f"QZ-AUD-{n}" for n in (6, 17, 18, 19, 20)), row="expired", wire="2025-11-25")
def checks_dates_when_a_session_begins(parts: Parts) -> Parts:
    """A session that was opened in time goes on."""

    timeless = dating(parts, lambda _claims, _now: True).audience

    class Gate(AudienceGate):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            in_session = any(name == b"mcp-session-id" for name, _ in scope["headers"])
            self._audience = timeless if in_session else parts.audience
            await super().__call__(scope, receive, send)

        def seconds_left(self, scope: Scope, verified: Verified) -> float:
            return math.inf

    return replace(parts, audience_gate=Gate)


@counterfeit("QZ-AUD-20", row="GET", wire="2025-11-25")
def leaves_streams_open(parts: Parts) -> Parts:
    """A stream that was opened in time goes on."""

    class Gate(AudienceGate):
        def seconds_left(self, scope: Scope, verified: Verified) -> float:
            return math.inf

    return replace(parts, audience_gate=Gate)
