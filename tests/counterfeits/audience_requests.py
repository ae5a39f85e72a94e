"""Counterfeits of the invariant audience: where a token stands in a request, and what is said of a bad one."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.responses import JSONResponse

from counterfeits import counterfeit
from counterfeits.asgi import Claims, bearing, body_of, heading, object_of, presented, segment_of
from quenchz_reference.audience import (
    Audience,
    AudienceGate,
    NoCredentialsError,
    TokenRefusedError,
    Verified,
    _object,
    bearer_token,
)
from quenchz_reference.options import DEFAULT_RESOURCE
from quenchz_reference.parts import Parts, recast

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    Find = Callable[[Scope, bytes], bytes | None]
    """Returns the token that a request, with its body, has somewhere."""


# --- a token elsewhere ----------------------------------------------------------------------------------------------


def reading(app: ASGIApp, find: Find, applies: Callable[[Scope], bool] | None = None) -> ASGIApp:
    """Take the token that is found, on requests that `applies` holds for: by default those without bearer tokens."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp":
            body, receive = await body_of(scope, receive)
            concerned = presented(scope) is None if applies is None else applies(scope)
            token = find(scope, body) if concerned else None
            scope = scope if token is None else bearing(scope, token)
        await app(scope, receive, send)

    return wrapped


def field(name: bytes, prefix: bytes = b"") -> Find:
    """Find a token in a header field."""

    def find(scope: Scope, _: bytes) -> bytes | None:
        value = dict(scope["headers"]).get(name, b"")
        return value.removeprefix(prefix) if value.startswith(prefix) and value else None

    return find


def parameter(text: bytes) -> bytes | None:
    return next(iter(parse_qs(text).get(b"access_token", ())), None)


def in_query(scope: Scope, _: bytes) -> bytes | None:
    return parameter(scope["query_string"])


def in_cookie(scope: Scope, _: bytes) -> bytes | None:
    found = SimpleCookie(dict(scope["headers"]).get(b"cookie", b"").decode("latin-1")).get("access_token")
    return None if found is None else found.value.encode()


def in_message(_: Scope, body: bytes) -> bytes | None:
    found = object_of(body).get("access_token")
    return found.encode() if isinstance(found, str) else None


@counterfeit("QZ-AUD-21", row="query", wraps=True)
def takes_a_token_from_the_query(app: ASGIApp) -> ASGIApp:
    """For clients that can set no header, the token may stand in the URL."""
    return reading(app, in_query)


@counterfeit("QZ-AUD-21", row="form", wraps=True)
def takes_a_token_from_a_form(app: ASGIApp) -> ASGIApp:
    """RFC 6750 §2.2 is supported as well: the token may be a parameter of a form."""

    def find(scope: Scope, body: bytes) -> bytes | None:
        is_form = dict(scope["headers"]).get(b"content-type") == b"application/x-www-form-urlencoded"
        return parameter(body) if is_form else None

    return reading(app, find)


@counterfeit("QZ-AUD-21", row="body", wraps=True)
def takes_a_token_from_the_message(app: ASGIApp) -> ASGIApp:
    """The token may be a member of the JSON-RPC message."""
    return reading(app, in_message)


@counterfeit("QZ-AUD-21", row="meta", wraps=True)
def takes_a_token_from_the_metadata_of_a_request(app: ASGIApp) -> ASGIApp:
    """The token may stand in `_meta`, where a stdio bridge puts it."""

    def find(_: Scope, body: bytes) -> bytes | None:
        found = object_of(body).get("params", {}).get("_meta", {}).get("access_token")
        return found.encode() if isinstance(found, str) else None

    return reading(app, find)


@counterfeit("QZ-AUD-21", row="cookie", wraps=True)
def takes_a_token_from_a_cookie(app: ASGIApp) -> ASGIApp:
    """The web console shares its login with the endpoint."""
    return reading(app, in_cookie)


@counterfeit("QZ-AUD-21", row="x field", wraps=True)
def takes_a_token_from_a_field_of_its_own(app: ASGIApp) -> ASGIApp:
    """The field of the API keys holds tokens as well."""
    return reading(app, field(b"x-access-token"))


@counterfeit("QZ-AUD-21", row="forwarded field", wraps=True)
def trusts_a_forwarded_authorization(app: ASGIApp) -> ASGIApp:
    """A gateway moves the credentials to another field, which clients can fill in too."""
    return reading(app, field(b"x-forwarded-authorization", b"Bearer "))


