"""What oidc-provider grants and what the reference server makes of it: the tables of docs/oidc-provider.md.

`PYTHONPATH=tests python -m field.oidc_provider.transcribe --write` takes them anew and writes them there. It shares
nothing with the judge: forms and tokens are read with the standard library alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode

from field.oidc_provider.environment import MODULES
from field.oidc_provider.run import start
from field.processes import reference

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "oidc-provider.md"
RESOURCE = "https://rates.quenchz.invalid/mcp"
OTHER = "https://other.example/mcp"
SCOPE = "rates:read rates:history rates:admin"
CLIENT = "broad"
NEW, OLD = "2026-07-28", "2025-11-25"
META = {"io.modelcontextprotocol/protocolVersion": NEW, "io.modelcontextprotocol/clientCapabilities": {}}
INITIALIZE = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "field", "version": "1"}}
# A secret with what form encoding changes, since client_secret_basic encodes before it encodes (RFC 6749 §2.3.1).
SECRET = f"{secrets.token_urlsafe(16)} of+the client/%"


@dataclass(frozen=True)
class Answered:
    """An answer with JSON in its body, or without a body."""

    status: int
    document: Any
    challenge: str = ""

    @property
    def words(self) -> str:
        """Whether a server admitted a token: a result, or the status and the challenge's error."""
        if self.status == 200 and isinstance(self.document.get("result"), dict):
            return "admitted"
        error = re.search(r'error="([a-z_]+)"', self.challenge)
        return f"{self.status} {error[1] if error else 'without an error code'}"


