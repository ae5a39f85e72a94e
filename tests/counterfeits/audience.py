"""Counterfeits of the invariant audience."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

import jwt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.utils import base64url_decode
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from counterfeits import counterfeit
from counterfeits.asgi import asked, bearing, heading, presented
from quenchz_reference.audience import Audience, TokenRefusedError, Verified, _date, _object
from quenchz_reference.options import DEFAULT_RESOURCE
from quenchz_reference.parts import Parts, recast
from quenchz_reference.trust import Trust, VerificationKey

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Claims: TypeAlias = dict[str, Any]


# --- the audience as a string ---------------------------------------------------------------------------------------


def admitting(parts: Parts, names_us: Callable[[Claims, str], bool]) -> Parts:
    """Admit the tokens whose claims are found to name this resource."""

    class Fake(Audience):
        def check_audience(self, claims: Claims) -> None:
            if not names_us(claims, self.resource):
                raise TokenRefusedError("audience")

    return replace(parts, audience=recast(Fake, parts.audience))


def comparing(parts: Parts, same: Callable[[str, str], bool]) -> Parts:
    """Compare a token's audience, which has to be one string, with the resource by `same`."""
    return admitting(parts, lambda claims, us: isinstance(claims.get("aud"), str) and same(claims["aud"], us))


@counterfeit("QZ-AUD-1", "QZ-AUD-2", row="longer path")
def compares_by_prefix(parts: Parts) -> Parts:
    """An audience that begins with the resource is admitted."""
    return comparing(parts, lambda audience, us: audience.startswith(us))


@counterfeit("QZ-AUD-1", "QZ-AUD-4", row="shorter")
def compares_by_prefix_the_wrong_way_round(parts: Parts) -> Parts:
    """An audience that the resource begins with is admitted."""
    return comparing(parts, lambda audience, us: us.startswith(audience))


@counterfeit("QZ-AUD-1", row="inside a query")
def compares_by_suffix(parts: Parts) -> Parts:
    """An audience that ends with the resource is admitted."""
    return comparing(parts, lambda audience, us: audience.endswith(us))


@counterfeit("QZ-AUD-1", row="origin")
def admits_the_bare_origin(parts: Parts) -> Parts:
    """The origin stands for every resource on it."""
    return comparing(parts, lambda audience, us: audience in (us, us.removesuffix(urlsplit(us).path)))


@counterfeit("QZ-AUD-1", "QZ-AUD-2", row="longer segment")
def compares_all_but_the_last_segment(parts: Parts) -> Parts:
    """Resources in the same folder are one."""
    return comparing(parts, lambda audience, us: audience.rpartition("/")[0] == us.rpartition("/")[0])


@counterfeit("QZ-AUD-1", "QZ-AUD-2", row="host suffix")
def compares_the_host_by_prefix(parts: Parts) -> Parts:
    """A host that begins with ours is taken for ours."""

    def same(audience: str, us: str) -> bool:
        path = urlsplit(us).path
        return audience.startswith(us.removesuffix(path)) and audience.endswith(path)

    return comparing(parts, same)


@counterfeit("QZ-AUD-1", row="host prefix")
def compares_the_host_by_suffix(parts: Parts) -> Parts:
    """A host that ends with ours is taken for ours."""
    return comparing(parts, lambda audience, us: audience.endswith(us.partition("://")[2]) and audience[:8] == us[:8])


@counterfeit("QZ-AUD-1", row="subdomain")
def admits_subdomains(parts: Parts) -> Parts:
    """A subdomain of our host is taken for our host."""
    return comparing(parts, lambda audience, us: audience == us or audience.endswith("." + us.partition("://")[2]))


@counterfeit("QZ-AUD-1", "QZ-AUD-2", row="user information")
def compares_parsed_urls(parts: Parts) -> Parts:
    """Scheme, host, port and path are compared, as a URL parser gives them."""

    def parsed(uri: str) -> tuple[object, ...]:
        split = urlsplit(uri)
        return split.scheme, split.hostname, split.port or 443, split.path.rstrip("/")

    return comparing(parts, lambda audience, us: parsed(audience) == parsed(us))


