"""The command line. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quenchz.check import Options, Progress
    from quenchz.report import Report

USAGE = 2

_EXITS = """exit codes: 0 every required requirement passed; 1 something required is violated; 2 usage or
configuration; 3 something required could not be established, or nothing was judged; 4 the harness failed"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="quenchz", description="A property-tested specification suite for remote MCP servers.", epilog=_EXITS
    )
    top.add_argument("--version", action="store_true", help="print the version and the release of the law")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    _check_options(commands.add_parser("check", help="judge a server", epilog=_EXITS))
    judge = commands.add_parser("judge", help="judge a recorded history again, without network")
    judge.add_argument("history", type=Path)
    judge.add_argument("--level", choices=("must", "quenchz", "should", "observe"), default="")
    judge.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    commands.add_parser("list", help="list the requirements: id, level, claim")
    explain = commands.add_parser("explain", help="explain one requirement: norm, cost, control, attack table")
    explain.add_argument("id")
    init = commands.add_parser("init", help="write a first quenchz.toml from what a server says of itself")
    init.add_argument("url")
    init.add_argument("--output", type=Path, default=Path("quenchz.toml"), metavar="FILE")
    agree = commands.add_parser("agree", help="judge a server by both clients and compare what they say")
    agree.add_argument("url", nargs="?", help="the MCP endpoint; the tokens file's own by default")
    agree.add_argument("--tokens-file", type=Path, required=True, metavar="FILE")
    agree.add_argument("--protocol", choices=("2026-07-28", "2025-11-25"), default="2026-07-28")
    agree.add_argument("--json", type=Path, metavar="FILE", help="write what was compared as JSON")
    prove = commands.add_parser("prove", help="run the TypeScript prover, the second client (needs Node 20)")
    prove.add_argument("options", nargs=argparse.REMAINDER, help="its own; see quenchz prove --help")
    issuer = commands.add_parser("issuer", help="run the suite's issuer, for servers under test to trust")
    issuer.add_argument("--port", type=int, default=8932, help="on 127.0.0.1; 0 takes a free one (default: 8932)")
    mint = commands.add_parser("mint", help="print one token, honest or hostile, of a running quenchz issuer")
    _mint_options(mint)
    serve = commands.add_parser("serve", help="start the reference server (needs the extra quenchz[reference])")
    serve.add_argument("options", nargs=argparse.REMAINDER, help="its own options; see quenchz serve --help")
    return top


_MINT = """\
The recipe is JSON. Only caller is needed; the rest changes one thing about the caller's good token:

  {"caller": "broad"}                                                 the good token
  {"caller": "broad", "aud": "https://other.example/mcp"}             for another resource
  {"caller": "broad", "aud": ["%us%", "https://other.example/mcp"]}   for us and another; %us% is --resource
  {"caller": "broad", "without": ["aud"]}                             for nobody
  {"caller": "broad", "claims": {"exp": "-3600"}}                     expired: "-3600" and "+60" are seconds from now
  {"caller": "broad", "claims": {"exp": {"raw": "1e400"}}}            JSON text, written as it stands
  {"caller": "broad", "signature": "none"}                            or stranger, stripped, hs256_public_key, …
  {"caller": "broad", "issuer": "stranger"}                           from an issuer that nobody trusts

  quenchz issuer &
  curl -H "Authorization: Bearer $(quenchz mint --recipe '{"caller": "broad"}')" …
"""


def _mint_options(mint: argparse.ArgumentParser) -> None:
    mint.epilog, mint.formatter_class = _MINT, argparse.RawDescriptionHelpFormatter
    mint.add_argument("--recipe", required=True, metavar="FILE_OR_JSON", help="which token; see below")
    mint.add_argument("--issuer", default="http://127.0.0.1:8932", metavar="URL", help="default: %(default)s")
    mint.add_argument("--resource", metavar="URI", help="default: the reference server's")
    mint.add_argument("--scopes", metavar='"A B"', help="default: those of the reference server's caller of that name")


