"""Print what the FastMCP field server answers, byte for byte: the material of NOTES.md, to be taken again at will.

`PYTHONPATH=tests python -m field.fastmcp.transcribe` from the repository's root, in the project's own environment. It
shares nothing with the judge: raw sockets, tokens by hand over `cryptography`, and an issuer that is one JWKS document.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from field.fastmcp.run import start

if TYPE_CHECKING:
    from collections.abc import Generator

RESOURCE = "https://field.quenchz.invalid/mcp"
FOREIGN = "https://other.quenchz.invalid/mcp"
NEW, OLD = "2026-07-28", "2025-11-25"
NARROW, BROAD = "rates:read", "rates:read rates:admin"
HOUR = 3600

Claims = dict[str, Any]


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """An issuer on loopback: one ES256 key, made in memory, and its JWKS over HTTP."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        numbers = self.key.public_key().public_numbers()
        x, y = (_b64(number.to_bytes(32, "big")) for number in (numbers.x, numbers.y))
        jwk = {"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "field-1", "x": x, "y": y}
        self.jwks = json.dumps({"keys": [jwk]}).encode()
        self.url = ""

    @contextlib.contextmanager
    def serving(self) -> Generator[None]:
        """Serve the JWKS at any path for the length of the block."""
        jwks = self.jwks

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(jwks)))
                self.end_headers()
                self.wfile.write(jwks)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
                """Say nothing."""

        with HTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_port}"
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()

    def sign(self, header: Claims, payload: str) -> str:
        """Make a compact JWS of exactly these bytes, signed as the header's `alg` says ("none": not at all)."""
        signed = f"{_b64(json.dumps(header).encode())}.{_b64(payload.encode())}"
        match header["alg"]:
            case "none":
                signature = b""
            case "HS256":  # the well-known confusion: the public key's PEM as the secret
                form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
                signature = hmac.new(
                    self.key.public_key().public_bytes(*form), signed.encode(), hashlib.sha256
                ).digest()
            case _:
                r, s = decode_dss_signature(self.key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
                signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        return f"{signed}.{_b64(signature)}"

    def header(self, **changes: object) -> Claims:
        """Give the good token's header with some members changed; None takes a member away."""
        header = {"alg": "ES256", "typ": "at+jwt", "kid": "field-1"} | changes
        return {name: value for name, value in header.items() if value is not None}

    def claims(self, **changes: object) -> Claims:
        """Give the good token's claims with some changed; None takes a claim away."""
        now = int(time.time())
        claims: Claims = {"iss": self.url, "sub": "narrow", "aud": RESOURCE, "iat": now, "exp": now + HOUR}
        claims |= {"jti": "1", "client_id": "field", "scope": NARROW}
        claims |= changes
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, **changes: object) -> str:
        """Make a token with some claims changed."""
        return self.sign(self.header(), json.dumps(self.claims(**changes)))

    def raw(self, claim: str, literal: str) -> str:
        """Make a token whose claim is this JSON text, which Python's own serialiser might not write."""
        return self.sign(self.header(), json.dumps(self.claims(**{claim: "@"})).replace('"@"', literal))

    def recipes(self) -> dict[str, str]:
        """Give a token per recipe, each differing from the good one in the one thing its name says."""
        now = int(time.time())
        good = self.token()
        text = json.dumps(self.claims())
        head, body, signature = good.split(".")
        return {
            "good": good,
            "aud: another resource": self.token(aud=FOREIGN),
            "aud: [ours]": self.token(aud=[RESOURCE]),
            "aud: [ours, foreign]": self.token(aud=[RESOURCE, FOREIGN]),
            "aud: [foreign, ours]": self.token(aud=[FOREIGN, RESOURCE]),
            "aud: [foreign]": self.token(aud=[FOREIGN]),
            "aud absent": self.token(aud=None),
            "aud: null": self.raw("aud", "null"),
            'aud: ""': self.token(aud=""),
            "aud: []": self.token(aud=[]),
            "aud: {ours: true}": self.token(aud={RESOURCE: True}),
            "aud: ours with a slash added": self.token(aud=RESOURCE + "/"),
            "aud: ours with upper-case host": self.token(aud=RESOURCE.replace("field", "FIELD")),
            "aud: ours with :443": self.token(aud=RESOURCE.replace(".invalid", ".invalid:443")),
            "aud twice: ours, then foreign": self.sign(self.header(), text[:-1] + f', "aud": "{FOREIGN}"}}'),
            "aud twice: foreign, then ours": self.sign(self.header(), f'{{"aud": "{FOREIGN}", ' + text[1:]),
            "iss: another": self.token(iss="https://other.quenchz.invalid"),
            "iss absent": self.token(iss=None),
            "exp: a minute ago": self.token(exp=now - 60),
            "exp absent": self.token(exp=None),
            "exp: null": self.raw("exp", "null"),
            'exp: "in an hour" as a string of digits': self.token(exp=str(now + HOUR)),
            "exp: in an hour, with a fraction": self.token(exp=now + HOUR + 0.5),
            "exp: true": self.token(exp=True),
            "exp: 1e400": self.raw("exp", "1e400"),
            "exp: -1e400": self.raw("exp", "-1e400"),
            "exp: NaN": self.raw("exp", "NaN"),
            "exp: 10 to the 30th": self.token(exp=10**30),
            "nbf: in 20 s": self.token(nbf=now + 20),
            "nbf: in an hour": self.token(nbf=now + HOUR),
            "nbf: a string of digits": self.token(nbf=str(now - 60)),
            "iat: in an hour": self.token(iat=now + HOUR),
            "sub absent": self.token(sub=None),
            "sub: 7 (a number)": self.token(sub=7),
            "client_id: 7 (a number)": self.token(client_id=7),
            "scope absent": self.token(scope=None),
            "scope: a list": self.token(scope=[NARROW]),
            "scope: a list with a number": self.token(scope=[NARROW, 7]),
            "alg: none, no signature": self.sign(self.header(alg="none"), text),
            "alg: HS256 with our public key": self.sign(self.header(alg="HS256"), text),
            "alg: ES384 named, ES256 made": self.sign(self.header(alg="ES384"), text),
            "typ absent": self.sign(self.header(typ=None), text),
            "kid absent": self.sign(self.header(kid=None), text),
            "kid: unknown": self.sign(self.header(kid="field-2"), text),
            'crit: ["exp"]': self.sign(self.header(crit=["exp"], exp=1), text),
            "payload: a list": self.sign(self.header(), "[1]"),
            "payload: not JSON": self.sign(self.header(), "{"),
            "signature: its first character changed": ".".join(
                (head, body, ("A" if signature[0] != "A" else "B") + signature[1:])
            ),
            "not a JWT": "abc",
        }


