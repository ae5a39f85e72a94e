"""What a property states about an exchange; each either holds or raises the outcome that ends the example."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quenchz_spec.outcomes import ControlError, ViolationError

if TYPE_CHECKING:
    from quenchz_spec.vocabulary import Exchange


def control_admitted(exchange: Exchange, control: str) -> Exchange:
    """Return `exchange` if it is a 200 answer with a JSON-RPC result.

    Raises:
        ControlError: it is anything else.
    """
    if exchange.result is None:
        raise ControlError(control, exchange.words)
    return exchange


def control_past_the_gate(exchange: Exchange, control: str) -> Exchange:
    """Return `exchange` if the request was let past authentication: any answer but 401, 403, a redirect and 5xx.

    Raises:
        ControlError: it was not.
    """
    if exchange.status in (0, 401, 403) or exchange.status >= 500 or 300 <= exchange.status < 400:
        raise ControlError(control, exchange.words)
    return exchange


def refused(exchange: Exchange, held: str) -> None:
    """State that the request was refused as unauthenticated: HTTP 401.

    Raises:
        ViolationError: any other answer. A 500 is never a refusal.
    """
    if exchange.status == 401:
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
        expected="HTTP 401.",
        signature=how,
    )


@dataclass(frozen=True)
class Challenge:
    """One challenge of a WWW-Authenticate field (RFC 9110 §11.6.1): scheme in lower case, parameters by lower name."""

    scheme: str
    parameters: dict[str, str]


_TCHARS = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PARAMETER = re.compile(rf"({_TCHARS})[ \t]*=[ \t]*(?:({_TCHARS})|\"((?:[^\"\\]|\\.)*)\")")
_SCHEME = re.compile(rf"({_TCHARS})(?=[ \t]|$|,)")


def challenges(exchange: Exchange) -> list[Challenge]:
    """Return the challenges in an answer's WWW-Authenticate fields; what does not parse ends the list."""
    found: list[Challenge] = []
    for value in exchange.response.all("www-authenticate"):
        at = 0
        while at < len(value):
            if value[at] in " \t,":
                at += 1
            elif found_parameter := _PARAMETER.match(value, at):
                if not found:
                    return found
                name, plain, quoted = found_parameter.groups()
                found[-1].parameters.setdefault(
                    name.lower(), plain if plain is not None else re.sub(r"\\(.)", r"\1", quoted)
                )
                at = found_parameter.end()
            elif found_scheme := _SCHEME.match(value, at):
                found.append(Challenge(found_scheme.group(1).lower(), {}))
                at = found_scheme.end()
            else:
                return found
    return found


def bearer(exchange: Exchange) -> Challenge | None:
    """Return the Bearer challenge of an answer (RFC 6750 §3), or None."""
    return next((challenge for challenge in challenges(exchange) if challenge.scheme == "bearer"), None)
