"""``tessera.page``: how users sign in, and where history is."""

from typing import Any, Final
from urllib.parse import urlsplit

from controller.cluster.config.pagesettings import OidcProvider, PagePrometheus
from controller.cluster.config.reader import Found

_OIDC: Final = "tessera.page.oidc"
_PROMETHEUS: Final = "tessera.page.prometheus"
_MOST_LIFE_S: Final = 12 * 3600.0
_MOST_TIMEOUT_S: Final = 20.0
_OF_PROVIDER: Final = {
    "client_secret_file": "clientSecretFile",
    "username_claim": "usernameClaim",
    "username_prefix": "usernamePrefix",
    "groups_claim": "groupsClaim",
    "groups_prefix": "groupsPrefix",
    "ca_file": "caFile",
    "session_life_s": "sessionLife",
    "display_name": "displayName",
}


def oidc_provider(found: Found) -> OidcProvider | None:
    """The provider by which users sign in; None if they sign in with tokens alone. Raises ConfigError."""
    if _OIDC not in found:
        return None
    optional: dict[str, Any] = {
        name: found.get(f"{_OIDC}.{key}") for name, key in _OF_PROVIDER.items() if f"{_OIDC}.{key}" in found
    }
    provider = OidcProvider(
        issuer_url=found.required(_OIDC, "issuerURL"),
        client_id=found.required(_OIDC, "clientID"),
        redirect_url=found.required(_OIDC, "redirectURL"),
        scopes=found.values(f"{_OIDC}.scopes"),
        required_claims=found.entries(f"{_OIDC}.requiredClaims"),
        algorithms=found.values(f"{_OIDC}.signingAlgs") or ("RS256",),
        **optional,
    )
    _at_most(found, f"{_OIDC}.sessionLife", provider.session_life_s, _MOST_LIFE_S, "12h")
    return provider


def page_prometheus(found: Found) -> PagePrometheus | None:
    """The Prometheus that has the page's history; None if there is none. Raises ConfigError."""
    if _PROMETHEUS not in found:
        return None
    url, token_file = found.required(_PROMETHEUS, "url"), found.get(f"{_PROMETHEUS}.bearerTokenFile")
    if token_file is not None and urlsplit(url).username is not None:
        raise found.places[f"{_PROMETHEUS}.bearerTokenFile"].error("none beside a user in url")
    timeout_s = found.get(f"{_PROMETHEUS}.timeout", PagePrometheus(url=url).timeout_s)
    _at_most(found, f"{_PROMETHEUS}.timeout", timeout_s, _MOST_TIMEOUT_S, "20s")
    ca_file = found.get(f"{_PROMETHEUS}.caFile")
    return PagePrometheus(url=url, token_file=token_file, ca_file=ca_file, timeout_s=timeout_s)


def _at_most(found: Found, path: str, value_s: float, most_s: float, words: str) -> None:
    if path in found and value_s > most_s:
        raise found.places[path].error(f"a duration of at most {words}")