class Wire:
    """One raw exchange after the other, each on a connection of its own."""

    def __init__(self, url: str, issuer: Issuer) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.path = parts.hostname or "", parts.port or 0, parts.path
        self.issuer = issuer
        self.next_id = 100  # so that all ids have as many digits

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
        """Send a request and return every byte of the answer."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        with socket.create_connection((self.host, self.port), timeout=10) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def rpc(
        self, revision: str, authorization: str | None, method: str, session: str = "", **params: object
    ) -> tuple[str, bytes]:
        """Call a JSON-RPC method; return the request's text as a transcript shows it, and the answer's bytes."""
        self.next_id += 1
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if authorization is not None:
            headers["Authorization"] = authorization
        if revision == NEW:
            headers |= {"MCP-Protocol-Version": NEW, "Mcp-Method": method}
            name = params.get("name", params.get("uri"))
            if name is not None:
                headers["Mcp-Name"] = str(name)
            prefix = "io.modelcontextprotocol/"
            params["_meta"] = {f"{prefix}protocolVersion": NEW, f"{prefix}clientCapabilities": {}}
        elif session:
            headers |= {"MCP-Protocol-Version": OLD, "Mcp-Session-Id": session}
        message: Claims = {"jsonrpc": "2.0", "method": method, "params": params}
        if not method.startswith("notifications/"):
            message["id"] = self.next_id
        shown = {name: value for name, value in params.items() if name != "_meta"}
        return f"{method} {json.dumps(shown)}", self.send("POST", self.path, headers, json.dumps(message).encode())

    def initialize(self, authorization: str | None) -> bytes:
        """Send the older revision's first request."""
        info = {"name": "transcribe", "version": "0"}
        return self.rpc(OLD, authorization, "initialize", protocolVersion=OLD, capabilities={}, clientInfo=info)[1]

    def session(self, authorization: str) -> str:
        """Open a session of the older revision; return its id."""
        session = header_of(self.initialize(authorization), "mcp-session-id")
        self.rpc(OLD, authorization, "notifications/initialized", session=session)
        return session


def status_of(answer: bytes) -> str:
    """Give the status code of an answer, or "no answer"."""
    return answer.split(b" ", 2)[1].decode() if answer.startswith(b"HTTP/1.1 ") else "no answer"


def header_of(answer: bytes, name: str) -> str:
    """Give the value of an answer's header, or ""."""
    for line in answer.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]:
        key, _, value = line.partition(": ")
        if key.lower() == name:
            return value
    return ""


def summary_of(answer: bytes) -> str:
    """Give an answer's status, and the error code of its challenge if it has one."""
    challenge = header_of(answer, "www-authenticate")
    if not challenge:
        return status_of(answer)
    error = challenge.partition('error="')[2].partition('"')[0]
    return f"{status_of(answer)} {error or 'challenge without a code'}"


def names_in(answer: bytes) -> list[str]:
    """Give the names (of resources, the URIs) that a listing's answer, JSON or one SSE event, carries."""
    text = next(line for line in answer.decode().splitlines() if line.removeprefix("data: ").startswith("{"))
    result: dict[str, Any] = json.loads(text.removeprefix("data: "))["result"]
    member = next(name for name in ("tools", "prompts", "resources", "resourceTemplates") if name in result)
    listing: list[Claims] = result[member]
    return [str(item.get("uri", item["name"])) for item in listing]


