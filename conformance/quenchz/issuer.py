"""The suite's issuer: an authorization server on loopback whose key set a target is told to trust.

In the judge's process it grants nothing over HTTP: tokens are minted in process (`quenchz.mint`), so that every recipe
can be. What it serves is what a resource server needs to check them: metadata and key sets. As `quenchz issuer` it
is a server of its own and grants any token to anybody on this machine (`quenchz.grants`).

Tenants have the issuer's key set until they are ordered another (`quenchz.orders`). Below `/canary/` a stranger's key
is published, for tokens that name a place to find their key: nobody has any business there, and every request counts.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.serialization import Encoding

from quenchz.grants import Grants
from quenchz.introspection import References
from quenchz.mint import Mint, SigningKey, UnmintableError
from quenchz.orders import GENERATIONS, OrderError, Orders
from quenchz.tokens import TOKEN_LIFETIME, tenant_name
from quenchz_spec.shapes import members

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from quenchz.introspection import Reply
    from quenchz.orders import Tenant

_SLUG = "[A-Za-z0-9._-]{1,64}"
# RFC 8414 §3.1 puts the well-known part before the tenant, OpenID Connect Discovery 1.0 §4 after it; MCP clients also
# try the OpenID name in the RFC 8414 place.
_METADATA = re.compile(
    rf"/\.well-known/(?:oauth-authorization-server|openid-configuration)(?:/(?P<before>{_SLUG}))?"
    rf"|/(?P<after>{_SLUG})/\.well-known/openid-configuration"
)
_TOKEN = re.compile(rf"(?:/(?P<tenant>{_SLUG}))?/token")
_INTROSPECTION = re.compile(rf"(?:/(?P<tenant>{_SLUG}))?/introspect")
_KEY_SET = re.compile(rf"/(?P<tenant>{_SLUG})/jwks\.json")
_LOCAL = re.compile(r"(?:127\.0\.0\.1|localhost)(?::[0-9]+)?", re.IGNORECASE)
STRANGER = "https://stranger.quenchz.invalid"
"""The issuer that no target is told to trust."""
_CANARY = "/canary"
_LONGEST_BODY = 65_536  # bytes of a request that are read
_IDLE_SECONDS = 10.0  # after which a connection that says nothing is closed


class SuiteIssuer:
    """An issuer on a free loopback port while its `with` block runs; each instance has a key of its own.

    It is one issuer, `base_url`, and as many tenants of it as are asked for, all with the same key set unless they are
    ordered another. A second instance that no target is told of makes a stranger that can be discovered. `grants` lets
    anybody on this machine have tokens, and give orders, over HTTP.
    """

    def __init__(self, kid: str = "quenchz-suite-1", *, port: int = 0, grants: bool = False) -> None:
        self.key = SigningKey.generate(kid)
        self._keys = {0: self.key}
        self._keys_lock = threading.Lock()
        self.stranger_key = SigningKey.generate("quenchz-stranger-1")
        self._port = port
        self._grants = grants
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> SuiteIssuer:
        self._server = _Server(self, self._port, grants=self._grants)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="suite issuer", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    @property
    def _running(self) -> _Server:
        if self._server is None:
            raise RuntimeError("the suite issuer has no address before its with block")
        return self._server

    @property
    def base_url(self) -> str:
        """The issuer identifier, without a trailing slash."""
        return self._running.base_url

    @property
    def jwks_url(self) -> str:
        """Where the key set is."""
        return f"{self.base_url}/jwks.json"

    def tenant(self, number: int) -> str:
        """Return the identifier of a tenant: an issuer of its own, for a server with tenants a budget of its own."""
        return f"{self.base_url}/{tenant_name(number)}"

    def key_of(self, generation: int) -> SigningKey:
        """Return a key of the issuer, in the order in which it can turn to them; each is made when it is first needed.

        Raises:
            UnmintableError: there is no such key.
        """
        if not 0 <= generation < GENERATIONS:
            raise UnmintableError(f"this issuer has no key of generation {generation}", f"use 0 to {GENERATIONS - 1}")
        with self._keys_lock:
            if generation not in self._keys:
                self._keys[generation] = SigningKey.generate(f"{self.key.kid}.{generation}")
            return self._keys[generation]

    def mint(self, resource: str) -> Mint:
        """Return the mint of this issuer's tokens for a resource; they live longer than any run."""
        return Mint(
            self.base_url,
            self.key,
            self.stranger_key,
            STRANGER,
            resource,
            time.time,
            lifetime=TOKEN_LIFETIME,
            keys=self.key_of,
            canary=f"{self.base_url}{_CANARY}",
            remember=self._running.references.remember,
        )

    def order(self, tenant: str, order: Mapping[str, Any]) -> dict[str, int]:
        """Carry out an order about a tenant (`quenchz.orders`).

        Returns:
            how often its own key set was fetched, and how often anything below the canary's URL was.

        Raises:
            OrderError: it is no order.
        """
        return self._running.order(tenant, order)

    @property
    def jwks_fetches(self) -> int:
        """How often the key set was fetched."""
        return self._running.jwks_fetches


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, issuer: SuiteIssuer, port: int, *, grants: bool) -> None:
        # First, because a port that cannot be had closes the server before it was made.
        self.orders, self.references = Orders(), References()
        super().__init__(("127.0.0.1", port), _Handler)
        self.base_url = f"http://127.0.0.1:{self.server_address[1]}"
        self.grants = Grants(issuer.mint, self.issuer_of) if grants else None
        self.jwks_fetches = 0
        self.canary_requests = 0
        self._issuer = issuer
        self.count_lock = threading.Lock()

    def issuer_of(self, tenant: str) -> str | None:
        """Return the issuer identifier of a tenant, of the issuer itself for an empty one, or None for no tenant."""
        if tenant == "":
            return self.base_url
        return f"{self.base_url}/{tenant}" if re.fullmatch(_SLUG, tenant) else None

    def grant(self, path: str, body: bytes, media_type: str) -> tuple[int, dict[str, Any]] | None:
        """Return the answer to a request for a token, or None when the request is for something else."""
        path = path.partition("?")[0]
        token = _TOKEN.fullmatch(path)
        if self.grants is None or (token is None and path not in ("/mint", "/order")):
            return None
        if path == "/order":
            return self._ordered(body)
        return self.grants.mint(body) if token is None else self.grants.token(body, media_type, token["tenant"] or "")

    def _ordered(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer an order: a JSON object with the `tenant` beside the members of the order."""
        try:
            asked = members(json.loads(body))
            return 200, self.order(asked.get("tenant"), {name: asked[name] for name in asked if name != "tenant"})
        except OrderError as error:
            return 400, {"error": "invalid_request", "error_description": str(error)}
        except (ValueError, RecursionError):
            return 400, {"error": "invalid_request", "error_description": "the body is not JSON"}

    def order(self, tenant: object, order: Mapping[str, Any]) -> dict[str, int]:
        """Carry out an order about a tenant."""
        if not isinstance(tenant, str) or self.issuer_of(tenant) is None:
            raise OrderError(f"tenant is {tenant!r}; expected A-Z a-z 0-9 . _ -, at most 64 of them")
        fetches = self.orders.give(tenant, order)
        return {"fetches": fetches, "canary": self.canary_requests}

    def about(self, path: str, body: bytes, media_type: str) -> Reply | None:
        """Return the answer to a question about an opaque token, or None when the request is for something else."""
        match = _INTROSPECTION.fullmatch(path.partition("?")[0])
        issuer = None if match is None else self.issuer_of(match["tenant"] or "")
        return None if issuer is None else self.references.reply(body, media_type, issuer)

    def answer(self, path: str) -> tuple[int, dict[str, Any] | bytes]:
        """Return the status and the JSON document, or the certificate, for a request target."""
        path = path.partition("?")[0]
        if path == "/jwks.json":
            with self.count_lock:
                self.jwks_fetches += 1
            return 200, _key_set(self._issuer.key)
        if path == f"{_CANARY}/jwks.json":
            stranger = self._issuer.stranger_key
            # Under both ids: whoever looks for the id in a token's header finds it, whichever that is.
            return 200, _key_set(stranger, SigningKey(self._issuer.key.kid, stranger.private))
        if path == f"{_CANARY}/cert.pem":
            return 200, self._issuer.stranger_key.certificate(time.time()).public_bytes(Encoding.PEM)
        if _TOKEN.fullmatch(path):
            error = "unsupported_grant_type" if self.grants is None else "invalid_request"
            return 400, {"error": error}  # RFC 6749 §5.2
        if path == "/authorize":
            return 400, {"error": "unsupported_response_type"}  # RFC 6749 §4.1.2.1
        match = _METADATA.fullmatch(path)
        if match is None:
            return 404, {"error": "not_found"}
        return 200, self._metadata(match["before"] or match["after"] or "")

    def key_set_of(self, path: str) -> Tenant | None:
        """Return the tenant whose own key set a request target is, counting the fetch; None for anything else."""
        match = _KEY_SET.fullmatch(path.partition("?")[0])
        return None if match is None else self.orders.fetched(match["tenant"])

    def published_by(self, tenant: Tenant) -> dict[str, Any]:
        """Return the key set of a tenant that has one of its own and no fault."""
        return _key_set(*(self._issuer.key_of(generation) for generation in tenant.generations))

    def _metadata(self, tenant: str) -> dict[str, Any]:
        """Return the metadata of an issuer (RFC 8414 §2), complete enough for OpenID Connect Discovery 1.0 §3."""
        issuer = f"{self.base_url}/{tenant}" if tenant else self.base_url
        has_own = self.orders.tenant(tenant) is not None
        return {
            "issuer": issuer,
            "authorization_endpoint": f"{self.base_url}/authorize",
            "token_endpoint": f"{issuer}/token",
            "introspection_endpoint": f"{issuer}/introspect",
            "introspection_endpoint_auth_methods_supported": ["none"],
            "jwks_uri": f"{issuer if has_own else self.base_url}/jwks.json",
            "response_types_supported": [],
            "grant_types_supported": [] if self.grants is None else ["client_credentials"],
            "token_endpoint_auth_methods_supported": ["none"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

    def server_close(self) -> None:
        """Close the port, and the connections that a fault keeps open."""
        self.orders.end()
        self.references.end()
        super().server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        # A peer that goes away is its own business; anything else is a fault of ours and is shown.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version = "quenchz-issuer"
    sys_version = ""
    timeout = _IDLE_SECONDS
    wbufsize = -1  # head and body in one write

    def parse_request(self) -> bool:
        is_request = super().parse_request()
        if is_request and self.path.startswith(f"{_CANARY}/"):
            with self.server.count_lock:
                self.server.canary_requests += 1
        return is_request

    def do_GET(self) -> None:
        tenant = self.server.key_set_of(self.path)
        if tenant is None:
            self._send(*self.server.answer(self.path))
        elif not tenant.fault:
            self._send(200, self.server.published_by(tenant))
        else:
            self.close_connection = True
            tenant.misbehave(self._write)

    def _write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        size = int(length) if length.isdecimal() and len(length) < 10 else 0
        # What stays unread when the connection is closed resets it, and takes the answer along.
        body = self.rfile.read(min(size, _LONGEST_BODY))
        media_type = self.headers.get("Content-Type", "")
        about = self.server.about(self.path, body, media_type)
        if about is not None:
            self._tell(about)
            return
        granted = self.server.grant(self.path, body, media_type)
        if granted is None:
            self.do_GET()
        elif size > _LONGEST_BODY:
            self._send(413, {"error": "invalid_request", "error_description": "the body is longer than 64 KiB"})
        elif not _LOCAL.fullmatch(self.headers.get("Host", "127.0.0.1")):
            # A web page whose name was bound to 127.0.0.1 after it was loaded is nobody on this machine.
            self._send(403, {"error": "invalid_request", "error_description": "the Host is not this machine"})
        else:
            self._send(*granted)

    def _tell(self, reply: Reply) -> None:
        if reply.body is None:
            self.close_connection = True
            self.server.references.hold()
            return
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.media_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(reply.body)

    def _send(self, status: int, document: dict[str, Any] | bytes) -> None:
        is_pem = isinstance(document, bytes)
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-pem-file" if is_pem else "application/json")
        self.send_header("Content-Length", str(len(body)))
        if not is_pem and ("access_token" in document or "error" in document):
            self.send_header("Cache-Control", "no-store")  # RFC 6749 §5.1
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay quiet: standard error belongs to the judge."""


def _key_set(*keys: SigningKey) -> dict[str, Any]:
    """Return the JWK Set of keys (RFC 7517 §5)."""
    return {"keys": [key.jwk() for key in keys]}


def serve(port: int) -> int:
    """Run the issuer as a server of its own until SIGTERM or SIGINT, and return the exit code.

    Raises:
        OSError: the port cannot be had.
    """
    ended = threading.Event()

    def end(*_: object) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with SuiteIssuer(port=port, grants=True) as issuer:
        warning = "mints any token for anybody on this machine: only servers under test may trust it"
        print(f"quenchz issuer: {warning}", file=sys.stderr, flush=True)
        print(f"quenchz issuer ready: {issuer.base_url}", flush=True)
        ended.wait()
    return 0
