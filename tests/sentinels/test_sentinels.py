"""No server that does nothing right earns a pass, and the report says what came instead."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from quenchz.driver import HttpSubject
from quenchz_spec.claims import refused
from quenchz_spec.outcomes import ViolationError
from quenchz_spec.requirement import law
from quenchz_spec.vocabulary import Ask, Exchange, Message, Moments, Role
from sentinels import SENTINELS, closed_url, grant_everything, running
from sentinels.turncoats import TURNCOATS
from support.judging import WIRES, Judged, judge, judge_module

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_WAIT = 5.0
"""Seconds that the judge may wait at once for a server whose window is less than half a second."""
RESOURCE = "https://rates.quenchz.invalid/mcp"
ALL = {requirement.id for requirement in law()}


@pytest.fixture(autouse=True)
def _nobody_makes_the_judge_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that says Retry-After: 86400 is not obeyed, and a test does not find out by waiting."""
    wait = HttpSubject.wait

    def waiting(self: HttpSubject, seconds: float) -> None:
        assert seconds <= LONGEST_WAIT
        wait(self, seconds)

    monkeypatch.setattr(HttpSubject, "wait", waiting)


def token(name: str, **claims: Any) -> str:
    """Return something in the form of a JWT: a sentinel looks at none."""
    payload = {"sub": name, "aud": RESOURCE, "exp": 4_000_000_000, "jti": name, **claims}
    kept = {key: value for key, value in payload.items() if value is not None}
    parts = [json.dumps(part).encode() for part in ({"alg": "ES256"}, kept)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, b"signature" * 4))


def tokens_file(folder: Path, url: str) -> Path:
    """Write a tokens file that declares everything a server can be asked about."""
    reads = ["rates:read"]
    scopes = {"broad": [*reads, "rates:history", "rates:admin"], "narrow": reads, "quiet": reads}
    bad: dict[str, dict[str, Any]] = {
        "other_audience": {"aud": "https://other.example/mcp"},
        "two_audiences": {"aud": [RESOURCE, "https://other.example/mcp"]},
        "no_audience": {"aud": None},
        "expired": {"exp": 1},
    }
    document = {
        "quenchz_tokens": 1,
        "url": url,
        "resource": RESOURCE,
        "issuer": "https://issuer.quenchz.invalid",
        "callers": {
            name: {
                "scopes": of,
                "reserve": 2,
                "token": token(name),
                "fresh_tokens": [token(f"{name}-{serial}", sub=name) for serial in range(12)],
            }
            for name, of in scopes.items()
        },
        "bad_tokens": {name: {"caller": "broad", "token": token("broad", **claims)} for name, claims in bad.items()},
        "granted": {
            "tools": ["exchange_rates", "latest_rate"],
            "prompts": ["explain_rate"],
            "resources": ["rates://calendar"],
            "resource_templates": ["rates://latest/{currency}"],
        },
        "hidden": {
            "tools": ["full_history", "refresh_cache"],
            "prompts": ["audit_history"],
            "resources": ["rates://cache/state"],
            "resource_templates": ["rates://history/{currency}"],
        },
        "budget": {
            "limiter": "reserve",
            "budget": 8,
            "window_seconds": 0.4,
            "reserves": {"broad": 2, "narrow": 2, "quiet": 2},
            "pool": 2,
            "unknown_callers": "pool",
            "free_methods": ["initialize", "server/discover", "tools/list", "prompts/list", "resources/list"],
            "refusal_status": 429,
        },
        "observations": [
            {
                "tool": "exchange_rates",
                "arguments": {"currency": "USD"},
                "from": "from",
                "to": "to",
                "observations": "/observations",
                "certificate": "/coverage",
                "gap_causes": ["no_such_observation"],
                "open_causes": ["not_yet_published", "overdue"],
            }
        ],
    }
    path = folder / "tokens.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def judged(folder: Path, url: str, *options: str) -> Judged:
    return judge(folder, "--tokens-file", str(tokens_file(folder, url)), "--profile", "smoke", "--seed", "1", *options)


def assert_nothing_is_established(found: Judged, *said: str) -> None:
    assert found.ids("pass", "warn", "observed", "not-applicable") == set()
    assert found.ids("untestable") == ALL
    assert found.exit == 3
    assert found.report["run"]["reached"] is False
    reasons = {finding["reason"] for finding in found.report["findings"]}
    assert [reason for reason in reasons if not all(words in reason for words in said)] == []


