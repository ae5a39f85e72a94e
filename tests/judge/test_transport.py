"""The transport tells exactly what a server sent and when, and survives whatever that was."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quenchz.transport import (
    AnswerTimedOutError,
    AnswerTooLargeError,
    CannotConnectError,
    ConnectionClosedError,
    MalformedAnswerError,
    Received,
    TlsError,
    Transport,
    TransportError,
    UnsendableRequestError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Server:
    """A listening socket; `behave(server, sock, number)` runs in a thread for each connection, `number` counts them."""

    def __init__(self, behave: Callable[[Server, socket.socket, int], None], tls: ssl.SSLContext | None = None) -> None:
        self.behave = behave
        self.tls = tls
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.requests: list[bytes] = []
        self.connections = 0
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        while True:
            sock, _ = self.listener.accept()
            if self.over.is_set():
                sock.close()
                return
            self.connections += 1
            thread = threading.Thread(target=self._run, args=(sock, self.connections))
            self.threads.append(thread)
            thread.start()

    def _run(self, sock: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError), sock:
            sock.settimeout(10)
            if self.tls is None:
                self.behave(self, sock, number)
            else:
                with self.tls.wrap_socket(sock, server_side=True) as secured:
                    self.behave(self, secured, number)

    def request(self, sock: socket.socket) -> bytes:
        """Read one request to its end; empty when the client closed."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = sock.recv(65536)
            if not more:
                return b""
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = next((int(ln[15:]) for ln in head.split(b"\r\n") if ln.lower().startswith(b"content-length:")), 0)
        while len(body) < length:
            body += sock.recv(65536)
        self.requests.append(head + b"\r\n\r\n" + body)
        return self.requests[-1]

    def close(self) -> None:
        self.over.set()
        socket.create_connection(("127.0.0.1", self.port)).close()
        self.threads[0].join()
        self.listener.close()
        for thread in self.threads[1:]:
            thread.join()


@contextlib.contextmanager
def serving(
    behave: Callable[[Server, socket.socket, int], None],
    clock: Callable[[], float] = time.monotonic,
    max_idle: int = 64,
) -> Iterator[tuple[Server, Transport]]:
    server = Server(behave)
    try:
        with Transport("http", "127.0.0.1", server.port, clock, max_idle=max_idle) as transport:
            yield server, transport
    finally:
        server.close()


def answering(*answers: bytes, then_close: bool = False) -> Callable[[Server, socket.socket, int], None]:
    """Answer the requests of each connection in turn, the last answer for ever."""

    def behave(server: Server, sock: socket.socket, number: int) -> None:
        left = list(answers)
        while server.request(sock):
            sock.sendall(left.pop(0) if len(left) > 1 else left[0])
            if then_close:
                return

    return behave


def get(transport: Transport, **other: object) -> Received:
    options: dict[str, object] = {"timeout": 5.0, "size_cap": 1 << 20, **other}
    return transport.exchange("GET", "/mcp", [], b"", **options)  # type: ignore[arg-type]


def once(answer: bytes, *, then_close: bool = True, **other: object) -> Received:
    with serving(answering(answer, then_close=then_close)) as (_, transport):
        return get(transport, **other)


# --- what is received -----------------------------------------------------------------------------------------------


def test_header_order_case_and_repetition_are_kept() -> None:
    answer = once(
        b"HTTP/1.1 403 Not  For You\r\nX-b: 1\r\nX-A:\t two  words \r\nx-B: \xe9\r\nTransfer-Encoding: Chunked\r\n\r\n"
        + chunk(b"de")
        + chunk(b"ny")
        + b"0\r\nLate: 1\r\n\r\n"
    )
    assert answer.start == "HTTP/1.1 403 Not  For You"
    assert answer.headers == (("X-b", "1"), ("X-A", "two  words"), ("x-B", "é"), ("Transfer-Encoding", "Chunked"))
    assert answer.body == b"deny"
    assert answer.trailers == (("Late", "1"),)


