"""`quenchz init` writes a first target file from what a server says of itself."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING

import jsonschema

from quenchz.cli import main
from quenchz.target_file import read_target_file
from sentinels import closed_url, constant, response, running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

METADATA = {"resource": "https://rates.example/mcp", "scopes_supported": ["rates:read", 'odd "scope"']}


def served(metadata: object) -> Callable[..., bytes]:
    """Return the answers of a server that challenges and publishes `metadata` at the well-known path."""
    document = response("200 OK", json.dumps(metadata).encode(), "Content-Type: application/json")
    challenge = constant(response("401 Unauthorized", b"", "WWW-Authenticate: Bearer"))

    def answer(request: object) -> bytes:
        target = str(getattr(request, "target", ""))
        return document if target.startswith("/.well-known/oauth-protected-resource") else challenge(request)  # type: ignore[arg-type]

    return answer


def test_the_written_file_can_be_read_and_fits_the_schema(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    path = tmp_path / "quenchz.toml"
    with running(served(METADATA)) as server:
        assert main(["init", server.url, "--output", str(path)]) == 0
        written = tomllib.loads(path.read_text(encoding="utf-8"))
        assert written["url"] == server.url
    schema = json.loads((pytestconfig.rootpath / "spec" / "schemas" / "target.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(written)
    found = read_target_file(path)
    assert found.target.resource == METADATA["resource"]
    assert found.target.caller("broad").scopes == tuple(METADATA["scopes_supported"])


def test_unequal_metadata_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(served(METADATA)) as server:
        main(["init", server.url, "--output", str(tmp_path / "quenchz.toml")])
    assert "names another resource than the URL that was dialled (RFC 9728" in capsys.readouterr().out


def test_an_existing_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "quenchz.toml"
    path.write_text("mine", encoding="utf-8")
    assert main(["init", "http://127.0.0.1:9/mcp", "--output", str(path)]) == 2
    assert path.read_text(encoding="utf-8") == "mine"
    assert f"{path} exists; give --output FILE" in capsys.readouterr().err


def test_a_closed_port_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "quenchz.toml"
    assert main(["init", closed_url(), "--output", str(path)]) == 2
    assert not path.exists()
    assert "Connection refused" in capsys.readouterr().err