@counterfeit("QZ-AUD-1", row="query")
def ignores_query_and_fragment(parts: Parts) -> Parts:
    """Query and fragment of the audience are cut off before it is compared."""
    return comparing(parts, lambda audience, us: re.split("[?#]", audience)[0] == us)


@counterfeit("QZ-AUD-1", row="fragment")
def ignores_the_fragment(parts: Parts) -> Parts:
    """The fragment of the audience is cut off before it is compared."""
    return comparing(parts, lambda audience, us: audience.partition("#")[0] == us)


@counterfeit("QZ-AUD-1", "QZ-AUD-2", row="other port")
def ignores_the_port(parts: Parts) -> Parts:
    """The port of the audience is not compared."""
    return comparing(parts, lambda audience, us: re.sub(r":\d+(?=/)", "", audience) == us)


@counterfeit("QZ-AUD-1", "QZ-AUD-2", row="other scheme")
def ignores_the_scheme(parts: Parts) -> Parts:
    """The scheme of the audience is not compared."""
    return comparing(parts, lambda audience, us: audience.partition("://")[2] == us.partition("://")[2])


@counterfeit("QZ-AUD-1", "QZ-AUD-2", row="path in capitals")
def compares_without_case(parts: Parts) -> Parts:
    """Audience and resource are compared in lower case, the path as well."""
    return comparing(parts, lambda audience, us: audience.lower() == us.lower())


@counterfeit("QZ-AUD-1", "QZ-AUD-2", row="empty query")
def prints_the_parsed_audience_back(parts: Parts) -> Parts:
    """The audience goes through a URL object, which drops blanks and line feeds and writes the scheme small."""
    return comparing(parts, lambda audience, us: urlsplit(audience).geturl() == us)


@counterfeit("QZ-AUD-1", row="leading space")
def splits_the_audience_on_blanks(parts: Parts) -> Parts:
    """The audience is read like a scope: names with blanks between them."""
    return comparing(parts, lambda audience, us: us in audience.split())


@counterfeit("QZ-AUD-1", row="trailing newline")
def matches_up_to_a_dollar(parts: Parts) -> Parts:
    """The audience is matched by a regular expression whose `$` also stands before a line feed."""
    return comparing(parts, lambda audience, us: re.match(re.escape(us) + "$", audience) is not None)


@counterfeit("QZ-AUD-2", row="host in capitals")
def normalises_scheme_and_host(parts: Parts) -> Parts:
    """Scheme and host of the audience are written small before it is compared."""
    return comparing(parts, lambda audience, us: re.sub("^[^/]*//[^/]*", lambda m: m[0].lower(), audience) == us)


@counterfeit("QZ-AUD-2", row="trailing slash")
def strips_trailing_slashes(parts: Parts) -> Parts:
    """A slash at the end of the audience or of the resource does not count."""
    return comparing(parts, lambda audience, us: audience.rstrip("/") == us.rstrip("/"))


@counterfeit("QZ-AUD-2", row="default port")
def drops_the_default_port(parts: Parts) -> Parts:
    """The default port is taken out of the audience before it is compared."""
    return comparing(parts, lambda audience, us: audience.replace(":443/", "/") == us)


@counterfeit("QZ-AUD-2", row="dot segment")
def removes_dot_segments(parts: Parts) -> Parts:
    """The path of the audience is resolved before it is compared."""
    return comparing(parts, lambda audience, us: re.sub(r"/[^/]+/\.\.(?=/)", "", audience) == us)


@counterfeit("QZ-AUD-2", row="percent-encoding")
def decodes_percent_signs(parts: Parts) -> Parts:
    """Percent-encoded letters and digits of the audience are decoded before it is compared."""
    return comparing(parts, lambda audience, us: re.sub("%[4-7][0-9A-F]", lambda m: unquote(m[0]), audience) == us)


# --- the audience as JSON -------------------------------------------------------------------------------------------


@counterfeit("QZ-AUD-1", "QZ-AUD-2", "QZ-AUD-3", "QZ-AUD-4", row="longer path")
def asks_whether_we_are_in_it(parts: Parts) -> Parts:
    """The operator `in` decides, whatever the audience is: text, a list, an object."""
    return admitting(parts, lambda claims, us: us in claims["aud"])


