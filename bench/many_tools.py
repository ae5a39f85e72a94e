"""The reference server with as many tools as it is told: does one call cost more when more tools exist?

`python bench/many_tools.py N OPTIONS`: the options are those of `python -m quenchz_reference`. The first tool is
`exchange_rates`, as it is; the N - 1 others have its schemas, other names, and are granted to the same callers.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from quenchz_reference.__main__ import main

if TYPE_CHECKING:
    from mcp_types import Tool

    from quenchz_reference.parts import Parts
    from quenchz_reference.scopes import Entry

CALLED = "exchange_rates"


def with_tools(parts: Parts, count: int) -> Parts:
    """Return `parts` with `count` tools in the catalogue, one or more."""
    first = parts.catalogue.tools[CALLED]
    tools: dict[str, Entry[Tool]] = {CALLED: first}
    for number in range(1, count):
        name = f"unused_tool_{number:04d}"
        tools[name] = replace(first, definition=first.definition.model_copy(update={"name": name}))
    return replace(parts, catalogue=replace(parts.catalogue, tools=tools))


if __name__ == "__main__":
    if len(sys.argv) < 2 or not sys.argv[1].isdecimal() or int(sys.argv[1]) < 1:
        sys.exit("usage: many_tools.py N OPTIONS; N is how many tools there are, one or more")
    wanted = int(sys.argv[1])
    sys.exit(main(sys.argv[2:], alter=lambda parts: with_tools(parts, wanted)))
