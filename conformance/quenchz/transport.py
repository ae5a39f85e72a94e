"""HTTP/1.1 on kept connections, for judging answers byte for byte.

Blocking sockets under `h11`. Nothing here knows MCP. What an ordinary client would smooth over is kept: header order
and case, repeated fields, how a body was framed, the moment of the first byte. What an ordinary client would do by
itself is not done: no redirects, no proxies, no decompression, no retries. A request of which one byte was written is
never sent again, because the server may have charged it.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn, TypeAlias, TypedDict

import h11

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Headers: TypeAlias = Sequence[tuple[str, str]]

_READ = 65_536  # bytes asked of the socket at a time
_HEAD_LIMIT = 65_536  # bytes of a status line and header fields that are still waited for
_GRACE = 0.05  # seconds that a stream has to end by itself once it has said everything we came for
_LONGEST_WAIT = 86_400.0  # seconds; a longer wait would overflow the socket's own timeout
_BLANK_LINE = re.compile(rb"\n\r?\n")
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")  # WHATWG HTML §9.2.6
_QUOTED_BYTES = re.compile(r":?\s*\(?(?:bytearray\(|\bb['\"]).*", re.DOTALL)
_BLANKS = " \t\r"  # around a field value; CR ends the line
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Received:
    """One answer, as it came.

    `start` is the status line and `headers` the fields in received order and case, both as latin-1 text. `body` is
    without its framing (chunk sizes), and not decompressed. `trailers` are the fields after a chunked body (RFC 9112
    §7.1.2). Times are seconds on the transport's clock: just before the first byte of the request was written, when
    the first byte of the final answer had been read (interim 1xx answers do not count), and at the answer's end.
    """

    start: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    sent: float
    first: float
    last: float
    trailers: tuple[tuple[str, str], ...] = ()


# --- what can go wrong ----------------------------------------------------------------------------------------------
#
# TransportError
#  ├─ UnsendableRequestError    the request cannot be written as HTTP/1.1
#  ├─ CannotConnectError        no connection came about
#  ├─ TlsError                  a connection came about, but no trusted TLS session on it
#  ├─ AnswerTimedOutError       no complete answer in time
#  ├─ ConnectionClosedError     the server closed before the end of its answer
#  ├─ AnswerTooLargeError       the answer is larger than the cap
#  └─ MalformedAnswerError      the answer is not HTTP/1.1


@dataclass(eq=False, kw_only=True)
class TransportError(Exception):
    """There is no complete answer; subclasses say why, `code` names the class for programs and never changes.

    `sent` is None while no byte of the request had been written, so that the server cannot have decided anything;
    otherwise a charge may have fallen between `sent` and `ended` (seconds on the transport's clock). `arrived` counts
    the bytes of the answer that came, framing included; `partial` is the answer so far once its header fields were
    complete. No text of an error contains a byte that the server chose: it could be an echoed token.
    """

    code: ClassVar[str] = "QZ_E_TRANSPORT"
    origin: str
    ended: float
    sent: float | None = None
    arrived: int = 0
    partial: Received | None = dataclasses.field(default=None, repr=False)

    @property
    def what_came(self) -> str:
        """How much of an answer there was, in words."""
        if self.arrived == 0:
            return "no bytes"
        if self.partial is None:
            return f"{self.arrived} bytes, an incomplete head"
        return f"headers and {len(self.partial.body)} body bytes" if self.partial.body else "headers only"

    def __str__(self) -> str:
        return f"no answer from {self.origin}"


@dataclass(eq=False, kw_only=True)
class UnsendableRequestError(TransportError):
    """The request cannot be written as HTTP/1.1 (RFC 9112); nothing was sent."""

    code: ClassVar[str] = "QZ_E_UNSENDABLE"
    reason: str

    def __str__(self) -> str:
        return f"the request to {self.origin} cannot be written as HTTP/1.1: {self.reason}"


@dataclass(eq=False, kw_only=True)
class CannotConnectError(TransportError):
    """The name did not resolve, or no address accepted the connection; nothing was sent."""

    code: ClassVar[str] = "QZ_E_CANNOT_CONNECT"
    reason: str

    def __str__(self) -> str:
        return f"cannot connect to {self.origin}: {self.reason}"


@dataclass(eq=False, kw_only=True)
class TlsError(TransportError):
    """The TLS handshake failed, the certificate is not trusted, or a record was broken."""

    code: ClassVar[str] = "QZ_E_TLS"
    reason: str

    def __str__(self) -> str:
        return f"no TLS session with {self.origin}: {self.reason}"


@dataclass(eq=False, kw_only=True)
class AnswerTimedOutError(TransportError):
    """The whole exchange, connecting included, took longer than allowed. Bytes that trickle in do not prolong it."""

    code: ClassVar[str] = "QZ_E_TIMED_OUT"
    timeout: float

    def __str__(self) -> str:
        return f"no complete answer from {self.origin} within {self.timeout:g} s: {self.what_came} came"


@dataclass(eq=False, kw_only=True)
class ConnectionClosedError(TransportError):
    """The server closed or reset the connection before its answer was complete."""

    code: ClassVar[str] = "QZ_E_CONNECTION_CLOSED"
    reset: bool = False

    def __str__(self) -> str:
        how = "reset" if self.reset else "closed"
        return f"{self.origin} {how} the connection before the end of its answer: {self.what_came} came"


@dataclass(eq=False, kw_only=True)
class AnswerTooLargeError(TransportError):
    """The answer, header fields and framing included, went beyond the cap (bytes); the rest was not read."""

    code: ClassVar[str] = "QZ_E_TOO_LARGE"
    cap: int

    def __str__(self) -> str:
        return f"the answer of {self.origin} is larger than {self.cap} bytes: {self.arrived} bytes had come"


@dataclass(eq=False, kw_only=True)
class MalformedAnswerError(TransportError):
    """The answer is not HTTP/1.1 (RFC 9112). `head` holds the bytes before the end of the header fields, as received.

    `reason` is in the words of the parser, without the bytes it complains about.
    """

    code: ClassVar[str] = "QZ_E_MALFORMED"
    reason: str
    head: bytes = dataclasses.field(default=b"", repr=False)

    def __str__(self) -> str:
        return f"the answer of {self.origin} is not HTTP/1.1: {self.reason} ({self.what_came} came)"


# --- one exchange ---------------------------------------------------------------------------------------------------


class _SoFar(TypedDict):
    """The fields that every error has."""

    origin: str
    ended: float
    sent: float | None
    arrived: int
    partial: Received | None


class _Link:
    """A connection, with the HTTP/1.1 state of both ends."""

    __slots__ = ("http", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_LIMIT)

    def is_quiet(self) -> bool:
        """Whether nothing came while nobody asked: anything that did is the server's farewell, or not ours."""
        try:
            self.sock.settimeout(0.0)
            self.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def is_reusable(self) -> bool:
        """Whether the exchange ended cleanly on both sides and nothing came after it."""
        http = self.http
        return http.our_state is h11.DONE and http.their_state is h11.DONE and not http.trailing_data[0]


class _Exchange:
    """One request and what has come of its answer so far."""

    def __init__(self, origin: str, clock: Callable[[], float], timeout: float, size_cap: int) -> None:
        self.origin = origin
        self.clock = clock
        self.timeout = timeout
        self.size_cap = size_cap
        self.deadline = clock() + timeout
        self.has_written = False
        self.has_head = False
        self.has_closed = False
        self.is_stream = False
        self.sent = self.first = self.last = 0.0
        self.arrived = 0
        self.head = bytearray()
        self.start = ""
        self.headers: tuple[tuple[str, str], ...] = ()
        self.body = bytearray()
        self.asked_at = -1  # the length of the body when `done` was last asked
        self.trailers: tuple[tuple[str, str], ...] = ()

    def seconds_left(self) -> float:
        """Return what is left of the timeout.

        Raises:
            TimeoutError: nothing is left.
        """
        left = self.deadline - self.clock()
        if left <= 0:
            raise TimeoutError
        return min(left, _LONGEST_WAIT)

    def received(self, length: int | None = None) -> Received:
        """Return the answer with the first `length` bytes of its body."""
        body = bytes(self.body if length is None else self.body[:length])
        return Received(self.start, self.headers, body, self.sent, self.first, self.last, self.trailers)

    def so_far(self) -> _SoFar:
        """Return the fields that every error has."""
        return {
            "origin": self.origin,
            "ended": self.clock(),
            "sent": self.sent if self.has_written else None,
            "arrived": self.arrived,
            "partial": self.received() if self.has_head else None,
        }

    def write(self, sock: socket.socket, request: bytes) -> None:
        """Write the request. A server may answer and close before it has read everything, so that is no error here."""
        view = memoryview(request)
        self.sent = self.clock()
        self.has_written = True
        try:
            while view:
                sock.settimeout(self.seconds_left())
                view = view[sock.send(view) :]
        except (BrokenPipeError, ConnectionResetError):
            return

    def read(self, link: _Link, done: Callable[[bytes], bool] | None) -> Received:
        """Read the answer. Raises what `Transport.exchange` raises, but socket errors still bare."""
        while True:
            try:
                ended = self._read_on(link)
            except TransportError:
                # Whether trouble came in the same packet as the event before it is chance, so it is not looked at.
                length = self._enough(done)
                if length is None:
                    raise
                return self.received(length)
            if ended:
                return self.received()
            length = self._enough(done)
            if length is not None:
                return self._finish(link, length)

    def _finish(self, link: _Link, length: int) -> Received:
        """Return a stream that has said enough: whole if it ends at once, so that its connection stays, else cut."""
        cut = self.received(length)
        self.deadline = min(self.deadline, self.clock() + _GRACE)
        try:
            while not self._read_on(link):
                continue
        except (OSError, TransportError):
            return cut
        return self.received()

    def _read_on(self, link: _Link) -> bool:
        """Read once, and take in what came; true at the end of the answer."""
        link.sock.settimeout(self.seconds_left())
        data = link.sock.recv(_READ)
        self.last = self.clock()
        self.has_closed = not data
        if not self.has_head:
            self.first = self.first if self.head else self.last
            self.head += data
        self.arrived += len(data)
        if self.arrived > self.size_cap:
            raise AnswerTooLargeError(cap=self.size_cap, **self.so_far())
        link.http.receive_data(data)
        return self._take_events(link.http)

    def _take_events(self, http: h11.Connection) -> bool:
        while True:
            try:
                event = http.next_event()
            except h11.RemoteProtocolError as error:
                if self.has_closed:  # everything before the end was well-formed, or it would have been refused earlier
                    raise ConnectionClosedError(**self.so_far()) from None
                self._refuse(without_bytes(str(error)))
            if isinstance(event, h11.Data):
                self.body += event.data
            elif event is h11.NEED_DATA:
                return False
            elif isinstance(event, h11.InformationalResponse):
                self._forget_interim()
            elif isinstance(event, h11.Response):
                self._take_head()
            elif isinstance(event, h11.EndOfMessage):
                self.trailers = _as_text(event.headers.raw_items())
                return True
            elif self.has_head:
                return True  # paused for good after a successful CONNECT (RFC 9110 §9.3.6)
            else:
                self._refuse("a switch to a protocol that was not asked for")

    def _refuse(self, reason: str) -> NoReturn:
        head = b"" if self.has_head else bytes(self.head)
        raise MalformedAnswerError(reason=reason, head=head, **self.so_far())

    def _forget_interim(self) -> None:
        """Drop an interim answer: the server may decide after it, so its first byte does not bound the decision."""
        match = _BLANK_LINE.search(self.head)
        del self.head[: match.end() if match else None]
        self.first = self.last

    def _take_head(self) -> None:
        """Split the head by hand: h11 lowers codings and drops repeated lengths, though either tells denials apart."""
        match = _BLANK_LINE.search(self.head)
        start, *lines = self.head[: match.start() if match else None].decode("latin-1").split("\n")
        fields: list[tuple[str, str]] = []
        for line in lines:
            if line[0] in " \t":  # a folded line continues its field (RFC 9112 §5.2)
                name, value = fields.pop()
                fields.append((name, f"{value} {line.strip(_BLANKS)}"))
            else:
                name, _, value = line.partition(":")
                fields.append((name, value.strip(_BLANKS)))
        self.start = start.removesuffix("\r")
        self.headers = tuple(fields)
        kind = next((value for name, value in fields if name.lower() == "content-type"), "")
        self.is_stream = kind.partition(";")[0].strip().lower() == "text/event-stream"
        self.has_head = True

    def _enough(self, done: Callable[[bytes], bool] | None) -> int | None:
        """Return the shortest length of a stream, cut between events, that is enough; None while there is too little.

        Whatever else the network delivered along with it is chance, and would make equal answers differ.
        """
        if done is None or not self.is_stream:
            return None
        known, self.asked_at = self.asked_at, len(self.body)
        if known == self.asked_at or not done(bytes(self.body)):
            return None
        ends = [0] if known < 0 else []
        ends += [match.end() for match in _EVENT_END.finditer(self.body, max(0, known - 3))]
        ends.append(len(self.body))
        return ends[bisect.bisect_left(ends, x=True, key=lambda end: done(bytes(self.body[:end])))]


def _as_text(items: list[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in items)


def without_bytes(text: str) -> str:
    """Return a message of the parser up to the first bytes that it quotes: they may hold a token."""
    return _QUOTED_BYTES.sub("", text)


# --- the connections to one origin ----------------------------------------------------------------------------------


class Transport:
    """The kept connections to one origin; exchanges may run in several threads, each on a connection of its own.

    `scheme` is http or https; `host` a name or an address, IPv6 without brackets. `clock` is monotonic and counts
    seconds; it times the exchanges and their timeouts. With https the certificate is checked against the system's
    authorities, or against those in `ca_file` (PEM) alone, or, with `insecure`, not at all. Environment variables
    that name proxies are not read.

    Raises:
        ValueError: the scheme or the port is not one.
    """

    def __init__(
        self,
        scheme: str,
        host: str,
        port: int,
        clock: Callable[[], float],
        *,
        ca_file: str | None = None,
        insecure: bool = False,
        max_idle: int = 64,
    ) -> None:
        if scheme not in _DEFAULT_PORTS:
            raise ValueError(f"the scheme is {scheme!r}; this transport speaks http and https")
        if not 0 < port < 65_536:
            raise ValueError(f"the port is {port}; ports are 1 to 65535")
        self._host = host
        self._port = port
        self._clock = clock
        self._is_tls = scheme == "https"
        self._ca_file = ca_file
        self._insecure = insecure
        self._max_idle = max_idle
        self._tls: ssl.SSLContext | None = None
        self._idle: deque[_Link] = deque()
        bracketed = f"[{host}]" if ":" in host else host
        # The default port is left out (RFC 9110 §4.2.3).
        self._authority = bracketed if port == _DEFAULT_PORTS[scheme] else f"{bracketed}:{port}"
        self._origin = f"{scheme}://{self._authority}"

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections. The transport can be used again."""
        while self._idle:
            self._idle.pop().sock.close()

    @property
    def origin(self) -> str:
        """The origin as text, default port left out."""
        return self._origin

    def headers_sent(self, method: str, headers: Headers, body: bytes) -> list[tuple[str, str]]:
        """Return the header fields as `exchange` writes them.

        Host comes first unless the caller gives one; Content-Length comes last unless the caller frames the body or
        the request has none and its method expects none (RFC 9110 §8.6).
        """
        names = {name.lower() for name, _ in headers}
        whole = list(headers) if "host" in names else [("Host", self._authority), *headers]
        if (body or method in {"POST", "PUT", "PATCH"}) and not names & {"content-length", "transfer-encoding"}:
            whole.append(("Content-Length", str(len(body))))
        return whole

    def exchange(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes,
        *,
        timeout: float,
        size_cap: int,
        done: Callable[[bytes], bool] | None = None,
    ) -> Received:
        """Send one request and return its answer, whatever its status.

        Args:
            method: the request method, in the case it is sent in.
            target: the request target, as it is sent: path and query.
            headers: fields in the order and case they are sent in, latin-1; see `headers_sent`.
            body: the body; empty for none.
            timeout: seconds for everything: connecting, writing, the whole answer. Resolving the name is not bounded.
            size_cap: bytes of the whole answer, header fields and framing included, beyond which it is not read on.
            done: for an answer of type text/event-stream: whether a body so far is enough. It is asked first about
                the empty body, and what is enough stays enough when more comes. If the stream then ends within 50 ms
                the whole body is returned; else the body is cut after the first event that was enough, and the
                connection is closed. Without `done` a stream is read to its end.

        Raises:
            TransportError: there is no complete answer; the subclasses say why. `sent` is None if nothing was sent.
        """
        attempt = _Exchange(self._origin, self._clock, timeout, size_cap)
        link: _Link | None = None
        try:
            request = _request(method, target, self.headers_sent(method, headers, body))
            link = self._quiet_link() or self._open(attempt)
            written = link.http.send(request) or b""
            if body:
                written += link.http.send(h11.Data(data=body)) or b""
            written += link.http.send(h11.EndOfMessage()) or b""
            attempt.write(link.sock, written)
            return attempt.read(link, done)
        except (h11.LocalProtocolError, UnicodeEncodeError) as error:
            raise UnsendableRequestError(reason=_own_words(error), **attempt.so_far()) from None
        except TimeoutError:
            raise AnswerTimedOutError(timeout=timeout, **attempt.so_far()) from None
        except ssl.SSLError as error:
            raise TlsError(reason=_tls_reason(error), **attempt.so_far()) from error
        except OSError as error:
            raise ConnectionClosedError(reset=True, **attempt.so_far()) from error
        finally:
            if link is not None:
                self._put_back(link)

    def _quiet_link(self) -> _Link | None:
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                return None
            if link.is_quiet():
                return link
            link.sock.close()

    def _put_back(self, link: _Link) -> None:
        if link.is_reusable() and len(self._idle) < self._max_idle:
            link.http.start_next_cycle()
            self._idle.append(link)
        else:
            link.sock.close()

    def _open(self, attempt: _Exchange) -> _Link:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise CannotConnectError(reason=error.strerror or "unknown name", **attempt.so_far()) from error
        except ValueError as error:  # not a name at all: a label too long, a NUL
            raise CannotConnectError(reason="the host is not a name", **attempt.so_far()) from error
        reason = "the name has no address"
        for family, kind, protocol, _, address in found:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(attempt.seconds_left())
                sock.connect(address)
                # Without this a body that follows its head in a write of its own waits for a delayed ACK, 40 ms.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return _Link(self._secured(sock, attempt) if self._is_tls else sock)
            except BaseException as error:
                sock.close()
                if isinstance(error, TimeoutError) or not isinstance(error, OSError):
                    raise
                reason = error.strerror or type(error).__name__
        raise CannotConnectError(reason=reason, **attempt.so_far())

    def _secured(self, sock: socket.socket, attempt: _Exchange) -> ssl.SSLSocket:
        try:
            if self._tls is None:
                self._tls = self._tls_context()
            return self._tls.wrap_socket(sock, server_hostname=self._host)
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; ValueError: the host is not a name
            raise TlsError(reason=_tls_reason(error), **attempt.so_far()) from error

    def _tls_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._ca_file)
        if self._insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _request(method: str, target: str, headers: Headers) -> h11.Request:
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return h11.Request(method=method.encode("latin-1"), target=target.encode("latin-1"), headers=fields)


def _own_words(error: h11.LocalProtocolError | UnicodeEncodeError) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "it has a character beyond latin-1"
    return without_bytes(str(error))


def _tls_reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted, {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
