"""Every server there is, started with a tokens file, as the second client needs it.

What is registered elsewhere (a counterfeit, a variant, a sentinel) joins by itself, unless it is judged by what it
declares: a tokens file has no words for that, so the second client would judge it by what it does not promise.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agreement.declared import SHARED
from counterfeits import counterfeits
from field.fastmcp.run import start
from quenchz.issuer import SuiteIssuer
from quenchz.mint import Mint, SigningKey
from quenchz.target_file import DEFAULT_FREE
from quenchz_spec.resources import Uri
from quenchz_spec.strategies.audiences import OTHER, OTHER_SERVER, listed
from quenchz_spec.vocabulary import Audience, AudienceForm, Claim, SecondsFromNow, TokenRecipe
from sentinels import SENTINELS, closed_url, running
from sentinels.turncoats import TURNCOATS
from variants import variants

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    Serving = Callable[[Path], AbstractContextManager[Path]]

TESTS = Path(__file__).resolve().parents[1]
WINDOW = "1"
"""Seconds: a proof waits about thirty windows."""


@contextmanager
def serving(folder: Path, *module: str) -> Generator[Path, None, None]:
    """Start `python -m MODULE …` with a tokens file in `folder` and yield the file; it ends with the context."""
    tokens = folder / "tokens.json"
    command = [sys.executable, "-m", *module, "--port", "0", "--tokens-file", str(tokens), "--window", WINDOW]
    environment = {"PYTHONPATH": str(TESTS), "PATH": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("quenchz reference ready: "), line
            yield tokens
        finally:
            process.send_signal(signal.SIGTERM)


# --- servers that nobody gives a tokens file ------------------------------------------------------------------------

RESOURCE = "https://field.quenchz.invalid/mcp"
SCOPES = {"broad": ["rates:read", "rates:admin"], "narrow": ["rates:read"]}
BAD = {
    "other_audience": TokenRecipe(caller="broad", audience=OTHER_SERVER),
    "two_audiences": TokenRecipe(caller="broad", audience=listed(Uri(), OTHER)),
    "no_audience": TokenRecipe(caller="broad", audience=Audience(AudienceForm.ABSENT, ())),
    "expired": TokenRecipe(caller="broad", claims=(Claim("exp", SecondsFromNow(-3600)),)),
}
NOTHING: dict[str, list[str]] = {"tools": [], "prompts": [], "resources": [], "resource_templates": []}


def tokens_document(url: str, issuer: SuiteIssuer) -> dict[str, Any]:
    """Return the content of a tokens file for a server that declares nothing and trusts `issuer`."""
    stranger = SigningKey.generate("stranger")
    mint = Mint(issuer.base_url, issuer.key, stranger, "https://stranger.invalid", RESOURCE, time.time, lifetime=3600)

    def token(recipe: TokenRecipe) -> str:
        return mint.mint(recipe, subject=recipe.caller, scopes=SCOPES[recipe.caller])

    def caller(name: str) -> dict[str, Any]:
        fresh = [token(TokenRecipe(caller=name).fresh(1))]
        return {"scopes": SCOPES[name], "reserve": 0, "token": token(TokenRecipe(caller=name)), "fresh_tokens": fresh}

    return {
        "quenchz_tokens": 1,
        "url": url,
        "resource": RESOURCE,
        "issuer": issuer.base_url,
        "callers": {name: caller(name) for name in SCOPES},
        "bad_tokens": {name: {"caller": "broad", "token": token(recipe)} for name, recipe in BAD.items()},
        "granted": NOTHING,
        "hidden": NOTHING,
        "budget": {
            "limiter": "none",
            "budget": 1,
            "window_seconds": 1.0,
            "reserves": {},
            "pool": 1,
            "unknown_callers": "pool",
            "free_methods": list(DEFAULT_FREE),
            "refusal_status": 429,
        },
        "observations": [],
    }


@contextmanager
def _described(folder: Path, url: str, issuer: SuiteIssuer) -> Generator[Path, None, None]:
    """Write a tokens file for a URL, readable by its owner alone."""
    path = folder / "tokens.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(tokens_document(url, issuer), file)
    yield path


@contextmanager
def _sentinel(name: str, folder: Path) -> Generator[Path, None, None]:
    with (
        SuiteIssuer() as issuer,
        running(SENTINELS[name][0]) as sentinel,
        _described(folder, sentinel.url, issuer) as f,
    ):
        yield f


@contextmanager
def _closed_port(folder: Path) -> Generator[Path, None, None]:
    with SuiteIssuer() as issuer, _described(folder, closed_url(), issuer) as file:
        yield file


@contextmanager
def _fastmcp(folder: Path) -> Generator[Path, None, None]:
    with (
        SuiteIssuer() as issuer,
        start(issuer.base_url, issuer.jwks_url, RESOURCE) as url,
        _described(folder, url, issuer) as file,
    ):
        yield file


def every_server() -> dict[tuple[str, str], Serving]:
    """Return what starts each server, by what sort it is of and by its name.

    Counterfeits are those that touch a claim which both clients make.
    """
    shared = [name for name, fake in counterfeits().items() if fake.ids & SHARED and not fake.declares]
    servers: dict[tuple[str, str], Serving] = {
        ("reference", "quenchz_reference"): lambda folder: serving(folder, "quenchz_reference"),
        ("field", "fastmcp"): _fastmcp,
        ("sentinel", "closed_port"): _closed_port,
    }
    for sort, module, names in (
        ("counterfeit", "counterfeits", shared),
        ("variant", "variants", [name for name, variant in variants().items() if not variant.declares]),
        ("sentinel", "sentinels", list(TURNCOATS)),
    ):
        for name in names:
            servers[sort, name] = _started(module, name)
    for name in SENTINELS:
        servers["sentinel", name] = _answering(name)
    return servers


def _started(module: str, name: str) -> Serving:
    return lambda folder: serving(folder, module, name)


def _answering(name: str) -> Serving:
    return lambda folder: _sentinel(name, folder)
