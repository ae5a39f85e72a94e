"""Start and end oidc-provider as a process, with clients whose secrets are in its environment only."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from field.oidc_provider import environment
from field.processes import serving

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

SERVER = Path(__file__).resolve().parent / "server.js"
READY = "oidc-provider ready: "


def secret_variable(client: str) -> str:
    """Return the environment variable that holds the secret of a client."""
    return f"QUENCHZ_FIELD_SECRET_{client.upper()}"


@contextlib.contextmanager
def start(
    resources: Sequence[str], clients: Mapping[str, str], *, any_resource: bool = False, alg: str = "ES256"
) -> Generator[str]:
    """Run the authorization server and yield its issuer identifier; end it, by its id, on the way out.

    Args: the resources it knows, the secret of each client, whether it grants tokens for any resource instead, and the
    algorithm that it signs with (ES256 or RS256).
    Raises: FieldServerError if it does not become ready; FileNotFoundError if its packages have not been installed
    (`environment.py` installs them, which takes a package registry and is therefore not done here).
    """
    if not environment.is_ready():
        raise FileNotFoundError(
            f"no current packages in {environment.MODULES}: run python {SERVER.with_name('environment.py')}"
        )
    command = ["node", str(SERVER), "--alg", alg, *(["--any-resource"] if any_resource else [])]
    command += [word for resource in resources for word in ("--resource", resource)]
    command += [word for client in clients for word in ("--client", client)]
    # NODE_OPTIONS and DEBUG change what a Node program does and says.
    variables = {name: value for name, value in os.environ.items() if name not in ("NODE_OPTIONS", "DEBUG")}
    variables |= {secret_variable(client): secret for client, secret in clients.items()}
    with serving(command, READY, variables=variables) as issuer:
        yield issuer