@counterfeit("QZ-AUD-21", row="proxy field", wraps=True)
def takes_the_credentials_of_a_proxy(app: ASGIApp) -> ASGIApp:
    """What a client tells the proxy before the server is taken for its own credentials."""
    return reading(app, field(b"proxy-authorization", b"Bearer "))


@counterfeit("QZ-AUD-21", row="no scheme", wraps=True)
def takes_the_last_word_for_the_token(app: ASGIApp) -> ASGIApp:
    """Whatever comes last in the field is the token."""
    return reading(app, lambda scope, body: (field(b"authorization")(scope, body) or b"").rpartition(b" ")[2] or None)


@counterfeit("QZ-AUD-21", row="other scheme", wraps=True)
def takes_a_token_of_any_scheme(app: ASGIApp) -> ASGIApp:
    """The scheme is skipped, not compared."""
    return reading(app, lambda scope, body: (field(b"authorization")(scope, body) or b"").partition(b" ")[2] or None)


@counterfeit("QZ-AUD-21", row="basic", wraps=True)
def takes_a_token_for_a_password(app: ASGIApp) -> ASGIApp:
    """Basic credentials are taken if the password is a token."""

    def find(scope: Scope, body: bytes) -> bytes | None:
        value = field(b"authorization", b"Basic ")(scope, body)
        return None if value is None else base64.b64decode(value).partition(b":")[2]

    return reading(app, find)


# --- two credentials ------------------------------------------------------------------------------------------------


def is_refused(scope: Scope) -> bool:
    """Whether a request bears a token that gate 1 will refuse, as far as its audience goes."""
    found = presented(scope)
    return found is not None and found[1].get("aud") != DEFAULT_RESOURCE


@counterfeit("QZ-AUD-22", row="bad, and good in the query", wraps=True)
def falls_back_to_the_query(app: ASGIApp) -> ASGIApp:
    """When the field holds a bad token, the URL is asked for another."""
    return reading(app, in_query, is_refused)


@counterfeit("QZ-AUD-22", row="bad, and good in a cookie", wraps=True)
def falls_back_to_a_cookie(app: ASGIApp) -> ASGIApp:
    """When the field holds a bad token, the cookies are asked for another."""
    return reading(app, in_cookie, is_refused)


@counterfeit("QZ-AUD-22", row="bad, and good in the body", wraps=True)
def falls_back_to_the_message(app: ASGIApp) -> ASGIApp:
    """When the field holds a bad token, the message is asked for another."""
    return reading(app, in_message, is_refused)


@counterfeit("QZ-AUD-22", row="bad, and good in a forwarded field", wraps=True)
def falls_back_to_a_forwarded_field(app: ASGIApp) -> ASGIApp:
    """When the field holds a bad token, the one that the gateway writes is asked for another."""
    return reading(app, field(b"x-forwarded-authorization", b"Bearer "), is_refused)


def choosing(app: ASGIApp, choose: Callable[[list[bytes]], bytes | None]) -> ASGIApp:
    """Take one of the values of several Authorization fields, if one is chosen."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        chosen = choose([value for key, value in scope.get("headers", ()) if key == b"authorization"])
        if chosen is not None:
            scope = bearing(scope, chosen.partition(b" ")[2])
        await app(scope, receive, send)

    return wrapped


@counterfeit("QZ-AUD-22", row="good, then bad", wraps=True)
def takes_the_first_of_two_fields(app: ASGIApp) -> ASGIApp:
    """The header fields are searched for the first of the name."""
    return choosing(app, lambda values: values[0] if len(values) > 1 else None)


@counterfeit("QZ-AUD-22", row="bad, then good", wraps=True)
def takes_the_last_of_two_fields(app: ASGIApp) -> ASGIApp:
    """The header fields become a dict, in which the last of a name stays."""
    return choosing(app, lambda values: values[-1] if len(values) > 1 else None)


@counterfeit("QZ-AUD-22", row="good, then good", wraps=True)
def takes_a_credential_that_is_repeated(app: ASGIApp) -> ASGIApp:
    """Only fields that differ are two."""
    return choosing(app, lambda values: values[0] if len(values) > 1 and len(set(values)) == 1 else None)


def split(values: list[bytes]) -> list[bytes]:
    return values[0].split(b", ") if len(values) == 1 and b", " in values[0] else []


@counterfeit("QZ-AUD-22", row="good, then bad after a comma", wraps=True)
def reads_up_to_a_comma(app: ASGIApp) -> ASGIApp:
    """Credentials end at a comma, and what follows is left alone."""
    return choosing(app, lambda values: next(iter(split(values)), None))


@counterfeit("QZ-AUD-22", row="bad, then good after a comma", wraps=True)
def reads_after_the_last_comma(app: ASGIApp) -> ASGIApp:
    """A proxy appends its credentials after a comma, so the last ones are taken."""
    return choosing(app, lambda values: next(reversed(split(values)), None))


# --- the scheme -----------------------------------------------------------------------------------------------------


def accepting(app: ASGIApp, *prefixes: bytes) -> ASGIApp:
    """See no credentials where the field begins otherwise."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            kept = [(k, v) for k, v in scope["headers"] if k != b"authorization" or v.startswith(prefixes)]
            scope = {**scope, "headers": kept}
        await app(scope, receive, send)

    return wrapped


