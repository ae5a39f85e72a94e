"""The law: four invariants of remote MCP servers as executable properties."""
