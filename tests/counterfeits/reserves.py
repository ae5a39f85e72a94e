"""Counterfeits of the invariant reserves."""
