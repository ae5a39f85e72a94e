"""A FastMCP server, set up as its own documentation describes it."""
