"""What a target declares of its tokens and issuers, in a target file or on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from quenchz.cli import main
from quenchz.target_file import TargetFileError, declarations, read_target_file

if TYPE_CHECKING:
    from pathlib import Path

GOOD: list[tuple[str, dict[str, Any]]] = [
    ('audience = "member"', {"audience": "member"}),
    ("leeway_seconds = 30", {"leeway": 30.0}),
    ('profiles = ["introspection", "rfc9068"]', {"profiles": ("introspection", "rfc9068")}),
    ("patience_seconds = 2.5\nrefetch_seconds = 5", {"patience": 2.5, "refetch": 5.0}),
]
BAD = [
    ('audience = "some"', "expected one of exact, member"),
    ("leeway_seconds = -1", "expected 0 or more"),
    ("patience_seconds = inf", "and finite"),
    ('profiles = ["rfc7662"]', "has 'rfc7662'; expected some of rfc9068, introspection"),
    ("profiles = [1]", "expected a list of strings"),
]


@pytest.mark.parametrize(("text", "fields"), GOOD)
def test_a_line_declares_what_it_names_and_nothing_else(text: str, fields: dict[str, Any], tmp_path: Path) -> None:
    assert declarations(text.splitlines()) == fields
    path = tmp_path / "quenchz.toml"
    path.write_text(f'url = "http://127.0.0.1:1/mcp"\n{text}\n', encoding="utf-8")
    target = read_target_file(path).target
    assert {name: getattr(target, name) for name in fields} == fields


@pytest.mark.parametrize(("text", "message"), BAD)
def test_what_cannot_be_declared_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "quenchz.toml"
    path.write_text(f'url = "http://127.0.0.1:1/mcp"\n{text}\n', encoding="utf-8")
    for read in (lambda: declarations([text]), lambda: read_target_file(path)):
        with pytest.raises(TargetFileError, match=message):
            read()


def test_a_command_line_declares_for_the_server_that_it_starts_and_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "http://127.0.0.1:1/mcp", "--declare", 'audience = "member"']) == 2
    assert "--declare is for the server that --reference starts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"), [("audience", "not TOML"), ('url = "x"', "url is not a key of this table")]
)
def test_a_declaration_that_cannot_be_read_is_a_usage_error(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--reference", "--declare", line]) == 2
    assert f"--declare: {message}" in capsys.readouterr().err
