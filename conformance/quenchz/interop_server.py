"""`python -m quenchz.interop_server`: starts the reference server, with the same options, in place of this process.

The judge never imports the server (what they share, they could agree on although it is wrong), so this replaces the
process and imports nothing.
"""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Become `python -m quenchz_reference` with `arguments`; None stands for those of this process."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "quenchz_reference", *given])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