@counterfeit("QZ-AUD-23", row="small", wraps=True)
def compares_the_scheme_as_it_is_written(app: ASGIApp) -> ASGIApp:
    """The scheme is compared letter by letter."""
    return accepting(app, b"Bearer ")


@counterfeit("QZ-AUD-23", row="mixed", wraps=True)
def knows_two_spellings_of_the_scheme(app: ASGIApp) -> ASGIApp:
    """The scheme is compared with the two spellings that clients were seen to use."""
    return accepting(app, b"Bearer ", b"bearer ")


# --- large tokens ---------------------------------------------------------------------------------------------------


@counterfeit("QZ-AUD-24", row="64 kB, good", wraps=True)
def raises_on_a_token_of_64_kb(app: ASGIApp) -> ASGIApp:
    """The token goes into a column of 64 kB; the exception becomes a 500."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        found = presented(scope) if scope["type"] == "http" else None
        if found is not None and len(found[0]) >= 65_536:
            raise ValueError("value too long for the column")
        await app(scope, receive, send)

    return wrapped


@counterfeit("QZ-AUD-24", row="8 kB, good", wraps=True)
def breaks_off_on_a_token_of_8_kb(app: ASGIApp) -> ASGIApp:
    """The worker that reads a large token dies in the middle of its answer."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        found = presented(scope) if scope["type"] == "http" else None
        if found is not None and len(found[0]) >= 8192:
            await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"24")]})
            return
        await app(scope, receive, send)

    return wrapped


@counterfeit("QZ-AUD-24", row="8 kB, bad")
def skips_the_audience_of_a_large_token(parts: Parts) -> Parts:
    """Tokens beyond the size that the gate takes go another way, on which the audience was forgotten."""

    class Fake(Audience):
        async def verify(self, token: bytes) -> Verified:
            if len(token) <= 8192:
                return await super().verify(token)
            header, claims = (_object(segment) for segment in token.split(b".")[:2])
            self.check_header(header)
            await self.check_signature(token, header, claims)
            self.check_dates(claims)
            return Verified(self.caller(claims), self.believed_until(claims))

    return replace(parts, audience=recast(Fake, parts.audience))


# --- what a refusal says --------------------------------------------------------------------------------------------


def describing(parts: Parts, describe: Callable[[str], str]) -> Parts:
    """Describe the error to the client, made of the reason for the log; an empty description is left out."""

    class Fake(AudienceGate):
        reason = ""

        async def _verified(self, token: bytes) -> Any:
            try:
                return await super()._verified(token)
            except TokenRefusedError as reason:
                self.reason = str(reason)
                raise

        def refusal(self) -> Response:
            refusal = super().refusal()
            if description := describe(self.reason):
                challenge = refusal.headers["www-authenticate"]
                described = f'error="invalid_token", error_description={description}'
                refusal.headers["www-authenticate"] = challenge.replace('error="invalid_token"', described)
            return refusal

    return replace(parts, audience_gate=Fake)


@counterfeit("QZ-AUD-25", row="forged")
def names_the_reason(parts: Parts) -> Parts:
    """The description says what was wrong, in constant words."""
    return describing(parts, lambda reason: f'"{re.split(" [^a-z]", reason)[0]}"')


