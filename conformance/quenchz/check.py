"""`quenchz check` and `quenchz judge`: one run from configuration to report."""

from __future__ import annotations

import dataclasses
import os
import secrets
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO
from urllib.parse import urlsplit

from quenchz.authorization_server import AuthorizationServer, Client, ClientCredentialsSource
from quenchz.driver import HttpSubject, Limits, UnreachableError, open_transport
from quenchz.engine import PROFILES, Profile, Runner, is_slow
from quenchz.history import ExampleRecord, HistoryWriter, read_history
from quenchz.issuer import SuiteIssuer
from quenchz.replay import replay
from quenchz.report import Report
from quenchz.target_file import Configuration, TargetFileError
from quenchz.tokens import (
    CommandSource,
    FileSource,
    IssuerSource,
    SuiteSource,
    TokenSource,
    first_tenant,
    read_tokens_file,
)
from quenchz.verdicts import Finding, Verdict, exit_code, find
from quenchz.web import is_loopback
from quenchz_spec import LAW
from quenchz_spec.codec import encode
from quenchz_spec.outcomes import ControlError, NotDeclaredError, UntestableError
from quenchz_spec.requirement import Invariant, Requirement, law
from quenchz_spec.schemas import only_reads

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from quenchz_spec.vocabulary import TokenRecipe

PER_EXAMPLE = {Invariant.AUDIENCE: 20, Invariant.DENIALS: 6, Invariant.RESERVES: 60, Invariant.CERTIFICATES: 3}
"""Requests that one example makes at most, for the plan."""


class UsageError(ValueError):
    """A command line or a configuration that cannot be run."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a run is asked to do."""

    profile: Profile = PROFILES["gate"]
    seed: int = 0
    level: str = "quenchz"
    protocol: str = ""
    invariants: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    history: Path | None = None
    dry_run: bool = False
    ca_file: str | None = None
    insecure: bool = False
    replay: str = ""


class Progress:
    """What a run says while it goes on: one changing line on a terminal, a line a requirement elsewhere."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._tty = stream.isatty()
        self._quiet = quiet
        self._at = 0.0
        self._said = ""

    def line(self, text: str) -> None:
        """Say something that stays."""
        if not self._quiet:
            self._clear()
            self._stream.write(text + "\n")
            self._stream.flush()

    def step(self, text: str, requests: int) -> None:
        """Say where the run is."""
        now = time.monotonic()
        if self._quiet or now - self._at < (0.1 if self._tty else 5.0):
            return
        self._at = now
        if self._tty:
            self._clear()
            self._said = f"{requests} requests, {text}"[:100]
            self._stream.write(self._said)
        else:
            self._stream.write(f"... {requests} requests, {text}\n")
        self._stream.flush()

    def _clear(self) -> None:
        if self._said:
            self._stream.write("\r" + " " * len(self._said) + "\r")
            self._said = ""


def new_seed() -> int:
    """Return a seed for a run that was given none."""
    return secrets.randbelow(2**32)


def selected(invariants: Sequence[str], ids: Sequence[str]) -> list[Requirement]:
    """Return the requirements that a command line selects, all by default.

    Raises:
        UsageError: a name selects nothing.
    """
    known = law()
    words = {invariant.word: invariant for invariant in Invariant}
    for word in invariants:
        if word not in words:
            raise UsageError(f"--invariant {word}: expected one of {', '.join(words)}")
    by_id = {requirement.id: requirement for requirement in known}
    for name in ids:
        if name not in by_id:
            raise UsageError(f"--id {name}: no such requirement; `quenchz list` shows all {len(by_id)}")
    return [
        requirement
        for requirement in known
        if (not invariants and not ids) or requirement.id in ids or requirement.invariant.word in invariants
    ]


@contextmanager
def suite_source(target_of: Configuration, issuer: SuiteIssuer) -> Generator[TokenSource, None, None]:
    """Yield the token source of the suite's own issuer."""
    yield SuiteSource(issuer, issuer.mint(target_of.target.resource), target_of.target)


