"""The judge: drives a remote MCP server and judges what came back."""