@counterfeit("QZ-AUD-25", row="expired")
def says_that_a_token_has_expired(parts: Parts) -> Parts:
    """Only expiry is described, so that a client gets a new token."""
    return describing(parts, lambda reason: '"the token expired"' if reason == "expired" else "")


@counterfeit("QZ-AUD-25", row="no JSON")
def calls_a_token_malformed(parts: Parts) -> Parts:
    """What cannot be read is described as such."""
    return describing(parts, lambda reason: '"malformed token"' if reason.startswith("unreadable") else "")


@counterfeit("QZ-AUD-25", row="unknown key", wraps=True)
def answers_an_unknown_key_without_a_body(app: ASGIApp) -> ASGIApp:
    """A token without a known key is refused before the page for refusals is at hand."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        found = presented(scope) if scope["type"] == "http" else None
        header = {} if found is None else segment_of(found[0], 0)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                is_long = [(k, b"0" if k == b"content-length" else v) for k, v in message["headers"]]
                message = {**message, "headers": is_long}
            elif message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await app(scope, receive, sending if header.get("kid") == "quenchz-none" else send)

    return wrapped


@counterfeit("QZ-AUD-8", "QZ-AUD-25", row="no JSON")
def describes_a_malformed_token_without_quotes(parts: Parts) -> Parts:
    """The description of a token that cannot be read has blanks and no quotation marks."""
    return describing(parts, lambda reason: "malformed token" if reason.startswith("unreadable") else "")


@counterfeit("QZ-AUD-8", row="no credentials", wraps=True)
def adds_a_realm_without_quotes(app: ASGIApp) -> ASGIApp:
    """A gateway adds a challenge of its own, with a URL that stands in no quotation marks."""

    def change(_: Scope, start: Message) -> None:
        if start["status"] == 401:
            realm = f"Bearer realm={DEFAULT_RESOURCE}".encode()
            start["headers"] = [*start["headers"], (b"www-authenticate", realm)]

    return heading(app, change)


@counterfeit("QZ-AUD-25", "QZ-AUD-26", row="forged")
def names_the_audience_it_got(parts: Parts) -> Parts:
    """The description says which audience the token has instead of ours."""
    return describing(
        parts, lambda reason: json.dumps(reason.replace("'", "")) if reason.startswith("audience") else ""
    )


@counterfeit("QZ-AUD-25", "QZ-AUD-26", row="another issuer")
def names_the_key_it_lacks(parts: Parts) -> Parts:
    """The description says which key of which issuer was not found."""
    return describing(parts, lambda reason: json.dumps(reason) if reason.startswith("no ") else "")


def saying(app: ASGIApp, say: Callable[[bytes, Claims, Message], bytes | None]) -> ASGIApp:
    """Add a field to the answers to presented tokens."""

    def change(scope: Scope, start: Message) -> None:
        found = presented(scope)
        said = None if found is None else say(*found, start)
        start["headers"] = [*start["headers"], *([] if said is None else [(b"x-auth", said)])]

    return heading(app, change)


@counterfeit("QZ-AUD-26", row="audience", wraps=True)
def returns_the_token_to_its_bearer(app: ASGIApp) -> ASGIApp:
    """Who is let in gets the token back, for the next request."""
    return saying(app, lambda token, _claims, start: token if start["status"] == 200 else None)


@counterfeit("QZ-AUD-25", "QZ-AUD-26", row="no JSON", wraps=True)
def greets_the_subject(app: ASGIApp) -> ASGIApp:
    """Every answer says whose token was presented, be it good or not."""
    return saying(app, lambda _token, claims, _start: str(claims.get("sub", "nobody")).encode("ascii", "replace"))


@counterfeit("QZ-AUD-26", row="scope", wraps=True)
def names_scopes_it_does_not_know(app: ASGIApp) -> ASGIApp:
    """Scopes that are in no catalogue are named, as a hint to whoever made the token."""

    def say(_token: bytes, claims: Claims, _start: Message) -> bytes | None:
        unknown = [scope for scope in str(claims.get("scope", "")).split() if not scope.startswith("rates:")]
        return f"unknown {' '.join(unknown)}".encode("ascii", "replace") if unknown else None

    return saying(app, say)


# --- hosts ----------------------------------------------------------------------------------------------------------


def naming(app: ASGIApp, name: Callable[[dict[str, str]], str | None]) -> ASGIApp:
    """Name another resource in the metadata, made of the fields of the request."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/.well-known/"):
            resource = name({key.decode(): value.decode("latin-1") for key, value in scope["headers"]})
            if resource is not None:
                await JSONResponse({"resource": resource})(scope, receive, send)
                return
        await app(scope, receive, send)

    return wrapped


