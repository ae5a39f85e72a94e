"""The words of the law: what a property asks for, and what came back.

Everything here is plain data (see `quenchz_spec.codec`) or a view of received bytes. Nothing here does I/O.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from quenchz_spec.codec import plain
from quenchz_spec.resources import Uri
from quenchz_spec.shapes import members

Json: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"


# --- tokens, symbolically -------------------------------------------------------------------------------------------


@plain
class AudienceForm(enum.Enum):
    """How the `aud` member of a token's payload is written (RFC 7519 §4.1.3)."""

    STRING = "one string"
    LIST = "a list of strings"
    ABSENT = "no member at all"
    LITERAL = "a JSON text in which %us% stands for this resource"


@plain
@dataclass(frozen=True)
class Audience:
    """The audience of a token, as a recipe: one or more URIs relative to the resource under test, or JSON text."""

    form: AudienceForm = AudienceForm.STRING
    uris: tuple[Uri, ...] = (Uri(),)
    literal: str = ""

    def json(self, resource: str) -> str | None:
        """Return the JSON text of the `aud` member for `resource`, or None when the member is absent."""
        if self.form is AudienceForm.ABSENT:
            return None
        if self.form is AudienceForm.LITERAL:
            return self.literal.replace("%us%", json.dumps(resource)[1:-1])
        written = [uri.of(resource) for uri in self.uris]
        return json.dumps(written[0] if self.form is AudienceForm.STRING else written)


OURS = Audience()


@plain
class Signature(enum.Enum):
    """Who signed a token, and how; everything but OWN is a forgery."""

    OWN = "the trusted issuer's key"
    STRANGER = "a key that is not in the trusted issuer's key set, under the trusted key's id"
    NONE = "alg none and an empty signature"
    HS256_PUBLIC_KEY = "HMAC keyed with the trusted issuer's public key in PEM"
    STRIPPED = "the signature removed, the header unchanged"
    OTHER_TOKEN = "the signature of another valid token"  # noqa: S105 - a name of a forgery
    UNLISTED_ALGORITHM = "the trusted issuer's key, named in the header as an algorithm that is not offered"
    HS256_PUBLIC_KEY_DER = "HMAC keyed with the trusted issuer's public key in DER"
    HS256_PUBLIC_KEY_JWK = "HMAC keyed with the trusted issuer's public key as the JWK that its key set holds"
    HS256_EMPTY = "HMAC keyed with nothing"


@plain
class Shape(enum.Enum):
    """How a token is written; only the first is the compact serialisation of RFC 7515 §3.1."""

    COMPACT = "three segments"
    EMPTY = "no characters at all"
    ONE = "the payload segment alone"
    TWO = "header and payload, without a third segment"
    FOUR = "a fourth segment after the signature"
    FIVE = "five segments, as an encrypted token has them"
    ENCRYPTED = "a JWE of five segments, encrypted to the trusted issuer's public key"
    DETACHED = "the payload left out between two dots"
    HEADERLESS = "the header left out before the first dot"
    TRUNCATED = "the last characters of the signature cut off"
    PADDED = "every segment padded with ="
    URL_UNSAFE = "segments in the alphabet of base64 with + and /"
    JSON = "the JSON serialisation of RFC 7515 §7.2.2"
    NO_JSON = "a payload that is no JSON"
    LIST = "a payload that is a JSON list"
    OPAQUE = "a reference of random letters, which only its issuer can read"


@plain
class Introspection(enum.Enum):
    """What a resource hears that asks the issuer about an opaque token (RFC 7662 §2); only the first is an answer."""

    ANSWERED = "an answer"
    SERVER_ERROR = "HTTP 500, and the answer in its body"
    PAGE = "a page of HTML"
    SILENT = "nothing, as long as it waits"


@plain
class OurKey(enum.Enum):
    """A stranger's key, named in a token's header in the ways that RFC 7515 §4.1 has; URLs are those of the canary."""

    JWK = "the key itself"
    X5C = "a certificate of the key"
    JKU = "a URL of a key set with the key"
    X5U = "a URL of a certificate of the key"


@plain
@dataclass(frozen=True)
class Filler:
    """So many letters, for values that no history needs to spell out."""

    length: int

    @property
    def words(self) -> str:
        """The value in words."""
        return f"{self.length} letters"


@plain
@dataclass(frozen=True)
class SecondsFromNow:
    """A NumericDate (RFC 7519 §2) relative to the moment the token is minted, in seconds."""

    seconds: int

    @property
    def words(self) -> str:
        """The moment in words."""
        return f"{abs(self.seconds)} seconds {'ago' if self.seconds < 0 else 'from now'}"


