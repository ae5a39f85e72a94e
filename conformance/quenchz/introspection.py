"""What the suite's issuer answers when a resource asks it about an opaque token (RFC 7662).

A real authorization server MUST ask who wants to know (§2.1); this one tells anybody on this machine, whatever
credentials come with the question, so that a resource under test can be configured as it likes.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from quenchz_spec.vocabulary import Introspection

HOLD_SECONDS = 60.0
"""How long a question is held that is not answered."""
_KEPT = 100_000  # tokens; of older ones nothing is known any more, which is what is said of them


@dataclass(frozen=True)
class Reply:
    """One HTTP answer; None instead of a body stands for silence."""

    status: int
    body: bytes | None
    media_type: str = "application/json"


@dataclass(frozen=True)
class _Reference:
    issuer: str
    answer: str
    introspection: Introspection


class References:
    """The opaque tokens that were given out, and what is said of each. Safe to use from several threads."""

    def __init__(self, keep: int = _KEPT) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Reference] = OrderedDict()
        self._ended = threading.Event()

    def remember(self, reference: str, issuer: str, answer: str, introspection: Introspection) -> None:
        """Remember a token of an issuer: the JSON text of the answer about it, and what comes in its place."""
        with self._lock:
            self._known[reference] = _Reference(issuer, answer, introspection)
            if len(self._known) > self._keep:
                self._known.popitem(last=False)

    def reply(self, body: bytes, media_type: str, issuer: str) -> Reply:
        """Return the answer to a request (§2.1) at the endpoint of an issuer, which knows its tenants' tokens, too."""
        if media_type.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
            return _json(400, {"error": "invalid_request", "error_description": "the body is no form (RFC 7662 §2.1)"})
        form = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        tokens = [value for name, value in form if name == "token"]
        if len(tokens) != 1:
            return _json(400, {"error": "invalid_request", "error_description": "the form has no token, or several"})
        with self._lock:
            known = self._known.get(tokens[0])
        if known is None or not f"{known.issuer}/".startswith(f"{issuer}/"):
            return _json(200, {"active": False})  # nothing more is told about it (§2.2)
        return _about(known)

    def hold(self) -> None:
        """Return after a minute, or when the issuer ends."""
        self._ended.wait(HOLD_SECONDS)

    def end(self) -> None:
        """Hold no question any longer."""
        self._ended.set()


def _about(known: _Reference) -> Reply:
    match known.introspection:
        case Introspection.ANSWERED:
            return Reply(200, known.answer.encode())
        case Introspection.SERVER_ERROR:
            return Reply(500, known.answer.encode())
        case Introspection.PAGE:
            return Reply(200, b"<!doctype html><title>We will be back soon</title>", "text/html")
        case Introspection.SILENT:
            return Reply(0, None)


def _json(status: int, document: dict[str, Any]) -> Reply:
    return Reply(status, json.dumps(document).encode())
