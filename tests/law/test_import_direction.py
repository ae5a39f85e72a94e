"""The law knows nobody, the judge knows the law, the server knows neither; and what is light stays light."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGES = ("spec/quenchz_spec", "conformance/quenchz", "reference/quenchz_reference")
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"


@pytest.fixture
def copy(tmp_path: Path, pytestconfig: pytest.Config) -> Path:
    """A copy of the packages and of the contracts, so that a violation can be planted."""
    for package in PACKAGES:
        shutil.copytree(
            pytestconfig.rootpath / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(pytestconfig.rootpath / "pyproject.toml", tmp_path)
    return tmp_path


def lint(folder: Path) -> tuple[int, str]:
    path = os.pathsep.join(str(folder / package.split("/")[0]) for package in PACKAGES)
    done = subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_no_import_goes_the_wrong_way(copy: Path) -> None:
    code, said = lint(copy)
    assert "0 broken" in said
    assert code == 0


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("spec/quenchz_spec/codec.py", "import quenchz.mint", "the law knows neither judge nor server"),
        ("spec/quenchz_spec/codec.py", "import socket", "the law knows neither judge nor server"),
        ("spec/quenchz_spec/strategies/windows.py", "import time", "the law knows neither judge nor server"),
        ("reference/quenchz_reference/clock.py", "import quenchz_spec.codec", "the server knows neither law nor judge"),
        ("reference/quenchz_reference/clock.py", "from quenchz import wire", "the server knows neither law nor judge"),
        ("conformance/quenchz/wire.py", "import quenchz_reference.clock", "the judge starts the server as a process"),
    ],
)
def test_a_planted_import_is_found(module: str, line: str, contract: str, copy: Path) -> None:
    path = copy / module
    path.write_text(path.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")
    code, said = lint(copy)
    assert code != 0
    assert "1 broken" in said
    assert contract in said


# --- what is light --------------------------------------------------------------------------------------------------

HEAVY = (
    "mcp",
    "mcp_types",
    "hypothesis",
    "pytest",
    "_pytest",
    "quenchz_reference",
    "uvicorn",
    "starlette",
    "httpx2",
    "cryptography",
)


def loaded(*arguments: str) -> set[str]:
    """Return the top-level modules that a command line of quenchz has loaded when it ends."""
    code = (
        "import sys\n"
        "from quenchz.cli import main\n"
        "try:\n"
        f"    main({list(arguments)!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('loaded:', *sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("loaded: "))
    return set(line.split()[1:])


@pytest.mark.parametrize("arguments", [("--help",), ("check", "--help"), ("judge", "--help")])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    found = loaded(*arguments)
    assert "quenchz" in found
    assert found & set(HEAVY) == set()


def test_a_check_loads_no_server_and_no_sdk() -> None:
    """The server's libraries cost more than a second, and a judge that shares them with the server trusts them."""
    found = loaded("check", "http://127.0.0.1:9/mcp", "--quiet", "--profile", "smoke", "--timeout", "0.2")
    assert "quenchz_spec" in found
    assert (
        found & {"mcp", "mcp_types", "quenchz_reference", "uvicorn", "starlette", "httpx2", "pytest", "_pytest"}
        == set()
    )


def cpu_seconds(command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def test_help_costs_at_most_five_times_an_empty_python() -> None:
    script = str(Path(sys.executable).with_name("quenchz"))
    commands = {"nothing": [sys.executable, "-c", "pass"], "help": [script, "--help"]}
    # Taken in turn, so that a busy machine slows both.
    runs = [{name: cpu_seconds(command) for name, command in commands.items()} for _ in range(7)]
    nothing, shown = (statistics.median(run[name] for run in runs) for name in commands)
    assert shown <= 5 * nothing, f"{shown:.3f} s of CPU against {nothing:.3f} s"