@counterfeit("QZ-AUD-1", "QZ-AUD-2", "QZ-AUD-3", row="longer path")
def compares_origins(parts: Parts) -> Parts:
    """Scheme and host decide about one audience; in a list ours has to stand as it is."""

    def names_us(claims: Claims, us: str) -> bool:
        audience = claims.get("aud")
        return us in audience if isinstance(audience, list) else urlsplit(str(audience))[:2] == urlsplit(us)[:2]

    return admitting(parts, names_us)


@counterfeit("QZ-AUD-3", row="list of us alone")
def admits_lists_that_hold_us(parts: Parts) -> Parts:
    """Membership is enough, as RFC 7519 has it."""

    def names_us(claims: Claims, us: str) -> bool:
        audience = claims.get("aud")
        return us in audience if isinstance(audience, list) else us == audience

    return admitting(parts, names_us)


@counterfeit("QZ-AUD-3", "QZ-AUD-4", row="list of us alone")
def admits_lists_of_nothing_else(parts: Parts) -> Parts:
    """No member of the list may be another resource; the empty list has none."""

    def names_us(claims: Claims, us: str) -> bool:
        audience = claims.get("aud")
        return all(uri == us for uri in (audience if isinstance(audience, list) else [audience]))

    return admitting(parts, names_us)


@counterfeit("QZ-AUD-4", row="absent")
def admits_an_absent_audience(parts: Parts) -> Parts:
    """The audience is compared only if there is one."""
    return admitting(parts, lambda claims, us: claims.get("aud", us) == us)


@counterfeit("QZ-AUD-4", row="null")
def admits_a_falsy_audience(parts: Parts) -> Parts:
    """The audience has to be there, and is compared if it is true as Python has it."""
    return admitting(parts, lambda claims, us: "aud" in claims and (claims["aud"] or us) == us)


@counterfeit("QZ-AUD-4", row="empty list")
def takes_an_empty_list_for_no_restriction(parts: Parts) -> Parts:
    """A token restricted to no resource is good at every one."""
    return admitting(parts, lambda claims, us: claims.get("aud") in (us, []))


@counterfeit("QZ-AUD-4", row="object")
def raises_on_an_audience_that_is_no_text(parts: Parts) -> Parts:
    """What is neither nothing nor a list is taken for text; the exception becomes a 500."""

    def names_us(claims: Claims, us: str) -> bool:
        audience: Any = claims.get("aud")
        return bool(audience) and not isinstance(audience, list) and bool(audience.encode() == us.encode())

    return admitting(parts, names_us)


# --- signatures -----------------------------------------------------------------------------------------------------

Excuse: TypeAlias = Callable[[Mapping[str, Any], Sequence[VerificationKey], bytes, bytes], bool]
"""Whether a token passes, given its header, the keys of its issuer, the signed bytes and the signature."""


def excusing(parts: Parts, excused: Excuse) -> Parts:
    """Admit tokens of trusted issuers with a wrong signature, if `excused` and everything else is right."""

    class Fake(Audience):
        async def verify(self, token: bytes) -> Verified:
            try:
                return await super().verify(token)
            except TokenRefusedError:
                if not re.fullmatch(rb"[\w-]+\.[\w-]+\.[\w-]*", token):
                    raise
                signed, _, signature = token.rpartition(b".")
                header, claims = (_object(segment) for segment in signed.split(b"."))
                keys = await self.trust.keys(str(claims.get("iss")), header.get("kid"))
                if "crit" in header or not keys or not excused(header, keys, signed, base64url_decode(signature)):
                    raise
            self.check_dates(claims)
            self.check_audience(claims)
            return Verified(self.caller(claims), self.clock.now())

    return replace(parts, audience=recast(Fake, parts.audience))


@counterfeit("QZ-AUD-5", "QZ-AUD-14", "QZ-AUD-15", "QZ-AUD-16", row="stranger")
def reads_without_verifying(parts: Parts) -> Parts:
    """The token is decoded and its signature left alone."""
    return excusing(parts, lambda *_: True)


@counterfeit("QZ-AUD-5", row="none")
def offers_the_algorithm_none(parts: Parts) -> Parts:
    """The algorithm `none` is on the list."""
    return excusing(parts, lambda header, _keys, _signed, _signature: header.get("alg") == "none")


