"""oidc-provider, an authorization server that nobody here wrote."""
