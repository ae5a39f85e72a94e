"""Counterfeits of the invariant audience."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quenchz_reference.audience import Audience
from quenchz_reference.parts import Parts, recast

from counterfeits import counterfeit
