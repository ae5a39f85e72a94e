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
    """One claim set to a value: JSON data, `RawJson`, or a time relative to minting."""

    name: str
    value: Any


@plain
@dataclass(frozen=True, kw_only=True)
class TokenRecipe:
    """How to mint one token. The defaults make a token that the resource must admit.

    `caller` names a caller of the target; `claims` replaces and `without` removes members of the payload; `issuer` is
    "trusted" or "stranger" (an issuer with a key set of its own that the resource was never told to trust); `serial`
    distinguishes fresh tokens of the same caller.
    """

    caller: str
    audience: Audience = OURS
    signature: Signature = Signature.OWN
    claims: tuple[Claim, ...] = ()
    without: tuple[str, ...] = ()
    issuer: str = "trusted"
    serial: int = 0

    def fresh(self, serial: int) -> TokenRecipe:
        """Return the recipe of another token of the same caller."""
        return dataclasses.replace(self, serial=serial)

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
@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request, before it is bytes: a JSON-RPC method with its params, a token recipe, an HTTP method.

    The driver adds what the negotiated protocol revision requires (headers, `_meta`, a session). `session` names whose
    session a stateful revision uses: the token's caller by default; "" asks outside any session.
    """

    method: str
    params: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    token: TokenRecipe | None = None
    verb: str = "POST"
    session: str | None = None
    body: str | None = None

    @property
    def words(self) -> str:
        """The request in a few words, for a report."""
        name = self.params.get("name", self.params.get("uri", ""))
        shown = f"{self.verb} {self.method}" + (f" {name!r}" if name != "" else "")
        return shown + (f" as {self.token.caller}" if self.token else " without credentials")


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
    """A request and its answer."""

    ask: Ask
    role: Role
    request: Message
    response: Message
    at: Moments
    rpc_id: int | None = None

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
