"""Where the tokens of a request stand among its bytes."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from quenchz_spec.vocabulary import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quenchz.wire import Headers

_FIELDS = {
    Place.FIELD: ("Authorization", "Bearer "),
    Place.SMALL_SCHEME: ("Authorization", "bearer "),
    Place.MIXED_SCHEME: ("Authorization", "bEARER "),
    Place.NO_SCHEME: ("Authorization", ""),
    Place.OTHER_SCHEME: ("Authorization", "Token "),
    Place.BASIC: ("Authorization", "Basic "),
    Place.COOKIE: ("Cookie", "access_token="),
    Place.X_FIELD: ("X-Access-Token", ""),
    Place.FORWARDED_FIELD: ("X-Forwarded-Authorization", "Bearer "),
    Place.PROXY_FIELD: ("Proxy-Authorization", "Bearer "),
}


class Draft(NamedTuple):
    """A request before it is sent: its target (path and query), header fields and body."""

    target: str
    headers: Headers
    body: str


def with_headers(headers: Headers, changes: Iterable[tuple[str, str]]) -> Headers:
    """Return header fields with others after them, which replace those of the same name (RFC 9110 §5.1: any case)."""
    changed = list(changes)
    names = {name.lower() for name, _ in changed}
    return [field for field in headers if field[0].lower() not in names] + changed


def spelled(token: str, place: Place) -> str:
    """Return a token in the letters that its place demands."""
    if place in (Place.QUERY, Place.FORM):
        return quote(token, safe="")
    if place is Place.BASIC:
        return base64.b64encode(f":{token}".encode()).decode("ascii")  # RFC 7617 §2: no user, the token as password
    return token


def placed(draft: Draft, place: Place, text: str) -> Draft:
    """Return a request with a token in its place. `text` is the token as `spelled`, or what a history shows for it.

    The body of a request with a token inside must be a JSON object.
    """
    target, headers, body = draft
    if place is Place.FIELD and text:  # nearly every request
        return Draft(target, [*headers, ("Authorization", f"Bearer {text}")], body)
    if (field := _FIELDS.get(place)) is not None:
        # A value ends with no blank (RFC 9110 §5.5), so an empty token leaves the scheme alone.
        return Draft(target, [*headers, (field[0], (field[1] + text).rstrip(" "))], body)
    match place:
        case Place.JOINED:
            return Draft(target, _joined(headers, f", Bearer {text}"), body)
        case Place.QUERY:
            return Draft(f"{target}{'&' if '?' in target else '?'}access_token={text}", headers, body)
        case Place.FORM:
            form = [("Content-Type", "application/x-www-form-urlencoded")]
            return Draft(target, with_headers(headers, form), f"access_token={text}")
        case _:
            message = json.loads(body)
            inside = message.setdefault("params", {}).setdefault("_meta", {}) if place is Place.META else message
            inside["access_token"] = text
            return Draft(target, headers, json.dumps(message, ensure_ascii=False))


def _joined(headers: Headers, more: str) -> Headers:
    """Return header fields with `more` at the end of the first Authorization field, or in one of its own."""
    for at, (name, value) in enumerate(headers):
        if name == "Authorization":
            return [*headers[:at], (name, value + more), *headers[at + 1 :]]
    return [*headers, ("Authorization", more)]
