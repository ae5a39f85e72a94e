"""The environment of the FastMCP field server: `python tests/field/fastmcp/environment.py` makes it.

It stands apart from the project's own environment, in `.tools/field-fastmcp`, so that what the field server needs can
neither change what the judge runs on nor be imported by it. Making it again is free while `requirements.txt` and the
interpreter are the same: a stamp file, written last, says for which two the environment was made.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
ENVIRONMENT = HERE.parents[2] / ".tools" / "field-fastmcp"
PYTHON = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = ENVIRONMENT / "quenchz-stamp"


def wanted_stamp() -> str:
    """Say for which interpreter and which requirements an environment made now would be.

    Returns: one line, the Python version and the SHA-256 of `requirements.txt`.
    """
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    return f"python {sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro} requirements {digest}\n"


def is_ready() -> bool:
    """Tell whether the environment exists and was made for today's requirements and interpreter."""
    return PYTHON.exists() and STAMP.exists() and STAMP.read_text(encoding="utf-8") == wanted_stamp()


def ensure() -> Path:
    """Make the environment unless it is ready, and print what is being done.

    uv is used where it is on the path, since its cache makes the same environment in seconds; else venv and pip.

    Returns: the environment's Python interpreter.
    Raises: subprocess.CalledProcessError if the environment cannot be made; it then has no stamp and is made anew.
    """
    if is_ready():
        print(f"field-fastmcp: ready in {ENVIRONMENT}", flush=True)
        return PYTHON
    print(f"field-fastmcp: making {ENVIRONMENT}", flush=True)
    if ENVIRONMENT.exists():
        shutil.rmtree(ENVIRONMENT)
    ENVIRONMENT.parent.mkdir(parents=True, exist_ok=True)
    uv = shutil.which("uv")
    if uv is not None:
        make = [uv, "venv", "--quiet", "--python", sys.executable, str(ENVIRONMENT)]
        fill = [uv, "pip", "install", "--quiet", "--python", str(PYTHON), "--requirement", str(REQUIREMENTS)]
    else:
        make = [sys.executable, "-m", "venv", str(ENVIRONMENT)]
        fill = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        fill += ["--requirement", str(REQUIREMENTS)]
    subprocess.run(make, check=True)
    print(f"field-fastmcp: installing {REQUIREMENTS.name} with {'uv' if uv is not None else 'pip'}", flush=True)
    subprocess.run(fill, check=True)
    STAMP.write_text(wanted_stamp(), encoding="utf-8")
    print(f"field-fastmcp: ready in {ENVIRONMENT}", flush=True)
    return PYTHON


if __name__ == "__main__":
    ensure()