def test_two_equal_content_lengths_are_both_reported() -> None:
    answer = once(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\ncontent-length: 2\r\n\r\nok")
    assert answer.headers == (("Content-Length", "2"), ("content-length", "2"))


def test_a_folded_header_field_is_one_field() -> None:
    answer = once(b"HTTP/1.1 200 OK\r\nX-Long: one\r\n\ttwo\r\n  three\r\nContent-Length: 0\r\n\r\n")
    assert answer.headers[0] == ("X-Long", "one two three")


def test_a_compressed_body_stays_compressed() -> None:
    answer = once(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x00\xff")
    assert answer.body == b"\x1f\x8b\x00\xff"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\nextra", b""),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more", b"ok"),
        (b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 307 Away\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", b""),
    ],
)
def test_each_way_to_end_an_answer_is_understood(answer: bytes, body: bytes) -> None:
    received = once(answer)
    assert received.body == body
    assert received.start.encode() == answer.partition(b"\n")[0].rstrip(b"\r")


def test_a_head_request_has_no_body() -> None:
    with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")) as (server, transport):
        for _ in range(2):
            answer = transport.exchange("HEAD", "/", [], b"", timeout=5, size_cap=1000)
            assert answer.headers == (("Content-Length", "9"),)
        assert server.connections == 1


# --- what is sent ---------------------------------------------------------------------------------------------------


def test_the_request_is_written_in_the_order_and_case_given() -> None:
    with serving(answering(OK)) as (server, transport):
        headers = [("x-B", "1"), ("Authorization", "Bearer t"), ("X-a", "é")]
        transport.exchange("POST", "/mcp?x=1", headers, b"body", timeout=5, size_cap=1000)
        assert server.requests == [
            f"POST /mcp?x=1 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nx-B: 1\r\nAuthorization: Bearer t\r\n"
            "X-a: é\r\nContent-Length: 4\r\n\r\nbody".encode("latin-1")
        ]
        assert transport.headers_sent("POST", headers, b"body")[0] == ("Host", f"127.0.0.1:{server.port}")


def test_a_host_field_of_the_caller_stands_alone() -> None:
    with serving(answering(OK)) as (server, transport):
        transport.exchange("GET", "/", [("hOst", "other.example")], b"", timeout=5, size_cap=1000)
        assert server.requests == [b"GET / HTTP/1.1\r\nhOst: other.example\r\n\r\n"]


@pytest.mark.parametrize(
    ("scheme", "host", "port", "authority"),
    [
        ("http", "a.example", 80, "a.example"),
        ("https", "a.example", 443, "a.example"),
        ("https", "a.example", 80, "a.example:80"),
        ("http", "::1", 8931, "[::1]:8931"),
    ],
)
def test_the_host_field_leaves_the_default_port_out(scheme: str, host: str, port: int, authority: str) -> None:
    transport = Transport(scheme, host, port, time.monotonic)
    assert transport.headers_sent("GET", [], b"") == [("Host", authority)]
    assert transport.origin == f"{scheme}://{authority}"


@pytest.mark.parametrize(
    ("method", "target", "headers", "body"),
    [
        ("GET", "/", [("Authorization", "Bearer secret-one\r\nX: y")], b""),
        ("GET", "/", [("Bad Name", "secret-one")], b""),
        ("GET", "/a b", [], b""),
        ("G\r\n", "/", [], b""),
        ("GET", "/", [("X", "€")], b""),
        ("POST", "/", [("Content-Length", "1")], b"secret-one"),
        ("GET", "/", [("Host", "a"), ("Host", "b")], b""),
    ],
)
def test_a_request_that_is_not_http_is_never_sent(
    method: str, target: str, headers: list[tuple[str, str]], body: bytes
) -> None:
    with serving(answering(OK)) as (server, transport):
        with pytest.raises(UnsendableRequestError) as caught:
            transport.exchange(method, target, headers, body, timeout=5, size_cap=1000)
        assert caught.value.sent is None
        assert "secret-one" not in str(caught.value)
        assert server.requests == []


# --- connections ----------------------------------------------------------------------------------------------------


def test_a_connection_is_kept() -> None:
    with serving(answering(OK)) as (server, transport):
        for _ in range(5):
            assert get(transport).body == b"ok"
        assert (server.connections, len(server.requests)) == (1, 5)


