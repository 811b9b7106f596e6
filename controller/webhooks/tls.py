"""A certificate and its key into a TLS context, without a file on any disk."""

import os
import ssl

from controller.webhooks.certificates import CertificateError


def load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """The key goes through memory alone: the library reads files, and this one has no name on any disk.

    Raises CertificateError.
    """
    descriptor = os.memfd_create("certificate")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(key.rstrip() + b"\n" + certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except ssl.SSLError as error:
        # Only the library's reason: its text never holds the key, the exception's context might.
        raise CertificateError(f"the serving certificate cannot be used: {error.reason}") from None
    finally:
        os.close(descriptor)