@contextmanager
def token_source(configuration: Configuration, *, ca_file: str | None = None) -> Generator[TokenSource, None, None]:
    """Yield where the tokens of a configuration come from.

    Raises:
        TargetFileError: the source is not described well enough, or a secret is not in the environment.
    """
    target = configuration.target
    if configuration.source == "suite-issuer" and not configuration.issuer:
        host, _, port = configuration.listen.rpartition(":")
        if not port.isdigit() or host not in ("127.0.0.1", "localhost"):
            raise TargetFileError(
                f"tokens.listen is {configuration.listen!r}; expected 127.0.0.1:PORT, where the target looks for keys, "
                "or give tokens.issuer, a running `quenchz issuer`"
            )
        with ExitStack() as stack:
            try:
                issuer = stack.enter_context(SuiteIssuer(port=int(port)))
            except (OSError, OverflowError) as error:
                reason = error.strerror if isinstance(error, OSError) else "ports are 1 to 65535"
                raise TargetFileError(
                    f"tokens.listen is {configuration.listen!r}; {reason}: give another port"
                ) from None
            yield SuiteSource(issuer, issuer.mint(target.resource), target, first_tenant())
    elif configuration.source == "suite-issuer":
        yield IssuerSource(configuration.issuer, target, first_tenant())
    elif configuration.source == "client-credentials":
        yield _client_credentials(configuration, ca_file)
    elif configuration.source == "command":
        yield CommandSource(configuration.command, target, configuration.folder)
    elif configuration.tokens_file is not None:
        yield FileSource(read_tokens_file(configuration.tokens_file), target.resource)
    else:
        yield NoSource()


def _client_credentials(configuration: Configuration, ca_file: str | None) -> TokenSource:
    clients: dict[str, Client] = {}
    for client in configuration.clients:
        secret = os.environ.get(client.secret_env, "")
        if not secret:
            # The name is not shown: somebody may have written the secret itself there.
            raise TargetFileError(
                f"callers.{client.caller}.client_secret_env names an environment variable that is not set; export it"
            )
        clients[client.caller] = Client(client.id, secret)
    server = AuthorizationServer(
        issuer=configuration.issuer,
        token_endpoint=configuration.token_endpoint,
        auth_method=configuration.auth_method,
        ca_file=ca_file,
    )
    return ClientCredentialsSource(server, clients, configuration.target)


class NoSource(TokenSource):
    """No tokens at all."""

    def token(self, recipe: TokenRecipe, domain: int) -> str:  # noqa: ARG002 - the form of TokenSource
        """Raise: there is no token of any kind."""
        raise UntestableError(
            "there is no token to begin with", "give --tokens-file, or tokens.source in a target file (--target)"
        )


def authorize(configuration: Configuration) -> None:
    """Make sure that the target may be tested at all.

    Raises:
        UsageError: it is not on loopback and nobody says that its owner agreed.
    """
    host = urlsplit(configuration.url).hostname or ""
    if not is_loopback(host) and not configuration.owner_authorized:
        raise UsageError(
            f"{host} is not this machine: set owner_authorized = true in the target file if its owner agreed"
        )


def check(configuration: Configuration, source: TokenSource, options: Options, progress: Progress) -> Report | None:
    """Run the selected requirements against a target and return the report; None after a dry run.

    Raises:
        UsageError: the target may not be tested, or the selection selects nothing.
    """
    authorize(configuration)
    requirements = selected(options.invariants, options.ids)
    began = time.monotonic()
    history = HistoryWriter(options.history)
    subject = HttpSubject(
        configuration.url,
        configuration.target,
        source,
        history,
        limits=options.limits,
        announce=progress.line,
        transport=open_transport(
            configuration.url, clock=time.monotonic, ca_file=options.ca_file, insecure=options.insecure
        ),
    )
    notes: list[str] = ["TLS certificates were not checked (--insecure)."] if options.insecure else []
    runner = Runner(
        subject,
        history,
        options.profile,
        options.seed,
        lambda text: progress.step(text, subject.spent.requests),
    )
    unreached = ""
    interrupted = False
    noisy: dict[str, str] = {}
    try:
        try:
            subject.connect(options.protocol or configuration.protocol)
        except UnreachableError as error:
            unreached = str(error)
        history.header(
            law=LAW,
            url=configuration.url,
            wire=subject.wire,
            seed=options.seed,
            profile=options.profile.name,
            level=options.level,
            ids=[requirement.id for requirement in requirements],
            allowed=list(options.allowed),
            target=encode(configuration.target),
        )
        if unreached:
            progress.line(f"No verdict is possible: {unreached}.")
        else:
            _plan(subject, requirements, options, progress)
            if options.dry_run:
                return None
            interrupted = _run_all(runner, subject, requirements, progress)
            if not interrupted and not subject.is_alive():
                notes.append("The server stopped answering: the sanity probe at the end of the run failed.")
                unreached = "the sanity probe at the end failed"
            if not interrupted and not unreached:
                noisy = _noise_after(subject)
    finally:
        history.close()
        subject.close()
    reason = "interrupted" if interrupted else unreached
    findings = _findings(requirements, runner.records, reason, noisy)
    return _report(configuration.url, subject, findings, options, time.monotonic() - began, not unreached, notes)