def _check_options(check: argparse.ArgumentParser) -> None:
    check.add_argument("url", nargs="?", help="the MCP endpoint; may come from the target file instead")
    check.add_argument("--reference", action="store_true", help="start the reference server and judge it")
    check.add_argument("--server", metavar="COMMAND", help="with --reference: start this instead, with its options")
    check.add_argument(
        "--declare",
        action="append",
        default=[],
        metavar="TOML",
        help="with --reference: what that server declares, as in 'audience = \"member\"'; repeatable",
    )
    check.add_argument("--target", type=Path, metavar="FILE", help="quenchz.toml: what the target declares")
    check.add_argument("--tokens-file", type=Path, metavar="FILE", help="tokens and declarations of the target")
    check.add_argument(
        "--invariant", action="append", default=[], metavar="NAME", help="audience, denials, …; repeatable"
    )
    check.add_argument("--id", action="append", default=[], metavar="ID", help="one requirement; repeatable")
    check.add_argument("--profile", choices=("smoke", "gate", "deep"), default="gate")
    check.add_argument("--seed", type=int, help="repeat a run; printed by every run")
    check.add_argument("--protocol", choices=("auto", "2026-07-28", "2025-11-25"), default="")
    check.add_argument("--max-requests", type=int, default=100_000, metavar="N")
    check.add_argument("--rate", type=float, metavar="N", help="requests per second at most")
    check.add_argument("--timeout", type=float, default=15.0, metavar="S", help="seconds to wait for one answer")
    check.add_argument("--level", choices=("must", "quenchz", "should", "observe"), default="quenchz")
    check.add_argument("--allow-untestable", action="append", default=[], metavar="ID")
    check.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    check.add_argument("--history", type=Path, metavar="FILE", help="record every exchange, for quenchz judge")
    check.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    check.add_argument("--ca-file", metavar="FILE", help="trust these certificate authorities instead")
    check.add_argument("--insecure", action="store_true", help="do not check TLS certificates; the report says so")
    check.add_argument("--quiet", action="store_true", help="no progress")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _never_crash_while_printing()
    if arguments[:1] == ["serve"]:
        return _serve(arguments[1:])
    if arguments[:1] == ["prove"]:
        return _prove(arguments[1:])
    options = parser().parse_args(arguments)
    if options.version:
        from importlib.metadata import version

        from quenchz_spec import LAW

        print(f"quenchz {version('quenchz')}, law {LAW}")
        return 0
    commands = {
        "agree": _agree,
        "check": _check,
        "judge": _judge,
        "list": _list,
        "explain": _explain,
        "init": _init,
        "issuer": _issuer,
        "mint": _mint,
    }
    if options.command is None:
        parser().print_help()
        return USAGE
    try:
        return commands[options.command](options)
    except BrokenPipeError:
        sys.stderr.close()
        return USAGE


