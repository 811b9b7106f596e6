"""TLS of the port: the certificate that it presents, and the peers' certificates that it verifies.

Both can be exchanged while it serves: each connection takes what is current when it begins. Sessions are not resumed,
so that a peer is verified by the present authorities.
"""

import ssl
from typing import Final

from cryptography import x509

from controller.cluster.webhooks.certificates import Pair
from controller.cluster.webhooks.tls import CertificateError, Served, load

NO_AUTHORITIES: Final = b""


class PeerContext(ssl.SSLContext):
    """A context of connections. ``trusted``: the bundle by which their peers were verified."""

    trusted: bytes = NO_AUTHORITIES


def serving(served: Served, trusted: bytes) -> PeerContext:
    """A server's context: a peer may show a certificate, and one that none of ``trusted`` signed is cut off.

    Raises CertificateError.
    """
    context = PeerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    # Every certificate of the bundle may end a chain, as in Go's verification.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = ssl.CERT_OPTIONAL
    load(context, served.certificate, served.key)
    try:
        if trusted.strip():
            context.load_verify_locations(cadata=trusted.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError(f"the authorities of peers cannot be used: {error}") from None
    context.trusted = trusted
    return context


def calling(pair: Pair, trusted: bytes) -> ssl.SSLContext:
    """The context of a replica that calls another one. Raises CertificateError."""
    context = ssl.create_default_context(cadata=trusted.decode("ascii"))
    load(context, pair.certificate, pair.key)
    return context


class Door:
    """The port's context. ``context``: what a listener takes once. Its connections get what was ``use``d last."""

    def __init__(self) -> None:
        self._current: PeerContext | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        self.context.num_tickets = 0
        # A connection asks its peer for a certificate by the mode of the context that it began with, and verifies it by
        # the flags of that context too: an intermediate authority may have signed a front proxy's certificate.
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self.context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        self.context.sni_callback = self._chosen

    def use(self, served: Served, trusted: bytes) -> None:
        """Uses this certificate and bundle from now on. Raises CertificateError; the former ones then stay."""
        self._current = serving(served, trusted)

    def _chosen(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        if self._current is None:
            return ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None


def trusted_by(connection: ssl.SSLObject) -> bytes | None:
    """The bundle by which the connection's peer was verified."""
    return getattr(connection.context, "trusted", None)


def peer_of(connection: ssl.SSLObject | None, trusted: bytes) -> x509.Certificate | None:
    """The peer's certificate; None without one, or if another bundle than ``trusted`` verified it."""
    if connection is None or trusted_by(connection) != trusted:
        return None
    shown = connection.getpeercert(binary_form=True)
    return None if shown is None else x509.load_der_x509_certificate(shown)