@plain
@dataclass(frozen=True)
class RawJson:
    """JSON text that is written as it stands: what no serialiser would write (`1e400`, a duplicate member)."""

    text: str

    @property
    def words(self) -> str:
        """The text itself."""
        return self.text


@plain
@dataclass(frozen=True)
class Claim:
    """One member of a payload or a header set to a value.

    The value is JSON data, `RawJson`, a time relative to minting, a `Filler`, an `Audience` (so that another claim than
    `aud` can name this resource), or in a header a key of ours.
    """

    name: str
    value: Any


@plain
@dataclass(frozen=True, kw_only=True)
class TokenRecipe:
    """How to mint one token. The defaults make a token that the resource must admit.

    `caller` names a caller of the target; `claims` replaces and `without` removes members of the payload; `issuer` is
    "trusted" or "stranger" (an issuer with a key set of its own that the resource was never told to trust); `serial`
    distinguishes fresh tokens of the same caller. `header` and `without_header` do to the JOSE header what `claims` and
    `without` do to the payload. `generation` says which key of the trusted issuer signs: the first, or one that it
    turned to later. Of an opaque token `claims` and `without` change what the issuer answers when it is asked about it
    (`active` is a member of that answer), and `introspection` whether it does.
    """

    caller: str
    audience: Audience = OURS
    signature: Signature = Signature.OWN
    claims: tuple[Claim, ...] = ()
    without: tuple[str, ...] = ()
    issuer: str = "trusted"
    serial: int = 0
    header: tuple[Claim, ...] = ()
    without_header: tuple[str, ...] = ()
    shape: Shape = Shape.COMPACT
    generation: int = 0
    introspection: Introspection = Introspection.ANSWERED

    def fresh(self, serial: int) -> TokenRecipe:
        """Return the recipe of another token of the same caller."""
        return dataclasses.replace(self, serial=serial)

    @property
    def has_moments(self) -> bool:
        """Whether a claim is a time relative to the minting, so that no two tokens of this recipe are alike."""
        return any(isinstance(claim.value, SecondsFromNow) for claim in self.claims)

    @property
    def can_be_opaque(self) -> bool:
        """Whether an issuer that is asked about an opaque token can tell all that differs from a good one.

        Such a token has no header, no signature and no size of its own. Nobody need look at the issuer's name in the
        answer, whose sender is known, nor find a member there that RFC 7662 §2.2 makes optional; the audience is
        another matter, since without it nobody knows for whom the token is.
        """
        own = TokenRecipe(
            caller=self.caller,
            audience=self.audience,
            claims=self.claims,
            without=self.without,
            issuer=self.issuer,
            serial=self.serial,
            introspection=self.introspection,
        )
        told = all(claim.name != "iss" and not isinstance(claim.value, Filler) for claim in self.claims)
        return self in (own, dataclasses.replace(own, shape=Shape.OPAQUE)) and told and set(self.without) <= {"active"}

    @property
    def plainly_valid(self) -> bool:
        """Whether nothing about this recipe differs from a token that must be admitted."""
        return dataclasses.replace(self, serial=0) == TokenRecipe(caller=self.caller)


# --- requests, symbolically -----------------------------------------------------------------------------------------


@plain
class Role(enum.Enum):
    """What an exchange was for."""

    SETUP = "setup"
    CONTROL = "control"
    PROBE = "probe"
    NOISE = "A/A"


@plain
class Place(enum.Enum):
    """Where a token stands in a request; FIELD is where RFC 6750 §2.1 and MCP put it."""

    FIELD = "in the Authorization field"
    SMALL_SCHEME = "in the Authorization field, the scheme in small letters"
    MIXED_SCHEME = "in the Authorization field, the scheme in letters of either case"
    NO_SCHEME = "in the Authorization field, without a scheme"
    OTHER_SCHEME = "in the Authorization field, under the scheme Token"
    BASIC = "in the Authorization field, as a password under the scheme Basic"
    JOINED = "in the Authorization field, after a comma"
    QUERY = "in the query, as access_token"
    FORM = "in a form body, as access_token"
    BODY = "in the JSON body, beside the method, as access_token"
    META = "in the _meta of the request"
    COOKIE = "in a cookie named access_token"
    X_FIELD = "in the field X-Access-Token"
    FORWARDED_FIELD = "in the field X-Forwarded-Authorization"
    PROXY_FIELD = "in the field Proxy-Authorization"