def send(url: str, body: bytes | None = None, **headers: str) -> Answered:
    """GET `url`, or POST `body` to it; an underscore in a header's name stands for a hyphen."""
    request = urllib.request.Request(url, body, {name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return Answered(answer.status, json.loads(answer.read()))
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
            return Answered(error.code, json.loads(body or b"null"), error.headers.get("WWW-Authenticate", ""))


def granted(issuer: str, resources: Sequence[str], *, scope: str = SCOPE, secret: str = SECRET) -> Answered:
    """Ask for a token by the client credentials grant."""
    form = [("grant_type", "client_credentials"), ("scope", scope), *(("resource", one) for one in resources)]
    pair = f"{quote_plus(CLIENT)}:{quote_plus(secret)}".encode()
    credentials = f"Basic {base64.b64encode(pair).decode()}"
    return send(f"{issuer}/token", urlencode(form).encode(), Authorization=credentials)


def parts(token: str) -> list[dict[str, Any]]:
    """Return header and payload of a JWT, members in their order; nothing for an opaque token."""
    segments = token.split(".")
    return [json.loads(base64.urlsafe_b64decode(part + "==")) for part in segments[:2]] if len(segments) == 3 else []


def admission(url: str, token: str, wire: str) -> Answered:
    """Show a token to an MCP server: list the tools, or open a session where the revision has sessions."""
    method, params = ("tools/list", {"_meta": META}) if wire == NEW else ("initialize", INITIALIZE)
    return send(
        url,
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode(),
        Authorization=f"Bearer {token}",
        Content_Type="application/json",
        Accept="application/json, text/event-stream",
        MCP_Protocol_Version=wire,
        **({"Mcp_Method": method} if wire == NEW else {}),
    )


REGISTERED = {
    "our resource": [RESOURCE],
    "our resource, twice": [RESOURCE, RESOURCE],
    "another registered resource": [OTHER],
    "no resource": [],
    "an empty resource": [""],
    "ours and the other one": [RESOURCE, OTHER],
    "a resource that is not registered": ["https://unknown.example/mcp"],
    "ours with a slash added": [f"{RESOURCE}/"],
}
ANY = {
    "ours with a slash added": [f"{RESOURCE}/"],
    "ours with the host in capitals": [RESOURCE.replace("rates", "RATES")],
    "ours after a space": [f" {RESOURCE}"],
    "ours with a query": [f"{RESOURCE}?tenant=1"],
    "ours with a fragment": [f"{RESOURCE}#part"],
    "a path alone": ["/mcp"],
}


def code(value: Any) -> str:
    """Return a value as JSON in a code span."""
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def asked(issuer: str, url: str, asks: dict[str, list[str]]) -> list[str]:
    """Return a row for each ask: the answer, the audience of the token, and what the server makes of the token."""
    rows: list[str] = []
    for words, resources in asks.items():
        answer = granted(issuer, resources)
        if answer.status != 200:
            said = f"{answer.status} {answer.document['error']}: {answer.document['error_description']}"
            rows.append(f"| {words} | {said} | | | |")
            continue
        token = answer.document["access_token"]
        kind, audience = ("a JWT", code(parts(token)[1]["aud"])) if parts(token) else ("an opaque token", "")
        admitted = " | ".join(admission(url, token, wire).words for wire in (NEW, OLD))
        count = len(answer.document.get("scope", "").split())
        rows.append(f"| {words} | {answer.status}, {kind}, {count or 'no'} scopes | {audience} | {admitted} |")
    return rows


def thumbprint(key: dict[str, Any]) -> str:
    """Return the RFC 7638 thumbprint of an EC or RSA key."""
    names = ("crv", "kty", "x", "y") if key["kty"] == "EC" else ("e", "kty", "n")
    text = json.dumps({name: key[name] for name in names}, separators=(",", ":"))
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def token_shown(issuer: str, alg: str) -> list[str]:
    """Return header and payload of a good token as two lines of JSON, what changes with every run as words."""
    keys = {key["kid"]: key for key in send(f"{issuer}/jwks").document["keys"]}
    header, payload = parts(granted(issuer, [RESOURCE]).document["access_token"])
    key = keys[header["kid"]]
    assert (key["alg"], key["use"]) == (alg, "sig")
    header["kid"] = "the key's RFC 7638 thumbprint" if header["kid"] == thumbprint(key) else "another text"
    for name, words in (("jti", "43 letters"), ("iat", "now"), ("exp", f"{payload['exp'] - payload['iat']} s later")):
        assert name != "jti" or len(payload[name]) == 43
        payload[name] = words
    payload["iss"] = payload["iss"].replace(issuer, "the issuer identifier")
    return [json.dumps(header), json.dumps(payload)]


def discovery(issuer: str) -> list[str]:
    """Return what a resource server and a client read of the metadata, the same in both places."""
    well_known = [f"{issuer}/.well-known/{name}" for name in ("oauth-authorization-server", "openid-configuration")]
    first, second = (send(place).document for place in well_known)
    assert first == second
    names = ("issuer", "jwks_uri", "token_endpoint", "token_endpoint_auth_methods_supported", "scopes_supported")
    return [f"- `{name}`: {code(first[name]).replace(issuer, 'ISSUER')}" for name in names]


def version() -> str:
    """Return the version of oidc-provider that is installed."""
    return str(json.loads((MODULES / "oidc-provider" / "package.json").read_text(encoding="utf-8"))["version"])


def table(rows: Sequence[str]) -> list[str]:
    """Return rows under the head that both tables have."""
    return [f"| asked for | answer | `aud` of the token | {NEW} | {OLD} |", "|---|---|---|---|---|", *rows]


def measured() -> str:
    """Take everything anew and return the generated part of the document."""
    lines = [f"oidc-provider {version()}; the last two columns are the reference server's answers to the token.", ""]
    trusting = ("--port", "0", "--resource", RESOURCE, "--trust-issuer")
    with start([RESOURCE, OTHER], {CLIENT: SECRET}) as issuer, reference(*trusting, issuer) as url:
        wrong = granted(issuer, [RESOURCE], secret="wrong")
        lines += ["Metadata, the same at both well-known places:", "", *discovery(issuer), ""]
        lines += [
            "Header and payload of a good token (ES256):",
            "",
            "```json",
            *token_shown(issuer, "ES256"),
            "```",
            "",
        ]
        lines += ["Two resources are registered:", "", *table(asked(issuer, url, REGISTERED)), ""]
        lines += [f"A wrong secret: {wrong.status} {wrong.document['error']}.", ""]
    with (
        start([], {CLIENT: SECRET}, any_resource=True, alg="RS256") as issuer,
        reference(*trusting, issuer) as url,
    ):
        lines += [
            "Header and payload of a good token (RS256):",
            "",
            "```json",
            *token_shown(issuer, "RS256"),
            "```",
            "",
        ]
        lines += [
            "Every resource is taken for registered:",
            "",
            *table(asked(issuer, url, {"ours": [RESOURCE], **ANY})),
        ]
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- begin measured -->\n", "<!-- end measured -->\n"


def written() -> str:
    """Return the generated part as the document has it."""
    return DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    found = measured()
    if "--write" in sys.argv[1:]:
        before, begin, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        DOCUMENT.write_text(f"{before}{begin}{found}{END}{rest.partition(END)[2]}", encoding="utf-8")
    else:
        print(found, end="")
