"""The tokens file: all that a prover in any language needs to test this server, good and bad tokens included.

Its form is `spec/schemas/tokens-file.json`. It holds bearer tokens, so only its owner may read it; the key that signed
them is in no file.
"""

import json
import os
import secrets
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quenchz_reference.caller import Caller
from quenchz_reference.certificates import DayClass
from quenchz_reference.issuer import ISSUER, InProcessIssuer
from quenchz_reference.parts import Parts
from quenchz_reference.reserves import FREE_METHODS
from quenchz_reference.scopes import ADMIN, HISTORY, READ

VERSION = 1
CALLERS = {"broad": (READ, HISTORY, ADMIN), "narrow": (READ,), "quiet": (READ,)}
"""The callers that the in-process issuer knows, with their scopes."""

_LIFETIME_SECONDS = 24 * 3600
_AGE_SECONDS = 3600  # tokens look an hour old, so that an expired one differs from a good one in nothing but `exp`
_FRESH_TOKENS = 24


def build(parts: Parts, issuer: InProcessIssuer, url: str) -> dict[str, Any]:
    """The content of the tokens file.

    Args:
        parts: the clock, the resource and the catalogue are the server's own; the budget is stated as it was declared.
        issuer: signs the tokens.
        url: the endpoint, as clients reach it.
    """
    options, resource = parts.options, parts.audience.resource
    now = int(parts.clock.now())

    def claims(caller: str) -> dict[str, Any]:
        return {
            "iss": ISSUER,
            "sub": caller,
            "aud": resource,
            "exp": now + _LIFETIME_SECONDS,
            "iat": now - _AGE_SECONDS,
            "jti": uuid.uuid4().hex,
            "scope": " ".join(CALLERS[caller]),
            "client_id": f"quenchz-{caller}",
        }

    good = {caller: claims(caller) for caller in CALLERS}
    without_audience = {name: value for name, value in good["broad"].items() if name != "aud"}
    other = "https://other.example/mcp"
    bad = {
        "other_audience": {**good["broad"], "aud": other},
        "two_audiences": {**good["broad"], "aud": [resource, other]},
        "no_audience": without_audience,
        "expired": {**good["broad"], "exp": now - 60},
    }
    granted, hidden = _as_narrow_sees_it(parts)
    return {
        "quenchz_tokens": VERSION,
        "url": url,
        "resource": resource,
        "issuer": ISSUER,
        "callers": {
            caller: {
                "scopes": list(scopes),
                "reserve": options.reserves.get(caller, 0),
                "token": issuer.mint(good[caller]),
                "fresh_tokens": [issuer.mint(claims(caller)) for _ in range(_FRESH_TOKENS)],
            }
            for caller, scopes in CALLERS.items()
        },
        "bad_tokens": {name: {"caller": "broad", "token": issuer.mint(content)} for name, content in bad.items()},
        "granted": granted,
        "hidden": hidden,
        "budget": {
            "limiter": "reserve",
            "budget": options.budget,
            "window_seconds": options.window,
            "reserves": dict(options.reserves),
            "pool": options.budget - sum(options.reserves.values()),
            "unknown_callers": str(options.unknown_callers),
            "free_methods": [*sorted(FREE_METHODS), "notifications/*"],
            "refusal_status": 429,
        },
        "may_call": ["full_history", "refresh_cache"],
        "observations": [
            {
                "tool": "exchange_rates",
                "arguments": {"currency": "USD"},
                "from": "from",
                "to": "to",
                "observations": "/observations",
                "certificate": "/coverage",
                "gap_causes": [DayClass.NO_SUCH_OBSERVATION.value],
                "open_causes": [DayClass.NOT_YET_PUBLISHED.value, DayClass.OVERDUE.value],
            }
        ],
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file, readable by its owner only, so that a reader sees all of it or none.

    Raises:
        OSError: if that cannot be done.
    """
    # mkstemp creates with mode 0600; renaming within one folder is atomic.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{secrets.token_hex(4)}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _as_narrow_sees_it(parts: Parts) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The names that the narrow caller is granted and those that are hidden from it, by kind."""
    narrow = Caller(ISSUER, "narrow", "", frozenset(CALLERS["narrow"]))
    catalogue = parts.catalogue
    tables: dict[str, Mapping[str, Any]] = {
        "tools": catalogue.tools,
        "prompts": catalogue.prompts,
        "resources": catalogue.resources,
        "resource_templates": catalogue.templates,
    }
    granted = {kind: [n for n, e in table.items() if parts.access.may(narrow, e)] for kind, table in tables.items()}
    hidden = {kind: [n for n, e in table.items() if not parts.access.may(narrow, e)] for kind, table in tables.items()}
    return granted, hidden
