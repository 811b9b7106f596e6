"""The controller's certificates: its own authority, the steps of rotation and their times, and issuing. No I/O; time is
an argument.

An authority is succeeded in two steps, so that no replica ever serves what the API server does not trust yet: the next
authority is announced (its certificate joins the bundle, nothing is signed with it), and an hour later, when every
caBundle has long been written, it takes over. The old one stays in the bundle until it expires.

Times are Unix seconds, certificates and keys PEM. Keys are left out of every repr.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller.cluster.webhooks.tls import CertificateError

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S

AUTHORITY_S: Final = 730 * DAY_S
"""The life of an authority."""
SUCCEED_S: Final = 180 * DAY_S
"""The rest of an authority's life at which its successor is announced."""
ANNOUNCED_S: Final = HOUR_S
"""The time for which a successor is announced before it signs anything."""
SERVING_S: Final = 90 * DAY_S
"""Life of a serving certificate, never beyond its authority's."""
RENEW_S: Final = 30 * DAY_S
"""The rest of a serving certificate's life at which it is renewed."""
SKEW_S: Final = HOUR_S
"""The time by which certificates start before now: clocks of a cluster differ."""


class Step(Enum):
    """The next step of certificate rotation."""

    START = "start anew"
    ANNOUNCE = "announce the next authority"
    SUCCEED = "sign with the next authority"
    RENEW = "renew the serving certificate"
    FORGET = "forget an expired authority"


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Kept:
    """Everything that the replicas share."""

    issuer: Pair
    serving: Pair
    next: Pair | None = None
    retired: tuple[bytes, ...] = ()
    """Certificates of earlier authorities, trusted until they expire."""

    @property
    def trusted(self) -> bytes:
        """The bundle for caBundle, the signing authority first."""
        following = (self.next.certificate,) if self.next else ()
        return b"".join((self.issuer.certificate, *following, *self.retired))


def due(kept: Kept | None, names: Sequence[str], now_s: float) -> Step | None:
    """The next step of rotation, None if none is due. ``names``: the names in the serving certificate."""
    if kept is None:
        return Step.START
    left_s = _until(kept.issuer.certificate) - now_s
    next_left_s = _until(kept.next.certificate) - now_s if kept.next else 0.0
    if left_s <= 0 and next_left_s <= 0:
        return Step.START
    if kept.next is None and left_s < SUCCEED_S:
        return Step.ANNOUNCE
    if kept.next is not None:
        announced_s = _since(kept.next.certificate) + SKEW_S
        # An authority that is about to expire is replaced at once: an authority that is not trusted everywhere yet is
        # better than an expired one.
        if next_left_s <= 0 or now_s >= announced_s + ANNOUNCED_S or left_s <= ANNOUNCED_S:
            return Step.SUCCEED if next_left_s > 0 else Step.ANNOUNCE
    if not _serves(kept, names):
        return Step.RENEW
    ends_s = _until(kept.serving.certificate)
    # A certificate that ends with its authority must not be renewed over and over.
    if ends_s - now_s < RENEW_S and min(now_s + SERVING_S, _until(kept.issuer.certificate)) > ends_s + DAY_S:
        return Step.RENEW
    if any(_until(certificate) <= now_s for certificate in kept.retired):
        return Step.FORGET
    return None


def advanced(kept: Kept | None, names: Sequence[str], now_s: float) -> Kept:
    """``kept`` after every step that is due."""
    while (step := due(kept, names, now_s)) is not None:
        kept = _done(step, kept, names, now_s)
    assert kept is not None, "nothing kept is always due a start"
    return kept


def _done(step: Step, kept: Kept | None, names: Sequence[str], now_s: float) -> Kept:
    if kept is None or step is Step.START:
        issuer = new_authority(now_s)
        return Kept(issuer=issuer, serving=new_serving(issuer, names, now_s))
    if step is Step.ANNOUNCE:
        return replace(kept, next=new_authority(now_s))
    if step is Step.SUCCEED:
        assert kept.next is not None, "only an announced authority succeeds"
        retired = (kept.issuer.certificate, *kept.retired)
        return Kept(issuer=kept.next, serving=new_serving(kept.next, names, now_s), retired=retired)
    if step is Step.RENEW:
        return replace(kept, serving=new_serving(kept.issuer, names, now_s))
    return replace(kept, retired=tuple(certificate for certificate in kept.retired if _until(certificate) > now_s))


def new_authority(now_s: float) -> Pair:
    """A self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tessera controller")])
    builder = (
        _builder(name, name, key.public_key(), now_s, now_s + AUTHORITY_S)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(builder, key, key)


def new_serving(issuer: Pair, names: Sequence[str], now_s: float) -> Pair:
    """A serving certificate for DNS names and addresses."""
    return _leaf(issuer, "tessera", ExtendedKeyUsageOID.SERVER_AUTH, names, now_s)


def new_client(issuer: Pair, common_name: str, now_s: float) -> Pair:
    """A certificate for a client. It lives as long as a serving one."""
    return _leaf(issuer, common_name, ExtendedKeyUsageOID.CLIENT_AUTH, (), now_s)


def _leaf(issuer: Pair, common_name: str, usage: x509.ObjectIdentifier, names: Sequence[str], now_s: float) -> Pair:
    authority, authority_key = _certificate(issuer.certificate), _key(issuer.key)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    until_s = min(now_s + SERVING_S, authority.not_valid_after_utc.timestamp())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _builder(subject, authority.subject, key.public_key(), now_s, until_s)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(identifier, critical=False)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_general(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    return _signed(builder, key, authority_key)


def check_pair(pair: Pair) -> None:
    """Checks that the key belongs to the certificate. Raises CertificateError."""
    if _certificate(pair.certificate).public_key() != _key(pair.key).public_key():
        raise CertificateError("the key is not the certificate's")


def split(bundle: bytes) -> tuple[bytes, ...]:
    """The certificates of a bundle, each as PEM. Raises CertificateError if there is none."""
    try:
        found = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        raise CertificateError("no certificates in PEM") from None
    return tuple(certificate.public_bytes(serialization.Encoding.PEM) for certificate in found)


def _serves(kept: Kept, names: Sequence[str]) -> bool:
    """Whether the issuer signed the serving certificate, and it has these ``names``."""
    serving = _certificate(kept.serving.certificate)
    try:
        serving.verify_directly_issued_by(_certificate(kept.issuer.certificate))
        held = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return {_general(name) for name in names} <= set(held)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now_s: float, until_s: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now_s - SKEW_S, UTC))
        .not_valid_after(datetime.fromtimestamp(until_s, UTC))
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey) -> Pair:
    certificate = builder.sign(by, hashes.SHA256())
    return Pair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def _certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise CertificateError("no certificate in PEM") from None


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        # The library's message is not passed on: it may quote what it could not read.
        raise CertificateError("no private key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the private key is not of an elliptic curve")
    return key


def _since(pem: bytes) -> float:
    return _certificate(pem).not_valid_before_utc.timestamp()


def _until(pem: bytes) -> float:
    return _certificate(pem).not_valid_after_utc.timestamp()
