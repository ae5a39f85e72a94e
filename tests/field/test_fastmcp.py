"""FastMCP, a server nobody here wrote, judged by URL through a target file; its verdicts are facts of this set-up.

The set-up is the one its documentation describes for bearer tokens (a JWT verifier with issuer, audience and key set)
and per-component scopes; `fastmcp/NOTES.md` has what it answers, byte for byte.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from field.fastmcp import environment
from field.fastmcp.run import start
from support.judging import WIRES, Judged, judge

if TYPE_CHECKING:
    from pathlib import Path

RESOURCE = "https://field.quenchz.invalid/mcp"

TARGET = """\
protocol = "{wire}"
url = "{url}"
resource = "{resource}"
[tokens]
source = "suite-issuer"
listen = "127.0.0.1:{port}"
[callers.broad]
scopes = ["rates:read", "rates:admin"]
[callers.narrow]
scopes = ["rates:read"]
"""

FAILS = {
    # A list that holds this resource is admitted: the verifier asks for membership (RFC 7519 §4.1.3).
    "QZ-AUD-3": "not refused",
    # exp: 1e400 is answered 500, and exp: null is admitted.
    "QZ-AUD-6": "a server error (500) where a refusal belongs",
    # A token without exp is admitted, and iat is not looked at.
    "QZ-AUD-17": "not refused",
    # Of two Authorization fields the first one counts.
    "QZ-AUD-22": "not refused",
}
UNTESTABLE = {
    *("QZ-AUD-9", "QZ-AUD-27"),  # its metadata stands at the resource's own origin, which is not the one dialled here
    "QZ-AUD-29",  # it trusts one issuer, and the rotation of keys takes a tenant
}
NOT_APPLICABLE = {
    *(f"QZ-AUD-{n}" for n in (18, 19, 30, 31, 32, 33)),  # no leeway, no interval of fetches and no profile is declared
    "QZ-DEN-4",
    *(f"QZ-RSV-{n}" for n in range(1, 11)),
    *(f"QZ-CRT-{n}" for n in range(1, 9)),
}
WITHOUT_SESSIONS = {"QZ-AUD-20", "QZ-AUD-28"}
"""What does not apply to 2026-07-28; on the other wire a stream outlives its token, which QZ-AUD-20 only observes."""


def not_applicable(judged: Judged) -> set[str]:
    """Return what does not apply on the wire of a run."""
    return NOT_APPLICABLE | (WITHOUT_SESSIONS if judged.report["target"]["protocol"] == "2026-07-28" else set())


def free_port() -> int:
    """Return a port that was free a moment ago: the server must know its issuer before the judge becomes it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module", params=WIRES)
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """One run against FastMCP on one wire."""
    environment.ensure()
    folder: Path = tmp_path_factory.mktemp("field")
    port = free_port()
    issuer = f"http://127.0.0.1:{port}"
    with start(issuer, f"{issuer}/jwks.json", RESOURCE) as url:
        target = folder / "quenchz.toml"
        target.write_text(TARGET.format(wire=request.param, url=url, resource=RESOURCE, port=port), encoding="utf-8")
        return judge(folder, "--target", str(target), "--seed", "1", "--level", "should")


def test_fastmcp_fails_exactly_what_its_answers_show(judged: Judged) -> None:
    assert {name: judged.finding(name)["violation"]["signature"] for name in judged.ids("fail", "warn")} == FAILS
    assert judged.exit == 1


def test_fastmcp_leaves_open_exactly_what_its_set_up_leaves_open(judged: Judged) -> None:
    assert judged.ids("untestable") == UNTESTABLE
    assert judged.ids("not-applicable") == not_applicable(judged)
    assert judged.ids("harness-error") == set()


def test_fastmcp_passes_the_rest_with_controls(judged: Judged) -> None:
    passed = judged.ids("pass")
    observed = judged.ids("observed")
    assert observed <= {"QZ-AUD-20"}
    assert passed == set(judged.verdicts()) - set(FAILS) - UNTESTABLE - not_applicable(judged) - observed
    assert all(judged.finding(name)["controls"] >= judged.finding(name)["examples"] > 0 for name in passed)