@counterfeit("QZ-AUD-5", row="hs256_public_key")
def lets_the_header_choose_hmac(parts: Parts) -> Parts:
    """The algorithm is the header's choice, so the public key serves as an HMAC secret."""

    def excused(header: Mapping[str, Any], keys: Sequence[VerificationKey], signed: bytes, signature: bytes) -> bool:
        secret = keys[0].key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return header.get("alg") == "HS256" and hmac.digest(secret, signed, hashlib.sha256) == signature

    return excusing(parts, excused)


@counterfeit("QZ-AUD-5", row="stripped")
def verifies_only_what_is_signed(parts: Parts) -> Parts:
    """The signature is verified if there is one."""
    return excusing(parts, lambda header, _keys, _signed, signature: header.get("alg") == "ES256" and not signature)


@counterfeit("QZ-AUD-5", row="unlisted_algorithm")
def ignores_the_algorithm(parts: Parts) -> Parts:
    """The key alone chooses the algorithm, and what the header says is not compared."""

    def excused(header: Mapping[str, Any], keys: Sequence[VerificationKey], signed: bytes, signature: bytes) -> bool:
        return any(jwt.get_algorithm_by_name(key.algorithm).verify(signed, key.key, signature) for key in keys)

    return excusing(parts, excused)


# --- dates ----------------------------------------------------------------------------------------------------------


def dating(parts: Parts, live: Callable[[Claims, float], bool]) -> Parts:
    """Admit the tokens that are `live` now, in seconds since 1970."""

    class Fake(Audience):
        def check_dates(self, claims: Claims) -> None:
            now = self.clock.now()
            if not live(claims, now) or ("iat" in claims and now + 60 < _date(claims, "iat")):
                raise TokenRefusedError("dates")

        def believed_until(self, claims: Claims) -> float:
            return self.clock.now()

        def expires(self, claims: Claims) -> float:
            expiry = claims.get("exp")
            return expiry if isinstance(expiry, int) else math.inf

    return replace(parts, audience=recast(Fake, parts.audience))


def unexpired(claims: Claims, now: float) -> bool:
    """Whether `exp` is as it has to be."""
    return now < _date(claims, "exp")


def begun(claims: Claims, now: float) -> bool:
    """Whether `nbf` is as it has to be."""
    return "nbf" not in claims or now >= _date(claims, "nbf")


@counterfeit("QZ-AUD-6", "QZ-AUD-17", "QZ-AUD-18", "QZ-AUD-19", row="expired")
def ignores_expiry(parts: Parts) -> Parts:
    """The claim `exp` is not looked at."""
    return dating(parts, begun)


@counterfeit("QZ-AUD-6", "QZ-AUD-18", row="not yet valid")
def ignores_not_before(parts: Parts) -> Parts:
    """The claim `nbf` is not looked at."""
    return dating(parts, unexpired)


@counterfeit("QZ-AUD-6", row="expiry zero")
def takes_a_falsy_expiry_for_none(parts: Parts) -> Parts:
    """The expiry is compared if it is true as Python has it."""
    return dating(
        parts, lambda claims, now: begun(claims, now) and (not claims.get("exp", 1) or unexpired(claims, now))
    )


@counterfeit("QZ-AUD-6", "QZ-AUD-17", row="expiry a word")
def raises_on_an_expiry_that_is_no_number(parts: Parts) -> Parts:
    """The expiry is compared as it stands; the exception becomes a 500."""
    return dating(parts, lambda claims, now: begun(claims, now) and bool(now < claims["exp"]))


@counterfeit("QZ-AUD-6", row="expiry infinite")
def raises_on_an_expiry_of_infinity(parts: Parts) -> Parts:
    """The expiry is converted, which raises one more exception than is caught."""

    def live(claims: Claims, now: float) -> bool:
        expiry: Any = claims.get("exp")
        try:
            return begun(claims, now) and not isinstance(expiry, str) and now < int(expiry)
        except (TypeError, ValueError):
            return False

    return dating(parts, live)


