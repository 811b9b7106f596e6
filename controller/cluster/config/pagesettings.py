"""The page's configuration: how users sign in, and which Prometheus has the past."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

CALLBACK: Final = "/page/oidc/callback"
"""The path to which a provider sends browsers back."""


class OidcProvider(Struct, frozen=True, kw_only=True):
    """A provider by which users sign in at the page; its claims become users as by the API server's ``--oidc-*``
    flags.
    """

    issuer_url: str
    client_id: str
    redirect_url: str
    client_secret_file: Path | None = None
    scopes: tuple[str, ...] = ()
    username_claim: str = "sub"
    username_prefix: str | None = None
    groups_claim: str | None = None
    groups_prefix: str = ""
    required_claims: Mapping[str, str] = {}
    algorithms: tuple[str, ...] = ("RS256",)
    ca_file: Path | None = None
    session_life_s: float = 3600.0
    display_name: str = "your company's login"


class PagePrometheus(Struct, frozen=True, kw_only=True):
    """The Prometheus that has the page's history. The files are read for each query."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    timeout_s: float = 10.0
