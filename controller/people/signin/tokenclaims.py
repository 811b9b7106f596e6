"""A verified ID token's claims as the user that the API server would see (its flags ``--oidc-*``). Pure.

The rules are stricter in one point: names that begin with ``system:`` are the cluster's own, and a provider must not
give one to anybody.
"""

import hmac
from collections.abc import Mapping
from typing import Any, Final

from controller.cluster.config.pagesettings import OidcProvider
from controller.people.visibility.identity import MAX_GROUPS, User

SKEW_S: Final = 30.0
"""The greatest difference between the clocks of a provider and this replica."""
_RESERVED: Final = "system:"
_MOST_NAME: Final = 1_024
_EMAIL: Final = "email"
_NO_PREFIX: Final = "-"

TokenClaims = Mapping[str, Any]


class TokenClaimsError(ValueError):
    """The ID token signs nobody in: one sentence for the person who is at the browser."""


def check(claims: TokenClaims, provider: OidcProvider, nonce: str, now_s: float) -> None:
    """Checks what the signature does not cover: audience, issuer, time and nonce. OpenID Connect Core 1.0, 3.1.3.7.
    Raises TokenClaimsError.
    """
    if claims.get("iss") != provider.issuer_url:
        raise TokenClaimsError("the ID token is another issuer's")
    audience = claims.get("aud")
    if isinstance(audience, str):
        audience = [audience]
    if not isinstance(audience, list) or provider.client_id not in audience:
        raise TokenClaimsError("the ID token is for another client")
    party = claims.get("azp")
    if (party is not None or len(audience) > 1) and party != provider.client_id:
        raise TokenClaimsError("the ID token was given to another client")
    said = claims.get("nonce")
    if not isinstance(said, str) or not hmac.compare_digest(said.encode(), nonce.encode()):
        raise TokenClaimsError("the ID token answers another sign-in (nonce)")
    if now_s >= _time(claims, "exp") + SKEW_S:
        raise TokenClaimsError("the ID token has expired")
    if now_s < max(_time(claims, "iat"), _time(claims, "nbf") if "nbf" in claims else 0.0) - SKEW_S:
        raise TokenClaimsError("the ID token is not valid yet: the provider's clock and the controller's differ")
    for name, value in provider.required_claims.items():
        if claims.get(name) != value:
            raise TokenClaimsError(f"the ID token lacks the required claim {name}: {value}")


def _time(claims: TokenClaims, name: str) -> float:
    """The claim of this name as seconds since 1970. Raises TokenClaimsError."""
    found = claims.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TokenClaimsError(f"the ID token has no {name}")
    return float(found)


def user(claims: TokenClaims, provider: OidcProvider) -> User:
    """The user that the claims name. Raises TokenClaimsError."""
    name = claims.get(provider.username_claim)
    if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME or not name.isprintable():
        raise TokenClaimsError(f"the ID token has no user name in the claim {provider.username_claim}")
    if provider.username_claim == _EMAIL and claims.get("email_verified", True) is not True:
        raise TokenClaimsError("the provider has not verified this user's e-mail address")
    user_name = _username_prefix(provider) + name
    if user_name.startswith(_RESERVED):
        raise TokenClaimsError(f"the user name begins with {_RESERVED}, which is the cluster's own")
    groups = tuple(dict.fromkeys(provider.groups_prefix + group for group in _groups(claims, provider)))
    return User(user_name, groups=tuple(group for group in groups if not group.startswith(_RESERVED)))


def _username_prefix(provider: OidcProvider) -> str:
    """The prefix of user names, from ``--oidc-username-prefix``: without the flag the issuer stands before every claim
    but an e-mail address.
    """
    if provider.username_prefix is None:
        return "" if provider.username_claim == _EMAIL else f"{provider.issuer_url}#"
    return "" if provider.username_prefix == _NO_PREFIX else provider.username_prefix


def _groups(claims: TokenClaims, provider: OidcProvider) -> list[str]:
    """The groups in the claims: one text, or several. Raises TokenClaimsError for anything else: a user with fewer
    groups would see less, and not know why.
    """
    found = claims.get(provider.groups_claim) if provider.groups_claim is not None else None
    if found is None:
        return []
    groups = [found] if isinstance(found, str) else found
    if not isinstance(groups, list) or len(groups) > MAX_GROUPS:
        raise TokenClaimsError(f"the claim {provider.groups_claim} is no list of at most {MAX_GROUPS} groups")
    if not all(isinstance(each, str) and 0 < len(each) <= _MOST_NAME and each.isprintable() for each in groups):
        raise TokenClaimsError(f"the claim {provider.groups_claim} has a group that is no name")
    return groups