@counterfeit("QZ-AUD-27", row="forwarded host", wraps=True)
def names_the_forwarded_host(app: ASGIApp) -> ASGIApp:
    """The metadata names the host that X-Forwarded-Host has."""
    return naming(app, lambda fields: f"https://{host}/mcp" if (host := fields.get("x-forwarded-host")) else None)


@counterfeit("QZ-AUD-27", row="forwarded", wraps=True)
def names_the_host_of_rfc_7239(app: ASGIApp) -> ASGIApp:
    """The metadata names the host that Forwarded has."""

    def name(fields: dict[str, str]) -> str | None:
        found = re.search("host=([^;]+)", fields.get("forwarded", ""))
        return None if found is None else f"https://{found[1]}/mcp"

    return naming(app, name)


@counterfeit("QZ-AUD-27", row="forwarded http", wraps=True)
def names_the_forwarded_scheme(app: ASGIApp) -> ASGIApp:
    """The metadata names the scheme that X-Forwarded-Proto has."""

    def name(fields: dict[str, str]) -> str | None:
        scheme = fields.get("x-forwarded-proto")
        return None if scheme is None else DEFAULT_RESOURCE.replace("https:", f"{scheme}:")

    return naming(app, name)


@counterfeit("QZ-AUD-27", row="original URL", wraps=True)
def names_the_original_path(app: ASGIApp) -> ASGIApp:
    """The metadata names the path that X-Original-URL has."""

    def name(fields: dict[str, str]) -> str | None:
        path = fields.get("x-original-url")
        return None if path is None else DEFAULT_RESOURCE.replace("/mcp", path)

    return naming(app, name)


@counterfeit("QZ-AUD-27", row="host", wraps=True)
def challenges_with_the_host_it_was_asked_by(app: ASGIApp) -> ASGIApp:
    """The challenge points to metadata on the host that the request names."""

    def change(scope: Scope, start: Message) -> None:
        host = dict(scope["headers"]).get(b"host", b"")
        start["headers"] = [
            (key, re.sub(rb"(resource_metadata=.http://)[^/]*", rb"\g<1>" + host, value))
            for key, value in start["headers"]
        ]

    return heading(app, change)


@counterfeit("QZ-AUD-27", row="forwarded port", wraps=True)
def challenges_with_the_forwarded_port(app: ASGIApp) -> ASGIApp:
    """The challenge points to metadata on the port that X-Forwarded-Port has."""

    def change(scope: Scope, start: Message) -> None:
        port = dict(scope["headers"]).get(b"x-forwarded-port")
        if port is not None:
            pattern = rb"(resource_metadata=.http://[^/:]*):[0-9]+"
            start["headers"] = [(k, re.sub(pattern, rb"\g<1>:" + port, v)) for k, v in start["headers"]]

    return heading(app, change)


# --- sessions -------------------------------------------------------------------------------------------------------


def owning(parts: Parts, applies: Callable[[str], bool]) -> Parts:
    """Take requests of good tokens, with HTTP methods that `applies` holds for, as those of the session's opener."""
    owners: dict[bytes, bytes] = {}

    class Fake(AudienceGate):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            session = dict(scope["headers"]).get(b"mcp-session-id")
            try:
                token = bearer_token(scope)
                await self._verified(token)
            except (NoCredentialsError, TokenRefusedError):
                session = None
            if session is not None:
                owner = owners.setdefault(session, token)
                scope = bearing(scope, owner) if applies(scope["method"]) else scope
            await super().__call__(scope, receive, send)

    return replace(parts, audience_gate=Fake)


@counterfeit("QZ-AUD-20", "QZ-AUD-28", row="GET", wire="2025-11-25")
def takes_the_caller_from_the_session(parts: Parts) -> Parts:
    """A good token lets in; who it is was settled when the session was opened."""
    return owning(parts, lambda _: True)


@counterfeit("QZ-AUD-28", row="DELETE", wire="2025-11-25")
def ends_sessions_of_others(parts: Parts) -> Parts:
    """Whoever knows a session's id may end it."""
    return owning(parts, lambda method: method == "DELETE")