def _run_all(runner: Runner, subject: HttpSubject, requirements: Sequence[Requirement], progress: Progress) -> bool:
    """Run every requirement; true when the user interrupted."""
    try:
        for requirement in requirements:
            before = subject.spent.requests
            records = runner.run(requirement)
            finding = find(requirement, records)
            spent = subject.spent.requests - before
            counted = f"{finding.examples} examples, {spent} requests"
            progress.line(f"{requirement.id:<10} {finding.verdict.value:<14} {counted}")
    except KeyboardInterrupt:
        progress.line("Interrupted: what is known so far follows.")
        return True
    return False


def _noise_after(subject: HttpSubject) -> dict[str, str]:
    """Learn each mask again, and return for each kind how the noise grew beyond what was masked."""
    grown: dict[str, str] = {}
    for kind, before in list(subject.masks.items()):
        try:
            after = subject.learn(f"mask-after:{kind}", kind)
        except (UntestableError, ControlError, NotDeclaredError) as error:
            grown[kind] = str(error)
            continue
        new = (set(after.values) - set(before.values)) | (set(after.presence) - set(before.presence))
        if new:
            grown[kind] = f"noisy: {', '.join(sorted(new))} began to vary during the run"
    return grown


_COMPARES = {"QZ-DEN-1": "tools", "QZ-DEN-2": "prompts", "QZ-DEN-3": "resources"}


def _findings(
    requirements: Sequence[Requirement], records: Sequence[ExampleRecord], reason: str, noisy: dict[str, str]
) -> list[Finding]:
    findings: list[Finding] = []
    for requirement in requirements:
        own = [record for record in records if record.requirement == requirement.id]
        if own:
            findings.append(find(requirement, own, noisy=noisy.get(_COMPARES.get(requirement.id, ""), "")))
        else:
            why = reason or "no example was recorded"
            findings.append(Finding(requirement, Verdict.UNTESTABLE, why, {}, 0, 0, 0))
    return findings


def _report(
    url: str,
    subject: HttpSubject,
    findings: list[Finding],
    options: Options,
    seconds: float,
    reached: bool,
    notes: list[str],
) -> Report:
    spent = subject.spent
    if spent.redacted:
        notes.append(f"{spent.redacted} answers echoed a token; it is shown as asterisks.")
    if spent.retried:
        notes.append(f"{spent.retried} requests were sent a second time after a transport error.")
    return Report(
        url=url,
        server=subject.server,
        wire=subject.wire,
        seed=options.seed,
        profile=options.profile.name,
        level=options.level,
        findings=findings,
        exit=exit_code(findings, options.level, reached=reached, allowed=options.allowed),
        reached=reached,
        requests=spent.requests,
        charged=spent.charged,
        waited=spent.waited,
        seconds=seconds,
        masks={kind: mask.words for kind, mask in subject.masks.items()},
        notes=tuple(notes),
        replay=options.replay,
    )