def _never_crash_while_printing() -> None:
    """Servers choose some of what is printed: what a console cannot show is printed as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _usage(error: Exception) -> int:
    print(f"quenchz: {error}", file=sys.stderr)
    return USAGE


def _serve(options: Sequence[str]) -> int:  # noqa: RET503 - execv does not return
    from importlib.util import find_spec

    missing = [name for name in ("quenchz_reference", "uvicorn", "httpx2", "vcr") if find_spec(name) is None]
    if missing:
        install = "pip install 'quenchz[reference]'"
        print(f"quenchz: the reference server needs {', '.join(missing)}; install it: {install}", file=sys.stderr)
        return USAGE
    # Replaced, not imported: the judge and the server share no code and no process.
    os.execv(sys.executable, [sys.executable, "-m", "quenchz_reference", *options])  # noqa: S606 - no shell is wanted


def _prove(options: Sequence[str]) -> int:
    from quenchz.prover import ProverMissingError, run

    try:
        return run(options)
    except ProverMissingError as error:
        return _usage(error)


def _issuer(arguments: argparse.Namespace) -> int:
    from quenchz.issuer import serve

    try:
        return serve(arguments.port)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "ports are 0 to 65535"
        print(f"quenchz: --port {arguments.port}: {reason}; --port 0 takes a free one", file=sys.stderr)
        return USAGE


def _mint(arguments: argparse.Namespace) -> int:
    from quenchz.recipes import RecipeError, parse_recipe
    from quenchz.reference import RESOURCE, reference_target
    from quenchz.target_file import TargetFileError, checked_url
    from quenchz.tokens import minted_by
    from quenchz_spec.codec import encode
    from quenchz_spec.outcomes import UntestableError

    text = str(arguments.recipe)
    try:
        if not text.lstrip().startswith("{"):
            text = Path(text).read_text(encoding="utf-8")
        recipe = parse_recipe(text)
        known = {caller.name: caller.scopes for caller in reference_target().callers}
        scopes = known.get(recipe.caller, ()) if arguments.scopes is None else arguments.scopes.split()
        resource = arguments.resource or RESOURCE
        checked_url(arguments.issuer, "--issuer")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        return _usage(RecipeError(f"--recipe {text}: {reason}; give a file, or JSON that begins with {{"))
    except (RecipeError, TargetFileError) as error:
        return _usage(error)
    try:
        print(minted_by(arguments.issuer, encode(recipe), resource, scopes))
    except UntestableError as error:
        print(f"quenchz: {error}", file=sys.stderr)
        return 3
    return 0


def _agree(arguments: argparse.Namespace) -> int:
    from quenchz.agree import agree
    from quenchz.check import UsageError
    from quenchz.history import HistoryError
    from quenchz.prover import ProverMissingError
    from quenchz.target_file import TargetFileError
    from quenchz.tokens import TokensFileError

    try:
        found = agree(arguments.url, arguments.tokens_file, arguments.protocol)
    except (HistoryError, ProverMissingError, TargetFileError, TokensFileError, UsageError) as error:
        return _usage(error)
    print(found.text())
    if arguments.json is not None:
        arguments.json.write_text(found.json() + "\n", encoding="utf-8")
    return int(found.exit)


def _check(arguments: argparse.Namespace) -> int:
    from quenchz.check import UsageError
    from quenchz.reference import ServerStartError
    from quenchz.target_file import TargetFileError
    from quenchz.tokens import TokensFileError

    try:
        return _run_check(arguments)
    except (UsageError, TargetFileError, TokensFileError) as error:
        return _usage(error)
    except ServerStartError as error:
        print(f"quenchz: {error}", file=sys.stderr)
        return 3


def _run_check(arguments: argparse.Namespace) -> int:
    from quenchz import check as run
    from quenchz.driver import Limits
    from quenchz.engine import PROFILES
    from quenchz.target_file import configured

    if arguments.server and not arguments.reference:
        raise run.UsageError("--server COMMAND stands in for the reference server: give --reference too")
    if arguments.reference and (arguments.url or arguments.target or arguments.tokens_file):
        raise run.UsageError("--reference starts its own server: leave out URL, --target and --tokens-file")
    if arguments.declare and not arguments.reference:
        raise run.UsageError("--declare is for the server that --reference starts: others declare in a target file")
    if (
        arguments.max_requests < 1
        or (arguments.rate is not None and not arguments.rate > 0)
        or not arguments.timeout > 0
    ):
        raise run.UsageError("--max-requests, --rate and --timeout must be positive")
    run.selected(arguments.invariant, [*arguments.id, *arguments.allow_untestable])
    for path in (arguments.json, arguments.history):
        if path is not None and not path.absolute().parent.is_dir():
            raise run.UsageError(f"{path}: its folder does not exist")
        if path is not None and path.is_dir():
            raise run.UsageError(f"{path} is a folder; name a file")
    seed = run.new_seed() if arguments.seed is None else arguments.seed
    options = run.Options(
        profile=PROFILES[arguments.profile],
        seed=seed,
        level=arguments.level,
        protocol=arguments.protocol,
        invariants=tuple(arguments.invariant),
        ids=tuple(arguments.id),
        allowed=tuple(arguments.allow_untestable),
        limits=Limits(requests=arguments.max_requests, rate=arguments.rate, timeout=arguments.timeout),
        history=arguments.history,
        dry_run=arguments.dry_run,
        ca_file=arguments.ca_file,
        insecure=arguments.insecure,
        replay=_replay_command(arguments, seed),
    )
    progress = run.stderr_progress(quiet=arguments.quiet)
    if arguments.reference:
        report = _against_reference(arguments.server, arguments.declare, options, progress)
    else:
        configuration = configured(arguments.url, arguments.target, arguments.tokens_file)
        with run.token_source(configuration, ca_file=arguments.ca_file) as source:
            report = run.check(configuration, source, options, progress)
    if report is None:
        print("Dry run: nothing was judged.")
        return 0
    return _deliver(report, arguments.json)


def _against_reference(
    command: str | None, declares: Sequence[str], options: Options, progress: Progress
) -> Report | None:
    import dataclasses

    from quenchz import check as run
    from quenchz.issuer import SuiteIssuer
    from quenchz.reference import reference_target, running
    from quenchz.target_file import Configuration, declarations

    target = reference_target()
    if declares:
        target = dataclasses.replace(target, **declarations(declares))
    with SuiteIssuer() as issuer, running(command, issuer.base_url) as url:
        configuration = Configuration(url=url, target=target, source="suite-issuer")
        with run.suite_source(configuration, issuer) as source:
            return run.check(configuration, source, options, progress)


def _replay_command(arguments: argparse.Namespace, seed: int) -> str:
    words = ["quenchz check"]
    if arguments.reference:
        words.append("--reference")
    elif arguments.url:
        words.append(arguments.url)
    for option, value in (
        ("--server", arguments.server and f'"{arguments.server}"'),
        *(("--declare", f"'{line}'") for line in arguments.declare),
        ("--target", arguments.target),
        ("--tokens-file", arguments.tokens_file),
        ("--protocol", arguments.protocol),
        ("--profile", arguments.profile),
    ):
        if value:
            words.append(f"{option} {value}")
    return f"{' '.join(words)} --seed {seed}"


def _deliver(report: Report, path: Path | None) -> int:
    print(report.text())
    if path is not None:
        try:
            report.write(path)
        except OSError as error:
            print(f"quenchz: {path}: the report cannot be written: {error.strerror}", file=sys.stderr)
            return 4
    return int(report.exit)


def _judge(arguments: argparse.Namespace) -> int:
    from quenchz.check import UsageError, judge
    from quenchz.history import HistoryError

    try:
        report = judge(arguments.history, arguments.level)
    except (HistoryError, UsageError) as error:
        return _usage(error)
    return _deliver(report, arguments.json)


def _list(_: argparse.Namespace) -> int:
    from quenchz_spec.requirement import law

    for requirement in law():
        print(f"{requirement.id:<10} {requirement.level.value:<8} {requirement.claim}")
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from quenchz.report import explain
    from quenchz_spec.requirement import law

    found = next((requirement for requirement in law() if requirement.id == arguments.id), None)
    if found is None:
        print(f"quenchz: {arguments.id}: no such requirement; `quenchz list` shows all", file=sys.stderr)
        return USAGE
    print(explain(found))
    return 0


def _init(arguments: argparse.Namespace) -> int:
    from quenchz.init import InitError, write_target_file
    from quenchz.target_file import TargetFileError

    try:
        print(write_target_file(arguments.url, arguments.output))
    except (InitError, TargetFileError) as error:
        return _usage(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