def test_the_judge_says_that_nothing_listens_at_a_closed_port(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = closed_url()
    assert_nothing_is_established(judged(tmp_path, url), "cannot connect to", "Connection refused")
    printed = capsys.readouterr().out
    assert "Connection refused" in printed
    assert "Something required could not be established" in printed


@pytest.mark.parametrize("name", sorted(SENTINELS))
def test_a_sentinel_passes_nothing_and_the_reason_names_what_came(name: str, tmp_path: Path) -> None:
    answer, said = SENTINELS[name]
    with running(answer) as sentinel:
        found = judged(tmp_path, sentinel.url, "--timeout", "0.5")
        assert sentinel.requests, "the sentinel was never asked, so nothing was shown"
    # Both wires were tried, and both are named.
    assert_nothing_is_established(found, said, *WIRES)
    assert found.report["run"]["requests"] <= 8


def test_a_server_that_grants_everything_passes_nothing_and_is_found_out(tmp_path: Path) -> None:
    with running(grant_everything) as sentinel:
        found = judged(tmp_path, sentinel.url)
    assert found.ids("pass", "harness-error") == set()
    assert found.exit == 1
    assert {"QZ-AUD-1", "QZ-AUD-4", "QZ-DEN-1", "QZ-DEN-2", "QZ-DEN-3", "QZ-CRT-1", "QZ-CRT-2"} <= found.ids("fail")


@pytest.mark.parametrize("name", sorted(TURNCOATS))
def test_a_server_that_turns_useless_after_the_listings_passes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """The checks before the run see an honest server, so only the control in each example can tell."""
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath / "tests"))
    wire = WIRES[sorted(TURNCOATS).index(name) % 2]
    options = ["--protocol", wire, "--profile", "smoke", "--seed", "1"]
    selected = ALL
    if name == "turns_to_hanging":
        # Each question costs a whole timeout, so one requirement of each sort is asked.
        selected = {"QZ-AUD-3", "QZ-AUD-8", "QZ-AUD-9", "QZ-DEN-1", "QZ-DEN-4", "QZ-RSV-1", "QZ-RSV-8", "QZ-CRT-7"}
        options += ["--timeout", "0.5", *(word for one in sorted(selected) for word in ("--id", one))]
    found = judge_module(tmp_path, "sentinels", name, *options)
    assert found.ids("pass", "warn", "observed") == set()
    assert found.ids("harness-error") == set()
    # An empty result is no listing, so nobody was admitted; for an invented name it is a result, and no denial.
    given_away = {"QZ-DEN-1"} if name == "turns_to_an_empty_result" else set[str]()
    assert given_away <= found.ids("fail")
    assert {one for one in found.ids("fail") if one.startswith("QZ-AUD")} == set()
    assert bool(found.ids("fail")) is bool(given_away)
    assert found.exit == (1 if given_away else 3)
    assert found.report["run"]["requests"] > len(selected), "the turncoat was dead before anything was asked"
    assert set(found.verdicts()) == selected


@pytest.mark.parametrize("status", ["500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable"])
def test_a_server_error_is_never_a_refusal(status: str) -> None:
    """A judge that counts "not 200" as refused lets the server that fails at everything pass every attack."""
    ask = Ask(method="tools/list")
    exchange = Exchange(ask, Role.PROBE, Message("POST /mcp HTTP/1.1"), Message(f"HTTP/1.1 {status}"), Moments(0, 1, 1))
    with pytest.raises(ViolationError, match="a server error"):
        refused(exchange, "a token for another resource.")


@pytest.mark.parametrize("status", ["200 OK", "403 Forbidden", "404 Not Found", "302 Found", "429 Too Many Requests"])
def test_only_401_is_a_refusal(status: str) -> None:
    ask = Ask(method="tools/list")
    exchange = Exchange(ask, Role.PROBE, Message("POST /mcp HTTP/1.1"), Message(f"HTTP/1.1 {status}"), Moments(0, 1, 1))
    with pytest.raises(ViolationError):
        refused(exchange, "a token for another resource.")
    refused(Exchange(ask, Role.PROBE, exchange.request, Message("HTTP/1.1 401 Unauthorized"), exchange.at), "none.")
