"""`python -m sentinels NAME OPTIONS`: the reference server that turns useless once everything is listed."""

from __future__ import annotations

import sys

from quenchz_reference.__main__ import main
from sentinels.turncoats import TURNCOATS, turn

if len(sys.argv) < 2 or sys.argv[1] not in TURNCOATS:
    sys.exit(f"usage: python -m sentinels NAME OPTIONS; NAME is one of {', '.join(TURNCOATS)}")
then = TURNCOATS[sys.argv[1]]
sys.exit(main(sys.argv[2:], wrap=lambda app: turn(app, then)))
