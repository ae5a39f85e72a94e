"""Requests to an authorization server, whose answers are JSON.

No redirect is followed, no proxy is asked, and nothing that was sent or received stands in an error: both hold secrets.
"""

from __future__ import annotations

import ipaddress
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from quenchz.transport import Transport, TransportError
from quenchz_spec.shapes import members
from quenchz_spec.vocabulary import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TIMEOUT = 10.0
"""Seconds for one request, its answer included."""
_SIZE_CAP = 1_000_000
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*")


@dataclass(frozen=True)
class Answer:
    """The status of an answer, and the members of the JSON object in its body (none if it holds none)."""

    status: int
    document: dict[str, Any] = field(repr=False)


class NoAnswerError(Exception):
    """There is no complete answer; the text says why."""


def request(
    method: str,
    url: str,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
    *,
    ca_file: str | None = None,
) -> Answer:
    """Send one request.

    Raises:
        NoAnswerError: no complete answer came within 10 seconds.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    every = [("User-Agent", "quenchz"), ("Accept", "application/json"), *headers]
    try:
        with Transport(parts.scheme, parts.hostname or "", port, time.monotonic, ca_file=ca_file) as transport:
            received = transport.exchange(method, target, every, body, timeout=TIMEOUT, size_cap=_SIZE_CAP)
    except TransportError as error:
        raise NoAnswerError(str(error)) from None
    status = received.start.split(" ", 2)[1:2]
    return Answer(int(status[0]) if status and status[0].isdigit() else 0, members(parse_json(received.body)))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_confidential(url: str) -> bool:
    """Whether secrets may be sent to `url`: https, or http on this machine (RFC 6749 §3.2 demands TLS)."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return usable and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")))


def is_bearer_token(value: object) -> bool:
    """Whether a value can be sent as a bearer token (RFC 6750 §2.1)."""
    return isinstance(value, str) and _BEARER.fullmatch(value) is not None


def shown(text: str, secrets: Iterable[str] = ()) -> str:
    """Return what somebody else said as it may stand in a report: one short line without tokens and `secrets`."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    line = _JWT.sub("***", text).strip().partition("\n")[0]
    line = "".join(character if character.isprintable() else " " for character in line)
    return line if len(line) <= 200 else f"{line[:200]}…"
