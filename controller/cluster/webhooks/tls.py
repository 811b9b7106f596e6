"""Loads a certificate and its key into a TLS context, without a file on any disk."""

import os
import ssl
from dataclasses import dataclass, field


class CertificateError(ValueError):
    """A certificate or key is missing, or they do not belong together: one line, never with the key."""


@dataclass(frozen=True)
class Served:
    """A server's certificate and key, and the certificates that its callers must trust. PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    trusted: bytes


def load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Loads the certificate and the key. The key goes through memory alone: the library reads files, and this one has
    no name on any disk.

    Raises CertificateError.
    """
    descriptor = os.memfd_create("certificate")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(key.rstrip() + b"\n" + certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except ssl.SSLError as error:
        # Only the library's reason is passed on: its text never holds the key, the exception's context might.
        raise CertificateError(f"the serving certificate cannot be used: {error.reason}") from None
    finally:
        os.close(descriptor)


def tried(served: Served) -> None:
    """Checks a certificate before it replaces the one in use. Raises CertificateError if it cannot be used."""
    load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), served.certificate, served.key)