def test_no_more_connections_are_kept_idle_than_allowed() -> None:
    with serving(answering(OK), max_idle=0) as (server, transport):
        for _ in range(3):
            get(transport)
        assert server.connections == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother",
    ],
    ids=["asked to close", "HTTP/1.0", "bytes after the answer"],
)
def test_a_connection_that_cannot_be_trusted_again_is_not_kept(answer: bytes) -> None:
    with serving(answering(answer)) as (server, transport):
        assert [get(transport).body for _ in range(3)] == [b"ok"] * 3
        assert server.connections == 3


@pytest.mark.parametrize("farewell", [b"", b"HTTP/1.1 408 Timeout\r\nContent-Length: 0\r\n\r\n"], ids=["none", "408"])
def test_an_idle_connection_that_the_server_ended_is_replaced_before_anything_is_written(farewell: bytes) -> None:
    said = threading.Event()
    leave = threading.Event()

    def behave(server: Server, sock: socket.socket, number: int) -> None:
        server.request(sock)
        sock.sendall(OK)
        if number == 1:
            leave.wait(10)
            sock.sendall(farewell)
            sock.shutdown(socket.SHUT_WR)
            said.set()

    with serving(behave) as (server, transport):
        get(transport)
        leave.set()
        said.wait(10)
        assert get(transport).body == b"ok"
        assert (server.connections, len(server.requests)) == (2, 2)


def test_a_request_is_never_sent_twice() -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        server.request(sock)
        sock.sendall(OK)
        server.request(sock)  # the second request on the kept connection is read, and not answered

    with serving(behave) as (server, transport):
        get(transport)
        with pytest.raises(ConnectionClosedError, match="no bytes came") as caught:
            get(transport)
        assert caught.value.sent is not None
        assert (server.connections, len(server.requests)) == (1, 2)


def test_an_answer_given_before_the_request_was_read_is_received() -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        sock.recv(10)
        sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")  # the rest, unread, resets the connection

    with serving(behave) as (_, transport):
        answer = transport.exchange("POST", "/", [], b"x" * 20_000_000, timeout=5, size_cap=1000)
        assert answer.start == "HTTP/1.1 413 Too Large"


def test_threads_share_a_transport_and_get_their_own_answers() -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        while request := server.request(sock):
            body = request.split(b" ")[1]
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with serving(behave) as (server, transport):
        wrong: list[str] = []

        def ask(name: int) -> None:
            for n in range(30):
                target = f"/{name}/{n}"
                answer = transport.exchange("GET", target, [], b"", timeout=5, size_cap=1000)
                if answer.body != target.encode():
                    wrong.append(target)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(server.requests) == 240
        assert server.connections <= 8


# --- time -----------------------------------------------------------------------------------------------------------


class Ticks:
    """A clock that moves by a millisecond each time somebody looks."""

    def __init__(self) -> None:
        self.looks = 0
        self.changed = threading.Condition()

    def __call__(self) -> float:
        with self.changed:
            self.looks += 1
            self.changed.notify_all()
            return self.looks / 1000

    def await_looks(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.looks >= count, 10)


def test_the_moments_enclose_what_the_server_did() -> None:
    clock = Ticks()
    read, wrote = 0, 0

    def behave(server: Server, sock: socket.socket, number: int) -> None:
        nonlocal read, wrote
        server.request(sock)
        read = clock.looks
        sock.sendall(OK[:-1])
        clock.await_looks(read + 2)  # the client looks before and after it reads, so it has read
        wrote = clock.looks
        sock.sendall(OK[-1:])
        server.over.wait(10)

    with serving(behave, clock) as (server, transport):
        answer = get(transport, timeout=60.0)
        server.over.set()
        assert answer.sent * 1000 <= read < answer.first * 1000 <= wrote < answer.last * 1000


INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"


