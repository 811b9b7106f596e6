"""Certificates over time: what is due, and that whoever trusts an earlier bundle is never shut out too early."""

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.webhooks.certificates import (
    ANNOUNCED_S,
    AUTHORITY_S,
    DAY_S,
    HOUR_S,
    RENEW_S,
    SERVING_S,
    SUCCEED_S,
    Kept,
    Step,
    advanced,
    check_pair,
    due,
    new_authority,
    split,
)
from controller.cluster.webhooks.keeper import read, written
from controller.cluster.webhooks.tls import CertificateError

NOW_S = 1_800_000_000.0
NAMES = ("hook.ns.svc", "127.0.0.1")


def trusts(bundle: bytes, kept: Kept) -> bool:
    """Whether a client that trusts ``bundle`` accepts what is served."""
    serving = x509.load_pem_x509_certificate(kept.serving.certificate)
    for one in split(bundle):
        authority = x509.load_pem_x509_certificate(one)
        if authority.subject == serving.issuer and authority.public_key() is not None:
            try:
                serving.verify_directly_issued_by(authority)
            except Exception:  # noqa: BLE001 - any reason not to trust it
                continue
            return True
    return False


def valid(kept: Kept, now_s: float) -> bool:
    found = x509.load_pem_x509_certificate(kept.serving.certificate)
    return found.not_valid_before_utc.timestamp() <= now_s < found.not_valid_after_utc.timestamp()


FRESH = advanced(None, NAMES, NOW_S)


def test_a_start_makes_an_authority_and_what_it_signed() -> None:
    assert due(None, NAMES, NOW_S) is Step.START
    assert due(FRESH, NAMES, NOW_S) is None
    assert trusts(FRESH.trusted, FRESH)
    assert valid(FRESH, NOW_S)
    check_pair(FRESH.serving)
    names = x509.load_pem_x509_certificate(FRESH.serving.certificate).extensions
    held = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert held.get_values_for_type(x509.DNSName) == ["hook.ns.svc"]
    assert [str(address) for address in held.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("after_s", "step"),
    [
        (SERVING_S - RENEW_S - DAY_S, None),
        (SERVING_S - RENEW_S + DAY_S, Step.RENEW),
        (SERVING_S + DAY_S, Step.RENEW),
        (AUTHORITY_S - SUCCEED_S + DAY_S, Step.ANNOUNCE),
        (AUTHORITY_S + DAY_S, Step.START),
    ],
)
def test_what_is_due_when(after_s: float, step: Step | None) -> None:
    assert due(FRESH, NAMES, NOW_S + after_s) is step


def test_another_name_renews_the_serving_certificate_under_the_same_authority() -> None:
    renewed = advanced(FRESH, (*NAMES, "other.ns.svc"), NOW_S)
    assert renewed.issuer == FRESH.issuer
    assert renewed.serving != FRESH.serving
    assert trusts(FRESH.trusted, renewed)


def test_a_successor_is_known_for_an_hour_before_it_signs_and_the_old_one_stays_trusted() -> None:
    start_s = NOW_S + AUTHORITY_S - SUCCEED_S + DAY_S
    announced = advanced(FRESH, NAMES, start_s)
    assert announced.next is not None
    assert len(split(announced.trusted)) == 2
    assert trusts(FRESH.trusted, announced), "nothing is signed with what is not trusted yet"
    assert due(announced, NAMES, start_s + ANNOUNCED_S - 60) is None
    succeeded = advanced(announced, NAMES, start_s + ANNOUNCED_S + 60)
    assert succeeded.issuer == announced.next
    assert succeeded.next is None
    assert trusts(announced.trusted, succeeded)
    assert not trusts(FRESH.trusted, succeeded)
    assert succeeded.retired == (FRESH.issuer.certificate,)
    assert trusts(succeeded.trusted, announced), "a replica that still serves the old one is trusted"
    forgotten = advanced(succeeded, NAMES, NOW_S + AUTHORITY_S + DAY_S)
    assert forgotten.retired == ()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([HOUR_S / 2, DAY_S, 20 * DAY_S, 55 * DAY_S, 170 * DAY_S]), max_size=12))
def test_at_every_look_what_is_served_is_valid_and_trusted(pauses: list[float]) -> None:
    now_s, kept = NOW_S, FRESH
    for pause_s in pauses:
        now_s += pause_s
        before = kept
        kept = advanced(kept, NAMES, now_s)
        assert due(kept, NAMES, now_s) is None
        assert valid(kept, now_s)
        assert trusts(kept.trusted, kept)
        if pause_s < SUCCEED_S and valid(before, now_s):
            assert trusts(kept.trusted, before), "replicas exchange their certificate one after the other"
        assert read(written(kept)) == kept


def test_looking_often_never_serves_what_the_bundle_before_does_not_trust() -> None:
    now_s, kept = NOW_S, FRESH
    while now_s < NOW_S + AUTHORITY_S + 60 * DAY_S:
        near = kept.next is not None
        now_s += HOUR_S / 4 if near else 5 * DAY_S
        bundle = kept.trusted
        kept = advanced(kept, NAMES, now_s)
        assert trusts(bundle, kept)


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt", "issuer.crt", "issuer.key"])
@pytest.mark.parametrize("value", [None, "!", "", "Zm9v"], ids=["missing", "no base64", "empty", "no pem"])
def test_a_damaged_secret_is_named_by_key(key: str, value: str | None) -> None:
    data = written(FRESH)
    if value is None:
        del data[key]
    else:
        data[key] = value
    with pytest.raises(CertificateError) as damaged:
        read(data)
    assert key.partition(".")[0] in str(damaged.value) or key in str(damaged.value)


def test_a_key_of_another_certificate_is_found() -> None:
    data = written(FRESH) | {"issuer.key": written(advanced(None, NAMES, NOW_S))["issuer.key"]}
    with pytest.raises(CertificateError, match=r"^issuer: the key is not the certificate's"):
        read(data)


def test_no_repr_and_no_error_shows_a_key() -> None:
    assert "PRIVATE" not in repr(FRESH)
    assert "PRIVATE" not in repr(new_authority(NOW_S))
    with pytest.raises(CertificateError) as damaged:
        split(FRESH.issuer.key)
    assert "PRIVATE" not in str(damaged.value)
