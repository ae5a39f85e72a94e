"""Hypothesis strategies of the law."""