@pytest.mark.parametrize("length", [len(INTERIM), 10], ids=["whole", "in part"])
def test_an_interim_answer_is_not_the_first_byte(length: int) -> None:
    clock = Ticks()
    decided = 0

    def behave(server: Server, sock: socket.socket, number: int) -> None:
        nonlocal decided
        server.request(sock)
        read = clock.looks
        sock.sendall(INTERIM[:length])
        clock.await_looks(read + 2)
        decided = clock.looks
        sock.sendall(INTERIM[length:] + OK)
        server.over.wait(10)

    with serving(behave, clock) as (server, transport):
        answer = get(transport, timeout=60.0)
        server.over.set()
        assert answer.start == "HTTP/1.1 200 OK"
        assert answer.headers == (("Content-Length", "2"),)
        assert decided < answer.first * 1000


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "no bytes came"),
        (b"HTTP/1.1 200", "12 bytes, an incomplete head came"),
        (OK[:-2], "headers only came"),
        (OK[:-1], "headers and 1 body bytes came"),
    ],
)
def test_a_timeout_says_how_much_came(said: bytes, words: str) -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        server.request(sock)
        sock.sendall(said)
        server.over.wait(10)

    with serving(behave) as (server, transport):
        with pytest.raises(AnswerTimedOutError) as caught:
            get(transport, timeout=0.15)
        server.over.set()
        assert str(caught.value).endswith(f"within 0.15 s: {words}")
        assert caught.value.arrived == len(said)
        assert caught.value.sent is not None
        assert caught.value.ended - caught.value.sent < 2


def test_trickling_comments_do_not_defeat_the_timeout() -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        server.request(sock)
        sock.sendall(SSE)
        while not server.over.wait(0.01):
            sock.sendall(chunk(b": ping\r\n\r\n"))

    with serving(behave) as (_, transport):
        started = time.monotonic()
        with pytest.raises(AnswerTimedOutError) as caught:
            get(transport, timeout=0.3, done=lambda body: b"data:" in body)
        assert time.monotonic() - started < 2
        assert caught.value.partial is not None
        assert caught.value.partial.body.startswith(b": ping\r\n\r\n")


def test_a_server_that_does_not_read_does_not_defeat_the_timeout() -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        server.over.wait(10)

    with serving(behave) as (server, transport):
        with pytest.raises(AnswerTimedOutError):
            transport.exchange("POST", "/", [], b"x" * 30_000_000, timeout=0.3, size_cap=1000)
        server.over.set()


# --- streams --------------------------------------------------------------------------------------------------------


def has_data(body: bytes) -> bool:
    return b"data: " in body


def test_a_stream_is_cut_after_the_first_event_that_is_enough() -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        server.request(sock)
        sock.sendall(SSE + chunk(b": ping\n\n") + chunk(b"data: 1\n\n") + chunk(b"data: 2\n\n"))
        server.over.wait(10)

    with serving(behave) as (server, transport):
        assert get(transport, done=has_data).body == b": ping\n\ndata: 1\n\n"
        assert get(transport, done=has_data).body == b": ping\n\ndata: 1\n\n"
        server.over.set()
        assert server.connections == 2


def test_a_stream_that_ends_by_itself_is_whole_and_its_connection_is_kept() -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        while server.request(sock):
            sock.sendall(SSE + chunk(b"data: 1\n\n"))
            sock.sendall(chunk(b": bye\n\n") + b"0\r\n\r\n")

    with serving(behave) as (server, transport):
        for _ in range(3):
            assert get(transport, done=has_data).body == b"data: 1\n\n: bye\n\n"
        assert server.connections == 1


def test_the_headers_of_a_silent_stream_can_be_enough() -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        server.request(sock)
        sock.sendall(SSE)
        server.over.wait(10)

    with serving(behave) as (server, transport):
        answer = get(transport, done=lambda _: True)
        server.over.set()
        assert (answer.start, answer.body) == ("HTTP/1.1 200 OK", b"")


def test_what_goes_wrong_after_enough_of_a_stream_does_not_matter() -> None:
    answer = once(SSE + chunk(b"data: 1\n\n") + b"no chunk size\r\n", done=has_data)
    assert answer.body == b"data: 1\n\n"


def test_a_stream_without_a_question_is_read_to_its_end() -> None:
    assert once(SSE + chunk(b"data: 1\n\n") + b"0\r\n\r\n").body == b"data: 1\n\n"


def test_an_answer_that_is_no_stream_is_read_to_its_end_whatever_is_enough() -> None:
    assert once(OK, done=lambda _: True).body == b"ok"


# --- hostile bytes --------------------------------------------------------------------------------------------------

FRAMINGS = {
    "content-length": OK,
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + chunk(b"ab")
    + chunk(b"c")
    + b"0\r\nT: 1\r\n\r\n",
    "interim first": b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
}


