"""`python -m counterfeits NAME OPTIONS`: the reference server with one fault."""

from __future__ import annotations

import sys

from counterfeits import counterfeits
from quenchz_reference.__main__ import main

if len(sys.argv) < 2 or sys.argv[1] not in counterfeits():
    sys.exit(f"usage: python -m counterfeits NAME OPTIONS; NAME is one of {', '.join(sorted(counterfeits()))}")
chosen = counterfeits()[sys.argv[1]]
sys.exit(main(sys.argv[2:], alter=chosen.alter, wrap=chosen.wrap))
