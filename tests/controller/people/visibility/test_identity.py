import time

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.webhooks.certificates import Pair, new_authority, new_client
from controller.people.visibility.identity import (
    AMONG_REPLICAS,
    MAX_GROUPS,
    MAX_TOKEN,
    REPLICA,
    FrontProxy,
    FrontProxyError,
    User,
    as_headers,
    bearer,
    from_headers,
    front_proxy,
    is_replica,
    reviewed,
    speaks_for_users,
    spoken,
)

NOW = time.time()
OURS, THEIRS, OTHERS = (new_authority(NOW) for _ in range(3))
PROXY = FrontProxy(trusted=THEIRS.certificate, names=frozenset({"front-proxy-client"}))


def shown(authority: Pair, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(new_client(authority, name, NOW).certificate)


def test_headers_count_by_the_front_proxys_authority_and_an_allowed_name_alone() -> None:
    own = OURS.certificate
    assert speaks_for_users(shown(THEIRS, "front-proxy-client"), PROXY, own)
    assert not speaks_for_users(shown(THEIRS, "kubelet"), PROXY, own)
    assert not speaks_for_users(None, PROXY, own)
    anybody = FrontProxy(trusted=THEIRS.certificate, names=frozenset())
    assert speaks_for_users(shown(THEIRS, "kubelet"), anybody, own)
    assert not speaks_for_users(shown(OURS, "kubelet"), anybody, own), "the replicas' authority is for replicas"
    assert not speaks_for_users(shown(OURS, REPLICA), anybody, own)
    assert not speaks_for_users(shown(THEIRS, "kubelet"), FrontProxy(trusted=b"", names=frozenset()), own)


def test_a_replica_is_known_by_the_replicas_own_authority() -> None:
    own = OTHERS.certificate + OURS.certificate
    assert is_replica(shown(OURS, REPLICA), own)
    assert not is_replica(shown(THEIRS, REPLICA), own)
    assert not is_replica(shown(OURS, "front-proxy-client"), own)
    assert not is_replica(shown(OURS, REPLICA), b"")
    assert not is_replica(None, own)
    assert speaks_for_users(shown(OURS, REPLICA), AMONG_REPLICAS, own)
    assert not speaks_for_users(shown(THEIRS, REPLICA), AMONG_REPLICAS, own)


def test_the_front_proxy_is_what_the_cluster_says() -> None:
    data = {
        "requestheader-client-ca-file": THEIRS.certificate.decode(),
        "requestheader-allowed-names": '["a", "b"]',
        "requestheader-username-headers": '["X-Remote-User", "X-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    found = front_proxy(data)
    assert found is not None
    assert (sorted(found.names), found.user, found.uid) == (["a", "b"], ("x-remote-user", "x-user"), ())
    assert from_headers([("X-User", "u"), ("X-Remote-Uid", "1")], found) == User("u")
    noted = {**data, "requestheader-client-ca-file": "# signé par nous\n" + THEIRS.certificate.decode()}
    assert front_proxy(noted) == found
    assert front_proxy({}) is None
    assert front_proxy({**data, "requestheader-client-ca-file": " \n"}) is None
    for key, value, said in (
        ("requestheader-client-ca-file", "none", "requestheader-client-ca-file: no certificates in PEM"),
        ("requestheader-allowed-names", "{", "requestheader-allowed-names: "),
        ("requestheader-allowed-names", "[1]", "requestheader-allowed-names: "),
    ):
        with pytest.raises(FrontProxyError, match=f"^{said}"):
            front_proxy({**data, key: value})


TEXT = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=9)
KEYS = st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), min_size=1, max_size=9).map(str.lower)
USERS = st.builds(
    User,
    name=TEXT,
    uid=st.just("") | TEXT,
    groups=st.lists(TEXT, max_size=4).map(tuple),
    extra=st.dictionaries(KEYS, st.lists(TEXT, min_size=1, max_size=3).map(tuple), max_size=3).map(
        lambda found: tuple(sorted(found.items()))
    ),
)


@given(USERS)
def test_a_user_survives_the_way_through_headers_and_reviews(user: User) -> None:
    assert from_headers(as_headers(user), AMONG_REPLICAS) == user
    spec = spoken(user)
    told = {"username": spec["user"], **{key: spec[key] for key in ("uid", "groups", "extra")}}
    assert reviewed({"authenticated": True, "user": told}) == user


def test_headers_without_a_name_or_with_too_many_groups_are_nobodys() -> None:
    assert from_headers([("X-Remote-Group", "system:masters")], AMONG_REPLICAS) is None
    assert from_headers([("X-Remote-User", "")], AMONG_REPLICAS) is None
    many = [("X-Remote-Group", str(number)) for number in range(MAX_GROUPS)]
    assert from_headers([("X-Remote-User", "a"), *many], AMONG_REPLICAS) is not None
    assert from_headers([("X-Remote-User", "a"), *many, ("X-Remote-Group", "x")], AMONG_REPLICAS) is None


@pytest.mark.parametrize(
    ("sent", "token"),
    [
        ([("Authorization", "Bearer abc")], "abc"),
        ([("authorization", "bearer  abc ")], "abc"),
        ([("Authorization", f"Bearer {'x' * MAX_TOKEN}")], "x" * MAX_TOKEN),
        ([("Authorization", f"Bearer {'x' * (MAX_TOKEN + 1)}")], None),
        ([("Authorization", "Bearer a b")], None),
        ([("Authorization", "Bearer ")], None),
        ([("Authorization", "Bearer \u00e9")], None),
        ([("Authorization", "Bearer a\x01")], None),
        ([("Authorization", "Basic abc")], None),
        ([("Authorization", "Bearer a"), ("Authorization", "Bearer b")], None),
        ([], None),
    ],
)
def test_a_token_is_the_one_bearers(sent: list[tuple[str, str]], token: str | None) -> None:
    assert bearer(sent) == token


@pytest.mark.parametrize(
    "status",
    [
        None,
        [],
        {"authenticated": False, "user": {"username": "a"}},
        {"authenticated": "yes", "user": {"username": "a"}},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": ""}},
        {"authenticated": True, "user": {"username": 7}},
        {"authenticated": True, "user": {"username": "a", "groups": "system:masters"}},
        {"authenticated": True, "user": {"username": "a", "groups": ["g"] * (MAX_GROUPS + 1)}},
        {"authenticated": True, "user": {"username": "a"}, "error": "expired"},
    ],
)
def test_a_review_that_tells_of_no_user_lets_nobody_in(status: object) -> None:
    assert reviewed(status) is None