@pytest.mark.parametrize("valid", FRAMINGS.values(), ids=FRAMINGS.keys())
def test_a_close_at_every_byte_of_an_answer_is_told(valid: bytes) -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        server.request(sock)
        sock.sendall(valid[: number - 1])

    with serving(behave) as (_, transport):
        for length in range(len(valid)):
            with pytest.raises(ConnectionClosedError) as caught:
                get(transport)
            assert caught.value.arrived == length
        assert get(transport).start == "HTTP/1.1 200 OK"


def test_a_reset_is_told() -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        server.request(sock)
        sock.sendall(OK[:-1])
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")

    with (
        serving(behave) as (_, transport),
        pytest.raises(ConnectionClosedError, match="reset the connection") as caught,
    ):
        get(transport)
    assert caught.value.reset


MALFORMED = {
    "garbage": b"\x00\xff\x16\x03garbage\r\n\r\n",
    "another protocol": b"220 mail.example ESMTP\r\n\r\n",
    "a leading blank line": b"\r\nHTTP/1.1 200 OK\r\n\r\n",
    "no status": b"HTTP/1.1\r\n\r\n",
    "status zero": b"HTTP/1.1 000 Zero\r\n\r\n",
    "four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a NUL in a field": b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n",
    "a NUL in a name": b"HTTP/1.1 200 OK\r\nX\x00: a\r\n\r\n",
    "a field without colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "a fold without field": b"HTTP/1.1 200 OK\r\n X: a\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "an endless length": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 400 + b"\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a wordy chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nab\r\n",
    "a negative chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n",
    "a chunk too long": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "an unknown coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    "a protocol switch": b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 40_000,
    "an endless line": b"HTTP/1.1 200 " + b"y" * 200_000,
    "an endless chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 200_000,
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_not_http_is_called_malformed(answer: bytes) -> None:
    with pytest.raises(MalformedAnswerError) as caught:
        once(answer, then_close=False)
    assert caught.value.code == "QZ_E_MALFORMED"


def test_no_error_text_holds_a_byte_that_the_server_chose() -> None:
    told: list[str] = []
    for answer in [*MALFORMED.values(), OK]:
        with contextlib.suppress(TransportError):
            try:
                once(answer.replace(b"X", b"secret-one").replace(b"HTTP", b"secret-one"), then_close=False)
            except TransportError as error:
                told += [str(error), repr(error)]
                raise
    assert len(told) == 2 * (len(MALFORMED) + 1)
    assert not [text for text in told if "secret" in text]


def test_an_answer_beyond_the_cap_names_its_size_and_the_cap() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + b"x" * 500
    assert len(once(answer, size_cap=len(answer)).body) == 500
    with pytest.raises(AnswerTooLargeError) as caught:
        once(answer, size_cap=100)
    assert caught.value.cap == 100
    assert 100 < caught.value.arrived <= len(answer)
    assert str(caught.value).endswith(f"is larger than 100 bytes: {caught.value.arrived} bytes had come")


def test_endless_interim_answers_meet_the_cap() -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        server.request(sock)
        while True:
            sock.sendall(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)

    with serving(behave) as (_, transport), pytest.raises(AnswerTooLargeError):
        get(transport, size_cap=100_000)


@pytest.fixture(scope="module")
def anything() -> Iterator[tuple[list[bytes], Transport]]:
    """A server that answers with the last of a list of bytes, and closes."""
    answers: list[bytes] = []

    def behave(server: Server, sock: socket.socket, number: int) -> None:
        server.request(sock)
        sock.sendall(answers[-1])

    with serving(behave) as (_, transport):
        yield answers, transport


PIECES = [b"HTTP/1.1 ", b"200", b"100", b" OK", b"\r\n", b"\n", b"\r\n\r\n", b"Content-Length:", b" 3", b"-1", b"\x00"]
PIECES += [
    b"Transfer-Encoding: chunked",
    b"Content-Type: text/event-stream",
    b"0\r\n",
    b"3\r\nabc\r\n",
    b" ",
    b":",
    b"\t",
]
PIECES += [b"data: 1\n\n", b"X: y\r\n", b"\r", b"ff"]
HOSTILE = (
    st.binary(max_size=60)
    | st.lists(st.sampled_from(PIECES) | st.binary(max_size=2), max_size=15).map(b"".join)
    | st.lists(st.sampled_from(PIECES), max_size=12).map(lambda tail: b"HTTP/1.1 200 OK\r\n" + b"".join(tail))
    | st.tuples(st.sampled_from(sorted(FRAMINGS.values())), st.integers(0, 90), st.binary(max_size=3)).map(
        lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + 1 :]
    )
)


