"""`quenchz init`: a first target file from what a server says of itself without credentials."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from quenchz.check import NoSource
from quenchz.driver import HttpSubject, Limits
from quenchz.history import HistoryWriter
from quenchz.target_file import checked_url
from quenchz_spec.claims import bearer
from quenchz_spec.outcomes import UntestableError
from quenchz_spec.shapes import items, members
from quenchz_spec.subject import Target
from quenchz_spec.vocabulary import Ask, Exchange, Role, parse_json

if TYPE_CHECKING:
    from pathlib import Path


class InitError(ValueError):
    """No target file can be written; the text says why."""


_TEMPLATE = """\
# What quenchz may assume of this server; schema: spec/schemas/target.json.
# Written from discovery at {url}; complete what is commented out.
url = {url_text}
protocol = "auto"              # or 2026-07-28, 2025-11-25
resource = {resource}{resource_note}
{authorized}
# Where tokens come from. With suite-issuer the judge is the issuer while it runs, or uses a running `quenchz issuer`:
# let the server trust http://127.0.0.1:PORT (keys at /jwks.json) and every token can be minted. With tokens-file
# nothing else is tried than the tokens in it. client-credentials asks a real authorization server, command a program.
[tokens]
source = "tokens-file"
file = "tokens.json"
# source = "suite-issuer"
# listen = "127.0.0.1:9402"    # or issuer = "http://127.0.0.1:8932"

# Two callers or more. What broad lists and narrow does not is what must be hidden from narrow.
[callers.broad]
scopes = [{scopes}]
# reserve = 5
[callers.narrow]
scopes = []
# reserve = 5

# The budget, if the server has one. Without it QZ-RSV is not applicable.
# [budget]
# limiter = "reserve"          # or per-caller, shared, none
# budget = 25
# window_seconds = 60
# refusal_status = 429
# exclusive = true

# Tools that return observations with a certificate. Without one QZ-CRT is not applicable.
# [[observations]]
# tool = "exchange_rates"
# arguments = {{ currency = "USD" }}
# from = "from"
# to = "to"
# certificate = "/coverage"
# gap_causes = ["no_such_observation"]
# open_causes = ["not_yet_published", "overdue"]

# [calls]
# allow = []                   # tools that may run for real although nothing says that they only read
# [mask]
# headers = []                 # response headers that vary by themselves, a trace id for instance
"""


def write_target_file(url: str, path: Path) -> str:
    """Write a first target file for `url` and return a sentence about it.

    Raises:
        InitError: the file exists, the server does not answer, or the file cannot be written.
        TargetFileError: `url` cannot be dialled.
    """
    checked_url(url, "URL")
    if path.exists():
        raise InitError(f"{path} exists; give --output FILE or remove it first")
    subject = HttpSubject(
        url, Target(resource=url), NoSource(), HistoryWriter(None), limits=Limits(timeout=10), clock=time.monotonic
    )
    try:
        challenge = subject.ask(Ask(method="server/discover"), Role.SETUP)
        metadata = _metadata(subject, url, challenge)
    except UntestableError as error:
        raise InitError(error.missing) from None
    finally:
        subject.close()
    resource = metadata.get("resource")
    known = isinstance(resource, str)
    unequal = known and resource != url
    note = "  # from RFC 9728 metadata" if known else "  # no metadata found: the dialled URL"
    scopes = ", ".join(json.dumps(str(scope)) for scope in items(metadata.get("scopes_supported")))
    local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    text = _TEMPLATE.format(
        url=url,
        url_text=json.dumps(url),
        resource=json.dumps(resource if known else url),
        resource_note=note,
        authorized="" if local else "owner_authorized = false       # set to true if the server's owner agreed\n",
        scopes=scopes,
    )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InitError(f"{path}: cannot be written ({error.strerror})") from None
    warning = " Its metadata names another resource than the URL that was dialled (RFC 9728 §3.3)." if unequal else ""
    return f"Wrote {path}: without credentials the server answers {challenge.words}.{warning}"


def _metadata(subject: HttpSubject, url: str, challenge: Exchange) -> dict[str, object]:
    """Return the RFC 9728 metadata that the challenge points to, or that stands at the well-known path."""
    parts = urlsplit(url)
    found = bearer(challenge)
    pointed = found.parameters.get("resource_metadata") if found else None
    for place in (pointed, f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"):
        if place is None:
            continue
        try:
            document = subject.fetch(place, Role.SETUP)
        except UntestableError:
            continue
        metadata = members(parse_json(document.response.body.encode("latin-1"))) if document.status == 200 else {}
        if metadata:
            return metadata
    return {}
