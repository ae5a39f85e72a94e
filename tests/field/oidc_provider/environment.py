"""The packages of the authorization server: `python tests/field/oidc_provider/environment.py` installs them.

They stand beside `server.js`, where Node looks for them, and are what `package-lock.json` names, byte for byte.
Installing again is free while that file is the same: a stamp file, written last, says for which one was installed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK = HERE / "package-lock.json"
MODULES = HERE / "node_modules"
STAMP = MODULES / ".quenchz-stamp"


def wanted_stamp() -> str:
    """Say for which lock file packages installed now would be: its SHA-256."""
    return f"package-lock.json {hashlib.sha256(LOCK.read_bytes()).hexdigest()}\n"


def is_ready() -> bool:
    """Tell whether the packages of today's lock file are installed."""
    return STAMP.exists() and STAMP.read_text(encoding="utf-8") == wanted_stamp()


def ensure() -> Path:
    """Install the packages unless they are, and print what is being done.

    Returns: the folder of the packages.
    Raises: FileNotFoundError if there is no npm; subprocess.CalledProcessError if npm cannot install them.
    """
    if not is_ready():
        npm = shutil.which("npm")
        if npm is None:
            raise FileNotFoundError("npm is not on the path: install Node.js 20 or later")
        print(f"field-oidc-provider: installing {LOCK.name} with npm", flush=True)
        subprocess.run([npm, "ci", "--no-fund", "--no-audit", "--loglevel=error"], cwd=HERE, check=True)
        STAMP.write_text(wanted_stamp(), encoding="utf-8")
    print(f"field-oidc-provider: ready in {MODULES}", flush=True)
    return MODULES


if __name__ == "__main__":
    ensure()