@settings(max_examples=400, deadline=None, database=None)
@given(answer=HOSTILE, is_enough=st.booleans())
@example(answer=b"\n\r\n", is_enough=False)
@example(answer=SSE + b"0\r\n\r\n", is_enough=True)
def test_hostile_bytes_raise_nothing_but_transport_errors(
    anything: tuple[list[bytes], Transport], answer: bytes, is_enough: bool
) -> None:
    answers, transport = anything
    answers.append(answer)
    outcome: Received | TransportError
    try:
        outcome = get(transport, timeout=5.0, size_cap=10_000, done=lambda _: is_enough)
    except TransportError as error:
        outcome = error
    if isinstance(outcome, Received):
        assert outcome.start.startswith("HTTP/1.")
        assert outcome.sent <= outcome.first <= outcome.last
    else:
        assert not isinstance(outcome, AnswerTimedOutError | UnsendableRequestError)
        assert outcome.sent is not None
        assert outcome.arrived <= len(answer)


# --- no connection --------------------------------------------------------------------------------------------------


def test_a_closed_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(CannotConnectError) as caught:
        get(Transport("http", "127.0.0.1", port, time.monotonic))
    assert str(caught.value) == f"cannot connect to http://127.0.0.1:{port}: Connection refused"
    assert caught.value.sent is None


@pytest.mark.parametrize("host", ["a" * 64 + ".invalid", "..", "no-such-host.invalid"])
def test_a_host_that_is_no_name_is_told(host: str) -> None:
    with pytest.raises(CannotConnectError) as caught:
        get(Transport("http", host, 80, time.monotonic))
    assert caught.value.sent is None


@pytest.mark.parametrize(("scheme", "port"), [("ftp", 21), ("http", 0), ("https", 65_536)])
def test_an_origin_that_cannot_be_is_refused_at_once(scheme: str, port: int) -> None:
    with pytest.raises(ValueError, match=r"the (scheme|port) is"):
        Transport(scheme, "a.example", port, time.monotonic)


# --- TLS ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "transport test")])
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    pem, pkcs8, unencrypted = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(key.private_bytes(pem, pkcs8, unencrypted) + built.public_bytes(pem))
    return path


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = Server(answering(OK), context)
    yield server
    server.close()


def test_a_certificate_of_a_given_authority_is_trusted_and_the_connection_kept(
    tls_server: Server, certificate: Path
) -> None:
    with Transport("https", "127.0.0.1", tls_server.port, time.monotonic, ca_file=str(certificate)) as transport:
        assert [get(transport).body for _ in range(3)] == [b"ok"] * 3
    assert tls_server.connections == 1


def test_a_certificate_of_an_unknown_authority_is_refused_before_anything_is_sent(tls_server: Server) -> None:
    with pytest.raises(TlsError, match="the certificate is not trusted") as caught:
        get(Transport("https", "127.0.0.1", tls_server.port, time.monotonic))
    assert caught.value.sent is None
    assert tls_server.requests == []


def test_a_certificate_for_another_name_is_refused(tls_server: Server, certificate: Path) -> None:
    with pytest.raises(TlsError, match="the certificate is not trusted"):
        get(Transport("https", "localhost", tls_server.port, time.monotonic, ca_file=str(certificate)))


def test_insecure_means_that_no_certificate_is_checked(tls_server: Server) -> None:
    with Transport("https", "localhost", tls_server.port, time.monotonic, insecure=True) as transport:
        assert get(transport).body == b"ok"


def test_a_server_that_speaks_no_tls_is_told() -> None:
    def behave(server: Server, sock: socket.socket, number: int) -> None:
        sock.recv(1000)
        sock.sendall(OK)

    server = Server(behave)
    try:
        with pytest.raises(TlsError):
            get(Transport("https", "127.0.0.1", server.port, time.monotonic))
    finally:
        server.close()


def test_an_authority_file_that_is_missing_is_told(tls_server: Server, tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="No such file"):
        get(Transport("https", "127.0.0.1", tls_server.port, time.monotonic, ca_file=str(tmp_path / "none.pem")))
