"""The pytest plugin: `pytest --pyargs quenchz_spec --quenchz-url URL` judges a server by the properties themselves.

Every item of the law runs through the same engine as `quenchz check`, and its verdict becomes pytest's: a required
violation, what could not be established and a harness error fail; what the server never declared is skipped.

This module is imported at every start of pytest in an environment that has quenchz, so it imports nothing heavy.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quenchz.driver import HttpSubject
    from quenchz.engine import Runner

_NO_TARGET = (
    "no target: give --quenchz-url URL (with --quenchz-tokens-file or --quenchz-target), or --quenchz-reference to "
    "start the reference server"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name a target."""
    group = parser.getgroup("quenchz", "judging a remote MCP server")
    group.addoption("--quenchz-url", metavar="URL", help="the MCP endpoint to judge")
    group.addoption("--quenchz-target", metavar="FILE", help="quenchz.toml: what the target declares")
    group.addoption("--quenchz-tokens-file", metavar="FILE", help="tokens and declarations of the target")
    group.addoption("--quenchz-reference", action="store_true", help="start the reference server and judge it")
    group.addoption("--quenchz-profile", choices=("smoke", "gate", "deep"), default="gate")
    group.addoption("--quenchz-protocol", choices=("auto", "2026-07-28", "2025-11-25"), default="auto")
    group.addoption("--quenchz-level", choices=("must", "quenchz", "should", "observe"), default="quenchz")
    group.addoption("--quenchz-seed", type=int, help="repeat a run; printed by every run")
    parser.addini("quenchz_reference", "judge the reference server if no other target is named", "bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Have the assertions of the law rewritten, also in an editable install, before anything imports it."""
    pytest.register_assert_rewrite("quenchz_spec")
    if config.getoption("quenchz_seed") is None:
        import secrets

        config.option.quenchz_seed = secrets.randbelow(2**32)


def pytest_report_header(config: pytest.Config) -> str:
    """Print the seed, so that any run can be repeated."""
    return f"quenchz: --quenchz-seed={config.getoption('quenchz_seed')}"


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Iterator[HttpSubject]:
    """The server under test, connected; fails with a sentence when there is none."""
    from quenchz.check import UsageError, authorize, suite_source, token_source
    from quenchz.driver import HttpSubject, UnreachableError
    from quenchz.history import HistoryWriter
    from quenchz.issuer import SuiteIssuer
    from quenchz.reference import ServerStartError, reference_target, running
    from quenchz.target_file import Configuration, TargetFileError, configured
    from quenchz.tokens import TokensFileError

    option: Any = request.config.getoption
    named = option("quenchz_url") or option("quenchz_target") or option("quenchz_tokens_file")
    with ExitStack() as stack:
        try:
            if named:
                configuration = configured(
                    option("quenchz_url"), _path(option("quenchz_target")), _path(option("quenchz_tokens_file"))
                )
                source = stack.enter_context(token_source(configuration))
            elif option("quenchz_reference") or request.config.getini("quenchz_reference"):
                issuer = stack.enter_context(SuiteIssuer())
                url = stack.enter_context(running(None, issuer.base_url))
                configuration = Configuration(url=url, target=reference_target(), source="suite-issuer")
                source = stack.enter_context(suite_source(configuration, issuer))
            else:
                pytest.fail(_NO_TARGET, pytrace=False)
            authorize(configuration)
            found = HttpSubject(configuration.url, configuration.target, source, HistoryWriter(None))
            stack.callback(found.close)
            protocol = option("quenchz_protocol")
            found.connect(configuration.protocol if protocol == "auto" else protocol)
        except (UsageError, TargetFileError, TokensFileError, ServerStartError, UnreachableError) as error:
            pytest.fail(f"untestable: {error}", pytrace=False)
        yield found


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an item of the law through the engine and turn its verdict into pytest's."""
    name = getattr(pyfuncitem.obj, "quenchz_id", None)
    if name is None:
        return None
    from quenchz.check import selected
    from quenchz.report import proof
    from quenchz.verdicts import LEVELS, Verdict, find

    (requirement,) = selected((), (name,))
    records = _runner(pyfuncitem).run(requirement)
    finding = find(requirement, records)
    pyfuncitem.user_properties.append(("quenchz", {"id": name, "verdict": finding.verdict.value}))
    required = requirement.level in LEVELS[str(pyfuncitem.config.option.quenchz_level)]
    if finding.verdict is Verdict.NOT_APPLICABLE:
        pytest.skip(f"{name} not-applicable: {finding.reason}")
    if finding.verdict in (Verdict.FAIL, Verdict.WARN, Verdict.OBSERVED):
        text = "\n".join(proof(finding))
        if required:
            pytest.fail(text, pytrace=False)
        pyfuncitem.add_report_section("call", "quenchz", text)
    elif finding.verdict is not Verdict.PASS:
        pytest.fail(f"{name} {finding.verdict.value}: {finding.reason}", pytrace=False)
    return True


_RUNNER: pytest.StashKey[Runner] = pytest.StashKey()


def _runner(item: pytest.Function) -> Runner:
    from quenchz.engine import PROFILES, Runner
    from quenchz.history import HistoryWriter

    stash = item.config.stash
    if _RUNNER not in stash:
        arguments: dict[str, Any] = item.funcargs
        profile = PROFILES[str(item.config.option.quenchz_profile)]
        stash[_RUNNER] = Runner(
            arguments["subject"], HistoryWriter(None), profile, int(item.config.option.quenchz_seed)
        )
    return stash[_RUNNER]
