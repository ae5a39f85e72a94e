"""`python -m quenchz`."""

import sys

from quenchz.cli import main

sys.exit(main())
