"""Signing in at an OpenID Connect provider: the authorization code flow with PKCE, and claims that become a user."""
