"""Hypothesis strategies of the law: plural nouns, plain data, tested in tests/generators."""
