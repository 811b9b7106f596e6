"""Claims become the user that the API server's own flags would make of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.config.pagesettings import OidcProvider
from controller.people.signin.tokenclaims import SKEW_S, TokenClaimsError, check, user
from controller.people.visibility.identity import MAX_GROUPS, User

ISSUER = "https://login.example.com"


def provider(**given: Any) -> OidcProvider:
    return OidcProvider(issuer_url=ISSUER, client_id="tessera", redirect_url="https://t/page/oidc/callback", **given)


@pytest.mark.parametrize(
    ("settings", "claims", "name"),
    [
        ({}, {"sub": "7"}, f"{ISSUER}#7"),
        ({"username_prefix": "-"}, {"sub": "7"}, "7"),
        ({"username_prefix": "oidc:"}, {"sub": "7"}, "oidc:7"),
        ({"username_claim": "email"}, {"email": "a@b"}, "a@b"),
        ({"username_claim": "email"}, {"email": "a@b", "email_verified": True}, "a@b"),
        ({"username_claim": "name"}, {"sub": "7", "name": "alice"}, f"{ISSUER}#alice"),
    ],
)
def test_names_are_those_of_the_api_server(settings: dict[str, Any], claims: dict[str, Any], name: str) -> None:
    assert user(claims, provider(**settings)) == User(name)


@pytest.mark.parametrize(
    ("settings", "claims"),
    [
        ({"username_claim": "email"}, {"email": "a@b", "email_verified": False}),
        ({"username_claim": "email"}, {"email": "a@b", "email_verified": "true"}),
        ({"username_prefix": "-"}, {"sub": "system:admin"}),
        ({"username_prefix": "-"}, {"sub": ""}),
        ({"username_prefix": "-"}, {"sub": "a\nb"}),
        ({"username_prefix": "-"}, {"sub": ["a"]}),
        ({"groups_claim": "groups"}, {"sub": "7", "groups": [7]}),
        ({"groups_claim": "groups"}, {"sub": "7", "groups": ["g"] * (MAX_GROUPS + 1)}),
    ],
)
def test_what_names_nobody_signs_nobody_in(settings: dict[str, Any], claims: dict[str, Any]) -> None:
    with pytest.raises(TokenClaimsError):
        user(claims, provider(**settings))


def test_groups_have_their_prefix_and_none_is_the_clusters_own() -> None:
    settings = provider(username_prefix="-", groups_claim="groups")
    claims = {"sub": "a", "groups": ["system:masters", "people", "people"]}
    assert user(claims, settings).groups == ("people",)
    assert user({"sub": "a", "groups": "people"}, settings).groups == ("people",)
    assert user(claims, provider(username_prefix="-")).groups == ()
    prefixed = provider(username_prefix="-", groups_claim="groups", groups_prefix="oidc:")
    assert user(claims, prefixed).groups == ("oidc:system:masters", "oidc:people")


_JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=20), st.lists, max_leaves=5)


@given(
    st.dictionaries(st.sampled_from(["sub", "email", "email_verified", "groups"]), _JSON),
    st.sampled_from(["sub", "email"]),
)
def test_no_claims_make_a_user_of_the_clusters_own(claims: dict[str, Any], claim: str) -> None:
    try:
        found = user(claims, provider(username_claim=claim, username_prefix="-", groups_claim="groups"))
    except TokenClaimsError:
        return
    assert found.name == claims[claim]
    assert not any(name.startswith("system:") for name in (found.name, *found.groups))


def test_clocks_may_differ_by_a_little() -> None:
    claims = {"iss": ISSUER, "aud": "tessera", "nonce": "n", "iat": 1_000, "exp": 2_000}
    for now_s in (1_000 - SKEW_S, 1_500, 1_999 + SKEW_S):
        check(claims, provider(), "n", now_s)
    for now_s in (999 - SKEW_S, 2_000 + SKEW_S):
        with pytest.raises(TokenClaimsError):
            check(claims, provider(), "n", now_s)


def test_a_required_claim_is_required() -> None:
    claims = {"iss": ISSUER, "aud": ["tessera"], "nonce": "n", "iat": 1_000, "exp": 2_000}
    settings = provider(required_claims={"hd": "example.com"})
    check({**claims, "hd": "example.com"}, settings, "n", 1_500)
    for wrong in ({}, {"hd": "evil.example"}, {"hd": ["example.com"]}):
        with pytest.raises(TokenClaimsError, match=r"lacks the required claim hd: example\.com"):
            check({**claims, **wrong}, settings, "n", 1_500)