@counterfeit("QZ-AUD-6", row="expiry null")
def takes_a_null_expiry_for_none(parts: Parts) -> Parts:
    """A token that expires at null never expires."""
    return dating(
        parts, lambda claims, now: begun(claims, now) and (claims.get("exp", 0) is None or unexpired(claims, now))
    )


@counterfeit("QZ-AUD-6", row="nbf a word")
def ignores_a_not_before_that_is_no_number(parts: Parts) -> Parts:
    """The claim `nbf` is compared only if it is a number."""
    return dating(
        parts,
        lambda claims, now: unexpired(claims, now) and (isinstance(claims.get("nbf"), str) or begun(claims, now)),
    )


# --- issuers, and who is remembered ---------------------------------------------------------------------------------


@counterfeit("QZ-AUD-7", "QZ-AUD-31", row="stranger")
def verifies_only_with_a_key(parts: Parts) -> Parts:
    """Where an issuer has no keys, the signature is not verified."""

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            if "iss" not in claims or await self.trust.keys(str(claims["iss"]), None):
                await super().check_signature(token, header, claims)

    return replace(parts, audience=recast(Fake, parts.audience))


@counterfeit("QZ-AUD-7", "QZ-AUD-29", "QZ-AUD-31", row="renamed")
def keeps_keys_by_key_id(parts: Parts) -> Parts:
    """Keys are kept by key id alone, whatever issuer they belong to."""
    kept: dict[str | None, Sequence[VerificationKey]] = {}
    honest = parts.trust

    class Fake:
        names = staticmethod(honest.names)
        aclose = staticmethod(honest.aclose)

        async def keys(self, issuer: str, kid: str | None) -> Sequence[VerificationKey]:
            if found := await honest.keys(issuer, kid):
                kept[kid] = found
            return kept.get(kid, ())

    trust: Trust = Fake()
    return replace(parts, trust=trust, audience=replace(parts.audience, trust=trust))


@counterfeit("QZ-AUD-7", row="absent")
def takes_an_absent_issuer_for_the_usual_one(parts: Parts) -> Parts:
    """A token without an issuer is verified as one of the first that is trusted."""

    class Fake(Audience):
        async def check_signature(self, token: bytes, header: Claims, claims: Claims) -> None:
            claims.setdefault("iss", f"{self.trust.names()[0]}/usual")
            await super().check_signature(token, header, claims)

    return replace(parts, audience=recast(Fake, parts.audience))


@counterfeit(
    *(f"QZ-AUD-{n}" for n in (1, 2, 3, 4, 5, 6, 11, *range(14, 21), 22, 24, 29, 30)),
    row="another server",
    wire="2025-11-25",
)
def remembers_callers_by_subject(parts: Parts) -> Parts:
    """Once a token was verified, others of the same issuer and subject are believed."""
    known: dict[tuple[str, str], Verified] = {}

    class Fake(Audience):
        async def verify(self, token: bytes) -> Verified:
            claims = _object(token.split(b".")[1])
            who = (str(claims.get("iss")), str(claims.get("sub")))
            if who not in known:
                known[who] = await super().verify(token)
            return known[who]

    return replace(parts, audience=recast(Fake, parts.audience))


# --- status and challenge -------------------------------------------------------------------------------------------


def forbidding(app: ASGIApp, applies: Callable[[Claims], bool]) -> ASGIApp:
    """Answer 403 in place of 401 to the refused tokens whose claims `applies` holds for."""

    def change(scope: Scope, start: Message) -> None:
        found = presented(scope)
        if start["status"] == 401 and found is not None and applies(found[1]):
            start["status"] = 403

    return heading(app, change)


@counterfeit(
    *(f"QZ-AUD-{n}" for n in (*range(1, 8), 11, *range(13, 20), 22, 24, 29, 30, 31)), row="another server", wraps=True
)
def forbids_every_bad_token(app: ASGIApp) -> ASGIApp:
    """A bad token is answered 403, as if its scope were too small."""
    return forbidding(app, lambda _: True)


@counterfeit(*(f"QZ-AUD-{n}" for n in (1, 2, 3, 4, 11, 13, 22, 24)), row="another server", wraps=True)
def forbids_another_audience(app: ASGIApp) -> ASGIApp:
    """A token for another resource is answered 403."""
    return forbidding(app, lambda claims: bool(claims) and claims.get("aud") != DEFAULT_RESOURCE)


