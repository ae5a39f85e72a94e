"""Counterfeits of the invariant certificates."""
