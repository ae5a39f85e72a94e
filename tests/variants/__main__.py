"""`python -m variants NAME OPTIONS`: the reference server with one matter of taste changed."""

from __future__ import annotations

import sys

from quenchz_reference.__main__ import main
from variants import variants

if len(sys.argv) < 2 or sys.argv[1] not in variants():
    sys.exit(f"usage: python -m variants NAME OPTIONS; NAME is one of {', '.join(sorted(variants()))}")
chosen = variants()[sys.argv[1]]
sys.exit(main(sys.argv[2:], alter=chosen.alter, wrap=chosen.wrap))
