"""`python -m quenchz_reference`: the reference server as a process."""

import sys
from collections.abc import Sequence

from quenchz_reference.options import ConfigurationError, parse
from quenchz_reference.serving import Alter, Wrap, serve


def main(
    arguments: Sequence[str] | None = None,
    alter: Alter = lambda parts: parts,
    wrap: Wrap = lambda app: app,
) -> int:
    """Run the server until it is told to stop.

    Args:
        arguments: the options, without the program's name; None for those of this process.
        alter: replaces parts, so that a counterfeit is started with the same options.
        wrap: replaces the finished ASGI app.

    Returns:
        the exit status: 0 after SIGTERM or SIGINT, 2 for a configuration that cannot be used.
    """
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        return serve(options, alter, wrap)
    except ConfigurationError as error:
        sys.stderr.write(f"quenchz_reference: {error}\n")
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