def challenging(app: ASGIApp, challenge: Callable[[Claims | None, bytes], bytes | None]) -> ASGIApp:
    """Replace the challenges by what `challenge` makes of the claims presented (None: no token) and the honest one."""

    def change(scope: Scope, start: Message) -> None:
        found = presented(scope)
        claims = None if found is None else found[1]
        changed = [(key, challenge(claims, v) if key == b"www-authenticate" else v) for key, v in start["headers"]]
        start["headers"] = [(key, value) for key, value in changed if value is not None]

    return heading(app, change)


@counterfeit("QZ-AUD-8", "QZ-AUD-9", row="no credentials", wraps=True)
def omits_the_challenge(app: ASGIApp) -> ASGIApp:
    """Refusals are a bare 401."""
    return challenging(app, lambda _claims, _honest: None)


@counterfeit("QZ-AUD-8", "QZ-AUD-9", row="another resource", wraps=True)
def challenges_with_another_scheme(app: ASGIApp) -> ASGIApp:
    """The challenge to a bad token has a scheme of its own."""
    return challenging(app, lambda claims, honest: honest if claims is None else honest.replace(b"Bearer", b"OAuth"))


@counterfeit("QZ-AUD-8", "QZ-AUD-25", row="expired", wraps=True)
def omits_the_challenge_of_an_expired_token(app: ASGIApp) -> ASGIApp:
    """Expiry is refused elsewhere, where nobody thought of a challenge."""

    def challenge(claims: Claims | None, honest: bytes) -> bytes | None:
        expiry = (claims or {}).get("exp")
        return None if isinstance(expiry, int) and expiry < time.time() else honest

    return challenging(app, challenge)


@counterfeit("QZ-AUD-9", row="no credentials", wraps=True)
def publishes_metadata_of_the_address(app: ASGIApp) -> ASGIApp:
    """The metadata names the address that was dialled, not the resource."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/.well-known/"):
            await JSONResponse({"resource": str(Request(scope).url.replace(path="/mcp"))})(scope, receive, send)
        else:
            await app(scope, receive, send)

    return wrapped


@counterfeit("QZ-AUD-9", row="another resource", wraps=True)
def omits_the_metadata_for_bad_tokens(app: ASGIApp) -> ASGIApp:
    """Only the first challenge points to the metadata."""
    return challenging(app, lambda claims, honest: honest if claims is None else honest.partition(b", ")[0])


@counterfeit("QZ-AUD-9", "QZ-AUD-10", row="no credentials", wraps=True)
def challenges_everybody_alike(app: ASGIApp) -> ASGIApp:
    """One constant challenge serves bad tokens and none."""
    return challenging(app, lambda _claims, _honest: b'Bearer error="invalid_token"')


@counterfeit("QZ-AUD-10", row="no credentials", wraps=True)
def names_an_error_without_credentials(app: ASGIApp) -> ASGIApp:
    """A request without credentials is called invalid."""
    error = b'Bearer error="invalid_request", '
    return challenging(app, lambda claims, honest: honest.replace(b"Bearer ", error) if claims is None else honest)


# --- where it is not checked ----------------------------------------------------------------------------------------


def unchecked(app: ASGIApp, applies: Callable[[str, str], bool]) -> ASGIApp:
    """Check no audience on the HTTP methods and JSON-RPC methods that `applies` holds for.

    The gate behind has no such switch: it is shown the token that the same subject first presented with our audience.
    """
    shown: dict[str, bytes] = {}

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        message, receive = await asked(scope, receive)
        found = presented(scope) if scope["type"] == "http" else None
        if found is not None:
            token, claims = found
            who = str(claims.get("sub"))
            if claims.get("aud") == DEFAULT_RESOURCE:
                shown.setdefault(who, token)
            elif who in shown and applies(scope["method"], message.get("method", "")):
                scope = bearing(scope, shown[who])
        await app(scope, receive, send)

    return wrapped


def fronting(app: ASGIApp, verb: str, response: Response) -> ASGIApp:
    """Answer an HTTP method of the endpoint in front of the gate."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        is_ours = scope["type"] == "http" and (scope["method"], scope["path"]) == (verb, "/mcp")
        await (response if is_ours else app)(scope, receive, send)

    return wrapped


