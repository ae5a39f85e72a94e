"""The field: servers that nobody here wrote, each in an environment of its own."""
