"""The judge on one side, bare clients that send its bytes on the other."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2
from load import VoidError

from quenchz.driver import HttpSubject
from quenchz.engine import Profile, Runner
from quenchz.history import HistoryWriter
from quenchz.issuer import STRANGER
from quenchz.mint import Mint, SigningKey
from quenchz.reference import reference_target
from quenchz.tokens import TOKEN_LIFETIME, SuiteSource
from quenchz.transport import Received, Transport
from quenchz_spec.requirement import law

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from servers import Server

    from quenchz.issuer import SuiteIssuer

IDS = (*(f"QZ-AUD-{number}" for number in range(1, 8)), "QZ-DEN-1", "QZ-CRT-3")
SEED = 20_261_130


@dataclass(frozen=True)
class Sent:
    """One request of the judge and its answer."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    answer: Received

    @property
    def status(self) -> int:
        """The status of the answer."""
        return int(self.answer.start.split(" ")[1])

    def request(self, authority: str) -> bytes:
        """Return the request as bytes, to the host that is dialled."""
        lines = [f"{self.method} {self.target} HTTP/1.1", *(": ".join(f) for f in self.fields(authority)), "", ""]
        return "\r\n".join(lines).encode("latin-1") + self.body

    def fields(self, authority: str) -> list[tuple[str, str]]:
        """Return the header fields for another host."""
        return [(name, authority if name == "Host" else value) for name, value in self.headers]

    def response(self) -> bytes:
        """Return the answer as bytes, framed by its length."""
        kept = [f for f in self.answer.headers if f[0].lower() not in ("transfer-encoding", "content-length")]
        kept.append(("content-length", str(len(self.answer.body))))
        lines = [self.answer.start, *(": ".join(field) for field in kept), "", ""]
        return "\r\n".join(lines).encode("latin-1") + self.answer.body


class Recorder(Transport):
    """The judge's own transport, which also keeps what was sent."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__("http", host, port, clock=time.monotonic)
        self.exchanges: list[Sent] = []

    def exchange(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        *,
        timeout: float,
        size_cap: int,
        done: Callable[[bytes], bool] | None = None,
    ) -> Received:
        """Send one request, and keep it with its answer."""
        answer = super().exchange(method, target, headers, body, timeout=timeout, size_cap=size_cap, done=done)
        self.exchanges.append(Sent(method, target, self.headers_sent(method, headers, body), body, answer))
        return answer


@dataclass
class Run:
    """One measurement: so many requests, and what they cost on both sides."""

    requests: int
    seconds: float
    client_cpu: float
    server_cpu: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


class _Watch:
    """Takes the time and the CPU of this process and of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._server_cpu = server.cpu()
        self._client_cpu, self._began = time.process_time(), time.perf_counter()

    def stop(self, requests: int) -> Run:
        seconds, client_cpu = time.perf_counter() - self._began, time.process_time() - self._client_cpu
        return Run(requests, seconds, client_cpu, self._server.cpu() - self._server_cpu)


def judge(server: Server, issuer: SuiteIssuer, examples: int, transport: Transport | None = None) -> Run:
    """Judge `server` as `quenchz check --reference` does: the engine, new tokens, drawn examples, real HTTP.

    Connecting and reading the listings are part of it; importing is not.

    Raises:
        VoidError: an example did not hold, so that the run was not the one that is meant.
    """
    target = reference_target()
    watch = _Watch(server)
    mint = Mint(
        issuer.base_url,
        issuer.key,
        SigningKey.generate("quenchz-stranger-1"),
        STRANGER,
        target.resource,
        time.time,
        lifetime=TOKEN_LIFETIME,
    )
    history = HistoryWriter(None)
    own = transport or Transport("http", "127.0.0.1", server.port, clock=time.monotonic)
    with own:
        subject = HttpSubject(server.url, target, SuiteSource(issuer, mint, target), history, transport=own)
        subject.connect("2026-07-28")
        runner = Runner(subject, history, Profile("bench", examples, 0, 0, 0), SEED)
        for requirement in law():
            if requirement.id in IDS:
                runner.run(requirement)
        run = watch.stop(subject.spent.requests)
    judged_ids = {record.requirement for record in runner.records}
    if missing := set(IDS) - judged_ids:
        raise VoidError(f"{server.name}: nothing was judged for {', '.join(sorted(missing))}")
    for record in runner.records:
        if record.outcome not in ("held", "not-declared"):
            raise VoidError(f"{server.name}: {record.requirement} {record.row}: {record.outcome}, {record.detail}")
    return run


def record(server: Server, issuer: SuiteIssuer, examples: int) -> list[Sent]:
    """Return every request of the judge's run with its answer."""
    recorder = Recorder("127.0.0.1", server.port)
    judge(server, issuer, examples, recorder)
    return recorder.exchanges


def as_pairs(recorded: Sequence[Sent], server: Server) -> str:
    """Return a recording as the JSON that `playback.py` reads, addressed to the server that will play it."""
    authority = urlsplit(server.url).netloc
    pairs = [(sent.request(authority), sent.response()) for sent in recorded]
    return json.dumps([(request.decode("latin-1"), answer.decode("latin-1")) for request, answer in pairs])


def replay_httpx2(server: Server, recorded: Sequence[Sent]) -> Run:
    """Send the recorded requests with one httpx2.AsyncClient over one kept connection, and read the answers."""
    return asyncio.run(_replay_httpx2(server, recorded))


async def _replay_httpx2(server: Server, recorded: Sequence[Sent]) -> Run:
    url = urlsplit(server.url)
    origin = f"http://{url.netloc}"
    prepared = [(s.method, origin + s.target, s.fields(url.netloc), s.body) for s in recorded]
    statuses: list[int] = []
    async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=1), trust_env=False, timeout=15) as client:
        for name in list(client.headers):
            del client.headers[name]  # its own User-Agent and the like: the bytes are the judge's
        watch = _Watch(server)
        for method, address, headers, body in prepared:
            response = await client.request(method, address, headers=headers, content=body)
            statuses.append(response.status_code)
        run = watch.stop(len(statuses))
    _expect(server, recorded, statuses)
    return run


def replay_http_client(server: Server, recorded: Sequence[Sent]) -> Run:
    """Send the recorded requests with the standard library's http.client over one kept connection."""
    url = urlsplit(server.url)
    prepared = [(s.method, s.target, s.fields(url.netloc), s.body) for s in recorded]
    statuses: list[int] = []
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
    connection.connect()
    watch = _Watch(server)
    for method, target, headers, body in prepared:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    run = watch.stop(len(statuses))
    connection.close()
    _expect(server, recorded, statuses)
    return run


def _expect(server: Server, recorded: Sequence[Sent], statuses: Sequence[int]) -> None:
    if list(statuses) != [sent.status for sent in recorded]:
        raise VoidError(f"{server.name}: the bare client got other statuses than the judge")
