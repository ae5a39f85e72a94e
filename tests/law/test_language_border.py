"""Nothing but the JSON schemas crosses from Python to TypeScript or back."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING

import pytest

from quenchz_spec.requirement import law

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGES = ("spec/quenchz_spec", "conformance/quenchz", "reference/quenchz_reference")
LONG = 24
"""Characters from which on two equal strings are no accident."""
GRADES = {"denied but distinguishable"}
"""Words of the design, which both clients use."""
RUN = 4
"""Equal strings in a row that make a copied table."""
NAME = re.compile(r"^\S*$|^application/json, text/event-stream$")
"""What the protocol, the tokens file and the history spell: names, not sentences."""


@pytest.fixture(scope="module")
def root(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath


def python_sources(root: Path) -> list[Path]:
    return [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]


def typescript_sources(root: Path) -> list[Path]:
    return sorted((root / "clients" / "typescript" / "src").rglob("*.ts"))


def strings_of_python(path: Path) -> Iterator[str]:
    """Yield the strings of a module in the order they stand, docstrings included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')


def strings_of_typescript(path: Path) -> Iterator[str]:
    for quoted, template in STRING.findall(path.read_text(encoding="utf-8")):
        yield quoted or template


def norms() -> set[str]:
    """Return what the law quotes: the words of RFCs and of MCP, which are the same in any language."""
    quotes = [norm.quote for one in law() for norm in (one.norm, one.contrary) if norm is not None]
    sources = [norm.source for one in law() for norm in (one.norm, one.contrary) if norm is not None]
    return {*quotes, *sources}


def words(text: str) -> str:
    return " ".join(text.split())


def same_sentences(python: set[str], typescript: set[str]) -> set[str]:
    """Return what is written on both sides, apart from names, quoted norms and the grades of the design."""
    same = {text for text in python & typescript if len(text) >= LONG and not NAME.search(text)}
    return same - GRADES - {words(norm) for norm in norms()}


def runs(strings: list[str]) -> set[tuple[str, ...]]:
    return {tuple(strings[at : at + RUN]) for at in range(len(strings) - RUN + 1)}


def same_runs(python: set[tuple[str, ...]], typescript: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Return the runs of strings that stand on both sides, apart from those of names alone."""
    return {run for run in python & typescript if not all(NAME.search(text) for text in run)}


def test_no_sentence_is_the_same_on_both_sides_but_quoted_norms(root: Path) -> None:
    python = {words(text) for path in python_sources(root) for text in strings_of_python(path)}
    typescript = {words(text) for path in typescript_sources(root) for text in strings_of_typescript(path)}
    assert len(typescript) > 300, "the strings of the TypeScript side were not found"
    assert same_sentences(python, typescript) == set()
    copied = {words(one.claim) for one in law()}
    assert same_sentences(python, typescript | copied) == copied, "a planted copy is not found"


def test_no_table_is_the_same_on_both_sides(root: Path) -> None:
    """A run of equal strings, in order, is a copy, unless it lists what the protocol names."""
    python = {run for path in python_sources(root) for run in runs(list(strings_of_python(path)))}
    typescript = {run for path in typescript_sources(root) for run in runs(list(strings_of_typescript(path)))}
    assert same_runs(python, typescript) == set()
    page = list(strings_of_python(root / "spec" / "quenchz_spec" / "test_audience.py"))
    assert same_runs(python, typescript | runs(page)), "a planted copy is not found"


def test_python_touches_the_typescript_side_only_to_run_its_program(root: Path) -> None:
    naming = [
        path.relative_to(root).as_posix()
        for path in python_sources(root)
        if re.search(r"clients.{0,8}typescript|\.tsx?\b|node_modules", path.read_text(encoding="utf-8"))
    ]
    assert naming == ["conformance/quenchz/prover.py"]


def test_typescript_touches_the_python_side_only_for_the_schemas(root: Path) -> None:
    package = root / "clients" / "typescript"
    files = [*typescript_sources(root), *package.glob("scripts/*"), *package.glob("*.ts"), *package.glob("*.js")]
    reaching = {
        path.relative_to(package).as_posix(): sorted(set(re.findall(r'"((?:\.\./)+(?:\.\.|spec)[^"]*)"', text)))
        for path in files
        if (text := path.read_text(encoding="utf-8")) and re.search(r"spec/|\.py\b|python", text)
    }
    for name, places in reaching.items():
        assert all("schemas" in place for place in places), (name, places)
    scripts = json.loads((package / "package.json").read_text(encoding="utf-8"))["scripts"]
    assert [line for line in scripts.values() if re.search(r"python|\.py\b|uv |codegen|generate", line)] == []


def test_both_sides_validate_against_the_shared_schemas(root: Path) -> None:
    schemas = {path.stem for path in (root / "spec" / "schemas").glob("*.json")}
    tests = {
        "Python": "\n".join(path.read_text(encoding="utf-8") for path in sorted((root / "tests").rglob("test_*.py"))),
        "TypeScript": "\n".join(
            path.read_text(encoding="utf-8")
            for path in [*typescript_sources(root), *(root / "clients" / "typescript" / "test").rglob("*.ts")]
        ),
    }
    for side, written, validating in (
        ("Python", tests["Python"], "jsonschema"),
        ("TypeScript", tests["TypeScript"], "validatorOf"),
    ):
        assert validating in written
        used = {name for name in schemas if re.search(rf"[\"'/]{re.escape(name)}(?:\.json)?[\"']", written)}
        assert used >= {"tokens-file", "history", "report"}, side
