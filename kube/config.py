"""The API server's address and this process's credentials.

    in_cluster() -> ClusterConfig -> Client

A pod has them in its service-account mount; ``kube.kubeconfig`` reads kubeconfigs. Secrets stay out of ``repr``.
"""

import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kube.errors import ConfigError, UnavailableError

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_LIFE_S = 60.0
"""The seconds for which a token read from a file is used: the kubelet renews it long before it ends, in the
same file.
"""
_MOST_BYTES: Final = 16 << 20
"""The most bytes of a kubeconfig or a certificate; a device that never ends is refused."""


CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
"""The characters that an HTTP header may not have."""


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """One way to reach an API server.

    ``ca_pem``, ``cert_pem`` and ``key_pem`` are PEM text; ``token_file`` is read again as it rotates and wins over
    ``token``. ``namespace`` is the pod's or the context's own. ``headers`` go with every request (impersonation).
    ``ca_source`` and ``cert_source`` are the places of the certificates, for errors.
    """

    server: str
    ca_pem: str | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    cert_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    namespace: str = "default"
    proxy_url: str | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = ()
    ca_source: str = ""
    cert_source: str = ""

    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context for ``server``, None for plain http.

        Raises ConfigError where a certificate or key cannot be used.
        """
        if not self.server.startswith("https://"):
            return None
        source = self.ca_source if self.ca_pem is not None else ""
        try:
            # Comments between certificates may have other characters, and Python's ssl takes none.
            authorities = None if self.ca_pem is None else self.ca_pem.encode("ascii", "ignore").decode()
            context = ssl.create_default_context(cadata=authorities)
            if self.cert_pem is not None and self.key_pem is not None:
                source = self.cert_source
                _load_cert_chain(context, self.cert_pem, self.key_pem)
        except (ssl.SSLError, ValueError) as error:
            place = f"{source}: " if source else ""
            raise ConfigError(f"{place}TLS material for {self.server} is unusable: {error}") from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class TokenSource:
    """The bearer token, read again from its file once a minute, or when the server refused it."""

    def __init__(self, config: ClusterConfig, *, monotonic: Callable[[], float]) -> None:
        self._file = config.token_file
        self._token = config.token
        self._monotonic = monotonic
        self._read_at: float | None = None

    def token(self) -> str | None:
        """The token to send, or None. A file that cannot be used leaves the last one in use.

        Raises UnavailableError where there was none before.
        """
        now = self._monotonic()
        if self._file is not None and (self._read_at is None or now - self._read_at >= _TOKEN_LIFE_S):
            self._read_at = now
            try:
                self._token = token_of(self._file, "a token")
            except ConfigError as wrong:
                if self._token is None:
                    self._read_at = None
                    raise UnavailableError(str(wrong)) from None
        return self._token

    def refused(self) -> bool:
        """Take note that the server answered 401. True if another token is there to try."""
        before = self._token
        self._read_at = None
        return self._file is not None and self.token() != before


def in_cluster(*, root: Path = SERVICE_ACCOUNT_DIR, environ: Mapping[str, str] = os.environ) -> ClusterConfig:
    """Configuration of a pod, from its environment and the service-account mount. Raises ConfigError outside of one."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT") or "443"
    if not host:
        raise ConfigError("KUBERNETES_SERVICE_HOST is not set: outside a pod a kubeconfig file must be named")
    token_file, namespace = root / "token", root / "namespace"
    read_text(token_file, "the pod's service-account token")
    return ClusterConfig(
        server=f"https://[{host}]:{port}" if ":" in host or "%" in host else f"https://{host}:{port}",
        ca_pem=read_text(root / "ca.crt", "the cluster's CA certificate"),
        token_file=token_file,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def read_text(path: Path, what: str, *, empty: bool = False) -> str:
    """A file's text, without a byte order mark. Raises ConfigError, naming ``what`` was expected; also for an empty
    file, unless it may be ``empty``: without an authority the system's would be trusted.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # a NUL in a path is a ValueError
        found = str(getattr(error, "strerror", None) or error).lower()
        raise ConfigError(f"{path}: found {found}, expected {what}") from None
    if len(raw) > _MOST_BYTES:
        raise ConfigError(f"{path}: found more than {_MOST_BYTES >> 20} MiB, expected {what}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = raw.count(b"\n", 0, wrong.start) + 1
        raise ConfigError(f"{path}:{line}: found bytes that are no UTF-8, expected UTF-8 text") from None
    if not empty and not text.strip():
        raise ConfigError(f"{path}: found nothing in it, expected {what}")
    return text


def token_of(path: Path, what: str) -> str:
    """A file's token. Raises ConfigError where the file has none that a header could carry; the error does not
    show it.
    """
    token = read_text(path, what).strip()
    if CONTROL.search(token):
        raise ConfigError(f"{path}: found a control character in it, expected {what} in one line")
    return token


def _load_cert_chain(context: ssl.SSLContext, cert_pem: str, key_pem: str) -> None:
    """Load the client certificate. Python's ssl loads it from a file only: this file is in memory, so no key touches a
    disk.
    """
    descriptor = os.memfd_create("client-certificate")
    try:
        os.write(descriptor, f"{cert_pem.rstrip()}\n{key_pem}".encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
