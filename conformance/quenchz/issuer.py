"""The suite's issuer: an authorization server on loopback whose key set a target is told to trust.

It grants nothing over HTTP: tokens are minted in process (`quenchz.mint`), so that every recipe can be. What it serves
is what a resource server needs to check them: metadata and one key set.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from quenchz.mint import SigningKey

if TYPE_CHECKING:
    from types import TracebackType

_SLUG = "[A-Za-z0-9._-]{1,64}"
# RFC 8414 §3.1 puts the well-known part before the tenant, OpenID Connect Discovery 1.0 §4 after it; MCP clients also
# try the OpenID name in the RFC 8414 place.
_METADATA = re.compile(
    rf"/\.well-known/(?:oauth-authorization-server|openid-configuration)(?:/(?P<before>{_SLUG}))?"
    rf"|/(?P<after>{_SLUG})/\.well-known/openid-configuration"
)
_LONGEST_BODY = 65_536  # bytes of a request that are read
_IDLE_SECONDS = 10.0  # after which a connection that says nothing is closed


class SuiteIssuer:
    """An issuer on a free loopback port while its `with` block runs; each instance has a key of its own.

    It is one issuer, `base_url`, and as many tenants of it as are asked for, all with the same key set. A second
    instance that no target is told of makes a stranger that can be discovered.
    """

    def __init__(self, kid: str = "quenchz-suite-1", *, port: int = 0) -> None:
        self.key = SigningKey.generate(kid)
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> SuiteIssuer:
        self._server = _Server(self.key, self._port)
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
        return f"{self.base_url}/run-{number}"

    @property
    def jwks_fetches(self) -> int:
        """How often the key set was fetched."""
        return self._running.jwks_fetches


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, key: SigningKey, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.base_url = f"http://127.0.0.1:{self.server_address[1]}"
        self.jwks = {"keys": [key.jwk()]}
        self.jwks_fetches = 0
        self.count_lock = threading.Lock()

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON document for a request target."""
        path = path.partition("?")[0]
        if path == "/jwks.json":
            with self.count_lock:
                self.jwks_fetches += 1
            return 200, self.jwks
        if path == "/token":
            return 400, {"error": "unsupported_grant_type"}  # RFC 6749 §5.2
        if path == "/authorize":
            return 400, {"error": "unsupported_response_type"}  # RFC 6749 §4.1.2.1
        match = _METADATA.fullmatch(path)
        if match is None:
            return 404, {"error": "not_found"}
        slug = match["before"] or match["after"]
        return 200, self._metadata(f"{self.base_url}/{slug}" if slug else self.base_url)

    def _metadata(self, issuer: str) -> dict[str, Any]:
        """Return the metadata of an issuer (RFC 8414 §2), complete enough for OpenID Connect Discovery 1.0 §3."""
        return {
            "issuer": issuer,
            "authorization_endpoint": f"{self.base_url}/authorize",
            "token_endpoint": f"{self.base_url}/token",
            "jwks_uri": f"{self.base_url}/jwks.json",
            "response_types_supported": [],
            "grant_types_supported": [],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

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

    def do_GET(self) -> None:
        status, document = self.server.answer(self.path)
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        # What stays unread when the connection is closed resets it, and takes the answer along.
        length = self.headers.get("Content-Length", "0")
        self.rfile.read(min(int(length), _LONGEST_BODY) if length.isdecimal() else 0)
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay quiet: standard error belongs to the judge."""
