"""Running the app: from options to parts, a socket and a server, in this thread or in another one."""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from quenchz_reference import tokens_file
from quenchz_reference.app import ENDPOINT, build_app
from quenchz_reference.audience import Audience
from quenchz_reference.catalogue import default_catalogue
from quenchz_reference.certificates import Certifier
from quenchz_reference.clock import Clock, SystemClock
from quenchz_reference.issuer import InProcessIssuer
from quenchz_reference.options import ConfigurationError, Options
from quenchz_reference.parts import Parts
from quenchz_reference.reserves import Budgets, Charges, ReserveLedger
from quenchz_reference.scopes import Access
from quenchz_reference.service import RatesService
from quenchz_reference.trust import AnyOf, HttpIssuers, Trust
from quenchz_reference.vendor import CassetteVendor, LiveVendor, VendorError

Alter = Callable[[Parts], Parts]
"""Replaces parts before the app is built."""

Wrap = Callable[[ASGIApp], ASGIApp]
"""Replaces the app before it is served."""

_SHUTDOWN_SECONDS = 1
# uvicorn's own limit is 64 kB. A token of that size has to reach gate 1, however many packets its head comes in.
_MAX_HEAD_BYTES = 131_072
_KEEP_ALIVE_SECONDS = 60  # a client that pauses longer between two requests opens a new connection


def default_parts(options: Options, address: str, issuer: InProcessIssuer | None) -> Parts:
    """The honest parts for `options`.

    Raises:
        ConfigurationError: if the vendor is a recording and there is none.
    """
    clock = SystemClock()
    sources: list[Trust] = [] if issuer is None else [issuer]
    if options.trust_issuers or options.trust_tenants:
        sources.append(http_issuers(options, clock))
    trust = AnyOf(sources)
    as_of = options.as_of
    try:
        vendor = LiveVendor() if options.vendor == "live" else CassetteVendor()
    except VendorError as error:
        raise ConfigurationError(f"--vendor {options.vendor}: {error}; use --vendor live") from error
    return Parts(
        options=options,
        address=address,
        clock=clock,
        trust=trust,
        audience=Audience(options.resource, trust, clock),
        budgets=Budgets(
            lambda: ReserveLedger(options.budget, options.window, options.reserves, clock, options.unknown_callers)
        ),
        charges=Charges(),
        catalogue=default_catalogue(),
        access=Access(),
        service=RatesService(vendor, Certifier(), (lambda: datetime.now(UTC)) if as_of is None else (lambda: as_of)),
    )


def http_issuers(options: Options, clock: Clock, kind: type[HttpIssuers] = HttpIssuers) -> HttpIssuers:
    """The issuers that `options` name, whose keys are found by HTTP."""
    return kind(
        options.trust_issuers,
        options.trust_tenants,
        clock,
        keep=options.keys_keep,
        pause=options.keys_refetch,
        timeout=options.keys_timeout,
    )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        ConfigurationError: if the address cannot be bound, for instance because the port is in use.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Named by hand: asyncio switches Nagle's algorithm off only for sockets that say they are TCP, and with it on
        # every answer waits 40 ms for an acknowledgement.
        listener = socket.socket(family, kind, socket.IPPROTO_TCP)
    except OSError as error:
        raise ConfigurationError(f"--host {host}: {error.strerror}; use an address of this machine") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigurationError(f"--host {host}: {error.strerror}; use an address of this machine") from error
        raise ConfigurationError(
            f"--port {port} on {host}: {error.strerror}; stop what uses it, or use --port 0 for a free one"
        ) from error
    return listener


def address_of(listener: socket.socket, resource: str) -> str:
    """Scheme, host and port under which clients reach `listener`.

    A wildcard address is nobody's address: then the origin of a resource that can exist is taken, else loopback.
    """
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not bound to
        parts = urlsplit(resource)
        if not (parts.hostname or "").endswith(".invalid"):
            return f"{parts.scheme}://{parts.netloc}"
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn, without its habit of repeating a signal after the shutdown, which would end the process by it."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _Gathering:
    """A transport that gives the kernel in one call what was written to it in one turn of the event loop.

    uvicorn writes the head and the body of an answer one after the other: two calls, and two packets at the client.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._waiting:
            self._transport.write(b"".join(self._waiting))
            self._waiting.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Protocol(H11Protocol):
    # httptools leaves blanks at the end of a header's value, where RFC 9110 section 5.5 has them removed.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _Gathering(transport)))


def _server(app: ASGIApp) -> _Server:
    config = uvicorn.Config(
        app,
        http=_Protocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    return _Server(config)


def prepare(options: Options, listener: socket.socket, alter: Alter, wrap: Wrap) -> tuple[ASGIApp, str]:
    """Build the app and write the tokens file.

    Returns:
        the app, and the endpoint's URL.

    Raises:
        ConfigurationError: if the tokens file cannot be written or the vendor cannot be used.
    """
    address = address_of(listener, options.resource)
    url = f"{address}{ENDPOINT}"
    issuer = None if options.tokens_file is None else InProcessIssuer()
    parts = alter(default_parts(options, address, issuer))
    if issuer is not None and options.tokens_file is not None:
        try:
            tokens_file.write(options.tokens_file, tokens_file.build(parts, issuer, url))
        except OSError as error:
            raise ConfigurationError(
                f"--tokens-file {options.tokens_file}: {error.strerror}; use a file in a folder that can be written"
            ) from error
    return wrap(build_app(parts)), url


def serve(options: Options, alter: Alter, wrap: Wrap) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit status.

    Raises:
        ConfigurationError: if the server cannot start as it was told to.
    """
    # Only our own lines follow --log-level: at info, the player of the cassettes would print them whole.
    logging.basicConfig(level="WARNING", stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("quenchz_reference").setLevel(options.log_level.upper())
    with contextlib.closing(bind(options.host, options.port)) as listener:
        app, url = prepare(options, listener, alter, wrap)
        server = _server(app)
        return asyncio.run(_serve(server, listener, url))


async def _serve(server: _Server, listener: socket.socket, url: str) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.handle_exit, number, None)
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        sys.stdout.write(f"quenchz reference ready: {url}\n")
        sys.stdout.flush()
    await serving
    return 0 if server.started else 1


@contextmanager
def serving_in_thread(app_of: Callable[[str], ASGIApp]) -> Generator[str]:
    """Serve an app on a free loopback port from a thread of this process, for tests.

    Args:
        app_of: makes the app, given the address (scheme, host, port) that it will have.

    Yields:
        that address.
    """
    with contextlib.closing(bind("127.0.0.1", 0)) as listener:
        address = address_of(listener, "")
        server = _server(app_of(address))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                thread.join(0.01)
            if not server.started:
                raise RuntimeError("the app did not start; its log says why")
            yield address
        finally:
            server.should_exit = True
            thread.join()