def _plan(subject: HttpSubject, requirements: Sequence[Requirement], options: Options, progress: Progress) -> None:
    """Print what the run will cost at most before its first example."""
    profile, target, catalogue = options.profile, subject.target, subject.catalogue
    examples: dict[Invariant, int] = dict.fromkeys(Invariant, 0)
    for requirement in requirements:
        drawn = profile.slow_examples if is_slow(requirement) else profile.examples
        examples[requirement.invariant] += len(requirement.rows) + drawn
    most = sum(count * PER_EXAMPLE[invariant] for invariant, count in examples.items())
    called = {observing.tool for observing in target.observations} | set(target.may_call)
    for caller in (target.broad, target.narrow):
        called |= {
            name for name in catalogue.names(caller, "tools") if only_reads(catalogue.entry(caller, "tools", name))
        }
    budget = target.budget
    waits = 0.0
    if budget is not None and target.fresh_budgets:
        slow = [requirement for requirement in requirements if is_slow(requirement)]
        waits = 5 * budget.window * len(slow)
        keys = (target.refetch or 0.0) + (target.withdrawal or 0.0)
        waits += keys * sum(len(r.rows) + profile.slow_examples for r in slow if r.invariant is Invariant.AUDIENCE)
    elif budget is not None:
        share = max(1, budget.pool + min((caller.reserve or 0) for caller in target.callers))
        others = sum(
            n * PER_EXAMPLE[i] for i, n in examples.items() if i in (Invariant.DENIALS, Invariant.CERTIFICATES)
        )
        waits = budget.window * (2 * examples[Invariant.RESERVES] + others / share)
    progress.line(
        f"Plan: {len(requirements)} requirements, profile {profile.name}, seed {options.seed}, at most "
        f"{min(most, options.limits.requests)} requests before any finding, about {waits:.0f} s of waiting at most; "
        f"tools that may really run: {', '.join(sorted(called)) or 'none'}."
    )


def _lacking(finding: Finding, records: Sequence[ExampleRecord]) -> list[str]:
    """Return the rows of today's attack table that a recorded run did not try."""
    tried = {record.row for record in records if record.requirement == finding.requirement.id}
    return [row for row in finding.requirement.rows if row not in tried]


def _without_a_pass(finding: Finding, lacking: Sequence[str]) -> Finding:
    """Return a finding on a recorded run; a pass becomes untestable if rows were not tried: it says that all were."""
    if finding.verdict is not Verdict.PASS or not lacking:
        return finding
    shown = ", ".join(lacking[:6]) + (", …" if len(lacking) > 6 else "")
    reason = f"the history lacks {len(lacking)} of {len(finding.requirement.rows)} rows of the attack table ({shown})"
    return dataclasses.replace(finding, verdict=Verdict.UNTESTABLE, reason=reason)


def judge(path: Path, level: str) -> Report:
    """Judge a recorded history again.

    Raises:
        HistoryError: the file is no history.
    """
    began = time.monotonic()
    history = read_history(path)
    subject, records = replay(history)
    noisy: dict[str, str] = {}
    for channel, _ in list(history.exchanges):
        kind = channel.removeprefix("mask-after:")
        if kind != channel:
            try:
                before, after = subject.learn(f"mask:{kind}", kind), subject.learn(channel, kind)
            except (UntestableError, ControlError, NotDeclaredError) as error:
                noisy[kind] = str(error)
                continue
            new = (set(after.values) - set(before.values)) | (set(after.presence) - set(before.presence))
            if new:
                noisy[kind] = f"noisy: {', '.join(sorted(new))} began to vary during the run"
    header = history.header
    requirements = selected((), tuple(header["ids"]))
    findings = _findings(requirements, records, "the history holds no example of it", noisy)
    lacking = {finding.requirement.id: _lacking(finding, records) for finding in findings}
    if header["profile"] in PROFILES:
        findings = [_without_a_pass(finding, lacking[finding.requirement.id]) for finding in findings]
    # Another client promises its own checks and not the tables: what of them it left out is said, and decides nothing.
    left_out = ", ".join(f"{len(rows)} of {name}" for name, rows in lacking.items() if rows)
    shown = level or str(header["level"])
    count = sum(len(exchanges) for exchanges in history.exchanges.values())
    return Report(
        url=str(header["url"]),
        server="recorded",
        wire=str(header["wire"]),
        seed=int(header["seed"]),
        profile=str(header["profile"]),
        level=shown,
        findings=findings,
        exit=exit_code(findings, shown, reached=bool(records), allowed=header["allowed"]),
        reached=bool(records),
        requests=count,
        charged=0,
        waited=0.0,
        seconds=time.monotonic() - began,
        notes=(f"Rows of the attack tables that the recording client left out: {left_out}.",) if left_out else (),
    )


def stderr_progress(*, quiet: bool) -> Progress:
    """Return the progress that goes to standard error."""
    return Progress(sys.stderr, quiet=quiet)