@plain
@dataclass(frozen=True)
class Credential:
    """A token and where it stands."""

    token: TokenRecipe
    place: Place = Place.FIELD


@plain
@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request, before it is bytes: a JSON-RPC method with its params, a token recipe, an HTTP method.

    The driver adds what the negotiated protocol revision requires (headers, `_meta`, a session). `session` names whose
    session a stateful revision uses: the token's caller by default; "" asks outside any session. `place` says where
    `token` stands, `also` adds credentials after it, and `headers` adds header fields or replaces those of the same
    name, Host included. An event stream that answers is read on for `listen` seconds, or until it ends.
    """

    method: str
    params: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    token: TokenRecipe | None = None
    verb: str = "POST"
    session: str | None = None
    body: str | None = None
    place: Place = Place.FIELD
    also: tuple[Credential, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    listen: float = 0.0

    @property
    def words(self) -> str:
        """The request in a few words, for a report."""
        name = self.params.get("name", self.params.get("uri", ""))
        shown = f"{self.verb} {self.method}" + (f" {name!r}" if name != "" else "")
        shown += f" as {self.token.caller}" if self.token else " without credentials"
        if self.place is not Place.FIELD:
            shown += f" {self.place.value}"
        shown += "".join(f" and {one.token.caller} {one.place.value}" for one in self.also)
        return shown + "".join(f", {name}: {value}" for name, value in self.headers)


# --- answers --------------------------------------------------------------------------------------------------------


@plain
@dataclass(frozen=True)
class Message:
    """One HTTP message as received or sent: start line, headers in order and case, and the body without its framing.

    `body` holds the bytes as latin-1 text, one character a byte, so that the message is plain data.
    """

    start: str
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""

    def header(self, name: str) -> str | None:
        """Return the first value of a header field, compared without case (RFC 9110 §5.1), or None."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def all(self, name: str) -> list[str]:
        """Return every value of a header field, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


@plain
@dataclass(frozen=True)
class Moments:
    """When a request was sent and its answer began and ended: seconds on the history's one monotonic clock."""

    sent: float
    first: float
    last: float


@dataclass(frozen=True)
class Exchange:
    """A request and its answer.

    `echoed` says that a piece of a token stood in the answer; there the answer has stars.
    """

    ask: Ask
    role: Role
    request: Message
    response: Message
    at: Moments
    rpc_id: int | None = None
    echoed: bool = False

    @property
    def status(self) -> int:
        """The HTTP status code; 0 when the start line has none."""
        parts = self.response.start.split(" ", 2)
        return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0

    @cached_property
    def message(self) -> dict[str, Any] | None:
        """The JSON-RPC response in the body (JSON or the last response event of an SSE stream), or None."""
        kind = (self.response.header("content-type") or "").split(";")[0].strip().lower()
        body = self.response.body.encode("latin-1")
        found: dict[str, Any] | None = None
        for text in _events(body) if kind == "text/event-stream" else [body]:
            message = parse_json(text)
            if isinstance(message, dict) and ("result" in message or "error" in message):
                found = message
        return found

    @property
    def result(self) -> dict[str, Any] | None:
        """The `result` member of a 200 answer, or None."""
        message = self.message
        result = message.get("result") if message is not None and self.status == 200 else None
        return members(result) if isinstance(result, dict) else None

    @property
    def error_code(self) -> int | None:
        """The JSON-RPC error code, or None."""
        code = members((self.message or {}).get("error")).get("code")
        return code if isinstance(code, int) and not isinstance(code, bool) else None

    @property
    def words(self) -> str:
        """The answer in a few words, for a report."""
        result = self.result
        what = "an unreadable body" if self.response.body else "no body"
        if result is not None:
            what = "a tool error" if result.get("isError") is True else "a result"
        elif self.error_code is not None:
            what = f"JSON-RPC error {self.error_code}"
        return f"HTTP {self.status} with {what}"


def parse_json(text: bytes | str) -> Json:
    """Parse JSON text, or return None for what is not JSON: bytes of a server under test are never trusted to be."""
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        return None


def _events(body: bytes) -> list[bytes]:
    """Return the data of each server-sent event (WHATWG HTML §9.2.6); comments and other fields are skipped."""
    events: list[bytes] = []
    data: list[bytes] = []
    for line in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if not line and data:
            events.append(b"\n".join(data))
            data = []
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
    return [*events, b"\n".join(data)] if data else events
