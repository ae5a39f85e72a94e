"""What a property states about an exchange; each either holds or raises the outcome that ends the example."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quenchz_spec.discovery import LISTINGS
from quenchz_spec.outcomes import ControlError, ViolationError

if TYPE_CHECKING:
    from quenchz_spec.vocabulary import Exchange


def control_admitted(exchange: Exchange, control: str) -> Exchange:
    """Return `exchange` if it is a 200 answer with a JSON-RPC result, which for a listing holds a list.

    Raises:
        ControlError: it is anything else. A server that answers {} to everybody admits nobody.
    """
    result = exchange.result
    listing = next((member for method, member, _ in LISTINGS.values() if method == exchange.ask.method), None)
    if result is None or (listing is not None and not isinstance(result.get(listing), list)):
        raise ControlError(control, exchange.words if result is None else f"{exchange.words} without {listing}")
    return exchange


def control_past_the_gate(exchange: Exchange, control: str) -> Exchange:
    """Return `exchange` if the request was let past authentication: any answer but 401, 403, a redirect and 5xx.

    Raises:
        ControlError: it was not.
    """
    if exchange.status in (0, 401, 403) or exchange.status >= 500 or 300 <= exchange.status < 400:
        raise ControlError(control, exchange.words)
    return exchange


def refused(exchange: Exchange, held: str, statuses: tuple[int, ...] = (401,)) -> None:
    """State that the request was refused as unauthenticated: HTTP 401, or another of `statuses` that say so here.

    Raises:
        ViolationError: any other answer. A 500 is never a refusal.
    """
    if exchange.status in statuses:
        return
    if exchange.status >= 500:
        how = f"a server error ({exchange.status}) where a refusal belongs"
    elif exchange.status == 403:
        how = "403 where 401 belongs"
    else:
        how = "not refused"
    raise ViolationError(
        held=held,
        sent=f"{exchange.ask.words}.",
        received=f"{exchange.words}: {how}.",
        expected=f"HTTP {' or '.join(map(str, statuses))}.",
        signature=how,
    )


def admitted(exchange: Exchange, held: str) -> None:
    """State that the request was admitted: HTTP 200 with a JSON-RPC result.

    Raises:
        ViolationError: any other answer.
    """
    if exchange.result is None:
        how = "refused" if exchange.status in (400, 401, 403) else "not admitted"
        raise ViolationError(
            held=held,
            sent=f"{exchange.ask.words}.",
            received=f"{exchange.words}: {how}.",
            expected="HTTP 200 with a result.",
            signature=how,
        )


@dataclass(frozen=True)
class Challenge:
    """One challenge of a WWW-Authenticate field (RFC 9110 §11.6.1): scheme in lower case, parameters by lower name."""

    scheme: str
    parameters: dict[str, str]


_TCHARS = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = r'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*"'
_SCHEME = re.compile(rf"({_TCHARS}) *")
# What follows the one token68 of a challenge is the end, or the comma before the next challenge.
_TOKEN68 = re.compile(r"[-._~+/0-9A-Za-z]+=*(?=[ \t]*(?:,|\Z))")
_PARAMETER = re.compile(rf"({_TCHARS})[ \t]*=[ \t]*({_TCHARS}|{_QUOTED})")
_COMMA = re.compile(r"[ \t]*,[ \t]*")


def parse_challenges(value: str) -> list[Challenge] | None:
    """Return the challenges of one WWW-Authenticate field, or None if it is not what RFC 9110 §11 lets a server send.

    The grammar is that of §11.3 and §11.6.1; list elements are not empty (§5.6.1), and no challenge names a parameter
    twice (§11.2).
    """
    found: list[Challenge] = []
    at = 0
    while (scheme := _SCHEME.match(value, at)) is not None:
        at, pairs = scheme.end(1), list[tuple[str, str]]()
        if scheme.end() > at and (token68 := _TOKEN68.match(value, scheme.end())) is not None:
            at = token68.end()
        else:
            comes: re.Match[str] | None = scheme
            while comes is not None and (parameter := _PARAMETER.match(value, comes.end())) is not None:
                pairs.append((parameter.group(1).lower(), _unquoted(parameter.group(2))))
                at = parameter.end()
                comes = _COMMA.match(value, at)
        found.append(Challenge(scheme.group(1).lower(), dict(pairs)))
        if len(found[-1].parameters) != len(pairs):
            return None
        if at == len(value):
            return found
        if (comma := _COMMA.match(value, at)) is None:
            return None
        at = comma.end()
    return None


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def challenges(exchange: Exchange) -> list[Challenge]:
    """Return the challenges in an answer's WWW-Authenticate fields that parse."""
    fields = exchange.response.all("www-authenticate")
    return [challenge for value in fields for challenge in parse_challenges(value) or ()]


def bearer(exchange: Exchange) -> Challenge | None:
    """Return the Bearer challenge of an answer (RFC 6750 §3), or None."""
    return next((challenge for challenge in challenges(exchange) if challenge.scheme == "bearer"), None)