def stripped(answer: bytes, name: str) -> bytes:
    """Take out of an answer what two answers may differ in here: the asked name, the date, the JSON-RPC id."""
    answer = answer.replace(name.encode(), b"").replace(header_of(answer, "date").encode(), b"")
    return re.sub(rb'"id":\d{3},', b"", answer)


def shown(answer: bytes, url: str) -> str:
    """Give an answer's text for a transcript: CR as \\r, and what differs from run to run replaced."""
    text = answer.decode(errors="backslashreplace")
    for name, stand_in in (("date", "<date>"), ("mcp-session-id", "<session>")):
        if value := header_of(answer, name):
            text = text.replace(value, stand_in)
    return text.replace(url, "<issuer>").replace("\r", "\\r").rstrip("\n")


def main() -> None:
    """Print the recipes' table, then the transcripts, in Markdown."""
    issuer = Issuer()
    with issuer.serving(), start(issuer.url, f"{issuer.url}/jwks", RESOURCE) as url:
        wire = Wire(url, issuer)
        recipes = issuer.recipes()
        authorizations: dict[str, str | None] = {"no Authorization header": None}
        authorizations |= {name: f"Bearer {token}" for name, token in recipes.items()}
        authorizations |= {
            "good, as `bearer`": f"bearer {recipes['good']}",
            "good, as `Basic`": f"Basic {recipes['good']}",
        }
        print(f"| token | tools/list on {NEW} | initialize on {OLD} |\n|---|---|---|")
        bodies: dict[bytes, list[str]] = {}
        for name, authorization in authorizations.items():
            answer = wire.rpc(NEW, authorization, "tools/list")[1]
            outcome = summary_of(answer)
            if outcome == "200":
                tools = json.loads(answer.partition(b"\r\n\r\n")[2])["result"]["tools"]
                outcome += " " + (", ".join(tool["name"] for tool in tools) or "(no tools)")
            else:
                bodies.setdefault(answer.replace(header_of(answer, "date").encode(), b""), []).append(name)
            print(f"| {name} | {outcome} | {summary_of(wire.initialize(authorization))} |")
        print(f"\nDifferent refusals, `date` aside: {len(bodies)}")
        for names in bodies.values():
            print(f"- {len(names)} recipes: {'; '.join(names)}")

        def show(title: str, request: str, answer: bytes) -> None:
            print(f"\n{title}: `{request}`\n```http\n{shown(answer, issuer.url)}\n```")

        metadata = "/.well-known/oauth-protected-resource/mcp"
        show("metadata", f"GET {metadata}", wire.send("GET", metadata, {}))
        for name in ("no Authorization header", "aud: another resource", "exp: 1e400"):
            show(f"{NEW}, {name}", *wire.rpc(NEW, authorizations[name], "tools/list"))
        narrow = f"Bearer {recipes['good']}"
        broad = f"Bearer {issuer.token(sub='broad', scope=BROAD)}"
        usd: Claims = {"arguments": {"currency": "USD"}}
        exchange_rate: Claims = {"name": "exchange_rate", **usd}
        no_arguments: Claims = {"name": "exchange_rate", "arguments": {}}
        pairs: list[tuple[str, Claims, Claims]] = [
            ("tools/call", {"name": "reprice", **usd}, {"name": "reprise", **usd}),
            ("tools/call", {"name": "reprice", "arguments": {}}, {"name": "reprise", "arguments": {}}),
            ("prompts/get", {"name": "audit_rates", **usd}, {"name": "audit_rares", **usd}),
            ("resources/read", {"uri": "rates://cache/state"}, {"uri": "rates://cache/stale"}),
        ]
        print("\n| revision | method | narrow caller sees | broad caller sees |\n|---|---|---|---|")
        sessions = {(NEW, narrow): "", (NEW, broad): ""}
        sessions |= {(OLD, who): wire.session(who) for who in (narrow, broad)}
        for revision in (NEW, OLD):
            for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
                seen = [
                    ", ".join(names_in(wire.rpc(revision, who, method, sessions[revision, who])[1])) or "nothing"
                    for who in (narrow, broad)
                ]
                print(f"| {revision} | {method} | {seen[0]} | {seen[1]} |")
        for revision in (NEW, OLD):
            session = sessions[revision, narrow]
            for granted in (exchange_rate, no_arguments):
                show(f"{revision}, granted", *wire.rpc(revision, narrow, "tools/call", session, **granted))
            for method, hidden, unknown in pairs:
                request, answer = wire.rpc(revision, narrow, method, session, **hidden)
                show(f"{revision}, hidden", request, answer)
                request, twin = wire.rpc(revision, narrow, method, session, **unknown)
                names = [str(params.get("name", params.get("uri"))) for params in (hidden, unknown)]
                if stripped(answer, names[0]) == stripped(twin, names[1]):
                    print(f"\n{revision}, unknown: `{request}`: the same bytes; the asked name, id and date aside")
                else:
                    show(f"{revision}, unknown: OTHER BYTES", request, twin)


if __name__ == "__main__":
    main()
