"""What is in the cookie, and that nobody else can read or make it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.people.page.session import Seal, Seals, Session, TooLongError
from controller.people.visibility.identity import User

SEAL = Seal(b"a key of the replicas", "session")


@settings(max_examples=20)
@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=900), st.floats(1, 1e10))
def test_a_session_comes_back_as_it_was_until_it_expires(token: str, expires_s: float) -> None:
    session = Session(expires_s=expires_s, token=token)
    text = SEAL.sealed(session)
    assert SEAL.session(text, 0.0) == session
    assert SEAL.session(text, expires_s) is None


def test_a_user_comes_back_with_groups() -> None:
    session = Session(expires_s=9.0, user=User("oidc:alice", groups=("a", "b"), extra=(("k", ("v",)),)))
    assert SEAL.session(SEAL.sealed(session), 1.0) == session
    assert "alice" not in repr(session)


def test_what_another_key_or_purpose_sealed_or_somebody_changed_opens_nothing() -> None:
    session = Session(expires_s=9e9, token="secret")
    text = SEAL.sealed(session)
    assert "secret" not in text
    assert Seal(b"another key", "session").session(text, 0.0) is None
    assert Seal(b"a key of the replicas", "signing in").session(text, 0.0) is None
    for at in (0, len(text) // 2, len(text) - 2):
        changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        assert SEAL.session(changed, 0.0) is None
    for forged in ("", "A", "é", "A" * 40, "A" * 10_000):
        assert SEAL.session(forged, 0.0) is None


def test_what_a_former_or_announced_key_sealed_opens_and_keys_are_derived_once() -> None:
    session = Session(expires_s=9e9, token="secret")
    secrets: tuple[bytes, ...] = ()
    seals = Seals(lambda: secrets)
    assert seals.of("session") is None
    secrets = (b"old",)
    before = seals.of("session")
    assert before is not None
    assert seals.of("session") is before
    old = before.sealed(session)
    secrets = (b"new", b"old")
    after = seals.of("session")
    assert after is not None
    assert after.session(old, 0.0) == session
    assert before.session(after.sealed(session), 0.0) is None, "the first key seals"
    secrets = (b"old", b"new")
    behind = seals.of("session")
    assert behind is not None
    assert behind.session(after.sealed(session), 0.0) == session


def test_a_token_that_no_cookie_holds_is_refused_with_its_length() -> None:
    import secrets

    with pytest.raises(TooLongError, match="expected at most 3900"):
        SEAL.sealed(Session(expires_s=9.0, token=secrets.token_urlsafe(5_000)))
