"""Counterfeits of the invariant denials."""
