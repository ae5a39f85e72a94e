"""The law: four invariants of remote MCP servers as executable properties."""

LAW = "quenchz-1"
"""The release of the law: the frozen set of ids in spec/requirements/quenchz-1.toml."""