@counterfeit("QZ-AUD-11", row="POST initialize", wraps=True)
def leaves_the_handshake_open(app: ASGIApp) -> ASGIApp:
    """The audience is not checked before a session is there."""
    return unchecked(app, lambda _, method: method == "initialize")


@counterfeit("QZ-AUD-11", row="POST server/discover", wraps=True)
def leaves_discovery_open(app: ASGIApp) -> ASGIApp:
    """The audience is not checked on discovery."""
    return unchecked(app, lambda _, method: method == "server/discover")


@counterfeit("QZ-AUD-11", "QZ-AUD-13", row="POST tools/call", wraps=True)
def leaves_calls_open(app: ASGIApp) -> ASGIApp:
    """The audience is checked where tools are listed, and not where they are called."""
    return unchecked(app, lambda _, method: method == "tools/call")


@counterfeit("QZ-AUD-11", "QZ-AUD-13", row="POST prompts/list", wraps=True)
def checks_only_tools(app: ASGIApp) -> ASGIApp:
    """The audience is not checked on prompts and resources."""
    return unchecked(app, lambda _, method: method.startswith(("prompts/", "resources/")))


@counterfeit("QZ-AUD-11", "QZ-AUD-13", row="POST notifications/initialized", wraps=True)
def leaves_notifications_open(app: ASGIApp) -> ASGIApp:
    """The audience is not checked on messages that get no answer."""
    return unchecked(app, lambda _, method: method.startswith("notifications/"))


@counterfeit("QZ-AUD-11", "QZ-AUD-13", row="POST no/such/method", wraps=True)
def leaves_unknown_methods_open(app: ASGIApp) -> ASGIApp:
    """The audience is checked once the method is known."""
    known = ("initialize", "ping", "server/", "tools/", "prompts/", "resources/", "notifications/")
    return unchecked(app, lambda verb, method: verb == "POST" and not method.startswith(known))


@counterfeit("QZ-AUD-11", "QZ-AUD-12", "QZ-AUD-13", row="GET", wraps=True)
def shows_a_page_to_browsers(app: ASGIApp) -> ASGIApp:
    """A GET of the endpoint is answered by a page, before anybody is asked for a token."""
    return fronting(app, "GET", Response("This is an MCP server."))


@counterfeit("QZ-AUD-11", "QZ-AUD-12", row="DELETE", wraps=True)
def acknowledges_every_deletion(app: ASGIApp) -> ASGIApp:
    """The end of a session is acknowledged, whoever asks for it."""
    return fronting(app, "DELETE", Response(status_code=204))


def guesting(app: ASGIApp, applies: Callable[[Scope, str], bool]) -> ASGIApp:
    """Serve requests without credentials that `applies` holds for as those of whoever was last let in."""
    shown: list[bytes] = []

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        message, receive = await asked(scope, receive)
        found = presented(scope) if scope["type"] == "http" else None
        if found is not None and found[1].get("aud") == DEFAULT_RESOURCE:
            shown[:] = [found[0]]
        elif found is None and shown and scope["path"] == "/mcp" and applies(scope, message.get("method", "")):
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer " + shown[0])]}
        await app(scope, receive, send)

    return wrapped


@counterfeit("QZ-AUD-12", "QZ-AUD-21", row="POST initialize", wraps=True)
def takes_no_token_for_a_trusted_caller(app: ASGIApp) -> ASGIApp:
    """A request without credentials is served; a bad token is refused."""
    return guesting(app, lambda _scope, _method: True)


@counterfeit("QZ-AUD-12", row="POST ping", wraps=True)
def answers_health_checks_of_anybody(app: ASGIApp) -> ASGIApp:
    """A ping needs no token."""
    return guesting(app, lambda _, method: method == "ping")


@counterfeit("QZ-AUD-12", "QZ-AUD-21", row="POST server/discover", wraps=True, wire="2025-11-25")
def takes_a_session_id_for_a_credential(app: ASGIApp) -> ASGIApp:
    """Whoever names an open session needs no token."""
    return guesting(app, lambda scope, _: any(key == b"mcp-session-id" for key, _value in scope["headers"]))
