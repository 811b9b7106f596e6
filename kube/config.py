"""The API server's address and this process's credentials: a pod's service-account mount, or one context of a
kubeconfig.

    in_cluster() | from_kubeconfig(path) -> ClusterConfig -> Client

The reader covers what the agent needs: a server, a CA, and a client certificate or a token. Logins (``exec``, OIDC) are
refused with an error: a daemon must not depend on a person's login tools. The controller and the command line read
theirs with the kubernetes package (``kube.kubeconfig``), which the agent cannot afford. Secrets stay out of ``repr``.
"""

import base64
import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kube.errors import ConfigError

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ADDRESS = re.compile(r"https?://[^\s/?#]\S*")
_TOKEN_LIFE_S = 60.0
"""How long a token read from a file is believed: kubelet renews it long before it ends, in the same file."""


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """One way to reach an API server.

    ``ca_pem``, ``cert_pem`` and ``key_pem`` are PEM text; ``token_file`` is read again as it rotates and wins over
    ``token``. ``namespace`` is the pod's or the context's own.
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

    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context for ``server``, None for plain http.

        Raises ConfigError where a certificate or key cannot be used.
        """
        if not self.server.startswith("https://"):
            return None
        try:
            # Other letters stand in comments between certificates, and Python's ssl takes none.
            authorities = None if self.ca_pem is None else self.ca_pem.encode("ascii", "ignore").decode()
            context = ssl.create_default_context(cadata=authorities)
            if self.cert_pem is not None and self.key_pem is not None:
                _load_cert_chain(context, self.cert_pem, self.key_pem)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"TLS material for {self.server} is unusable: {error}") from None
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
        """The token to send, or None. An unreadable file leaves the last one in use."""
        now = self._monotonic()
        if self._file is not None and (self._read_at is None or now - self._read_at >= _TOKEN_LIFE_S):
            self._read_at = now
            try:
                self._token = self._file.read_text().strip() or self._token
            except OSError:
                return self._token
        return self._token

    def refused(self) -> bool:
        """The server answered 401. True if another token is there to try."""
        before = self._token
        self._read_at = None
        return self._file is not None and self.token() != before


def load(kubeconfig: str | None, *, environ: Mapping[str, str] = os.environ) -> ClusterConfig:
    """The kubeconfig file where one is named, else the pod's service account. Raises ConfigError."""
    return in_cluster(environ=environ) if kubeconfig is None else from_kubeconfig(Path(kubeconfig))


def in_cluster(*, root: Path = SERVICE_ACCOUNT_DIR, environ: Mapping[str, str] = os.environ) -> ClusterConfig:
    """Configuration of a pod, from its environment and the service-account mount. Raises ConfigError outside of one."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("KUBERNETES_SERVICE_HOST is not set: outside a pod a kubeconfig file must be named")
    token_file = root / "token"
    if not token_file.exists():
        raise ConfigError(f"{token_file}: not there, expected the pod's service-account token")
    namespace = root / "namespace"
    return ClusterConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_pem=_read(root / "ca.crt", "the cluster's CA certificate"),
        token_file=token_file,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


class _Cluster(Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None


class _User(Struct, rename="kebab"):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    exec: dict[str, Any] | None = None
    auth_provider: dict[str, Any] | None = None


class _Context(Struct):
    cluster: str
    user: str = ""
    namespace: str = "default"


class _NamedCluster(Struct):
    name: str
    cluster: _Cluster


class _NamedUser(Struct):
    name: str
    user: _User = msgspec.field(default_factory=_User)


class _NamedContext(Struct):
    name: str
    context: _Context


class _Kubeconfig(Struct, rename={"current_context": "current-context"}):
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []
    current_context: str = ""


class KubeconfigContext(Struct, frozen=True):
    """One context with its cluster and its user, as the file has them."""

    context: str
    namespace: str
    cluster_name: str
    cluster: _Cluster
    user_name: str
    user: _User


def choose(path: Path, context: str | None = None) -> KubeconfigContext:
    """The context's entries, by default the current one's. Raises ConfigError naming the file and the key."""
    parsed = _parse(path)
    chosen = context or parsed.current_context
    ctx = next((item.context for item in parsed.contexts if item.name == chosen), None)
    if ctx is None:
        names = ", ".join(item.name for item in parsed.contexts) or "none"
        raise ConfigError(f"{path}: current-context: found {chosen!r}, expected one of the contexts: {names}")
    cluster = next((item.cluster for item in parsed.clusters if item.name == ctx.cluster), None)
    if cluster is None or not cluster.server:
        raise ConfigError(f"{path}: contexts[{chosen}].cluster: {ctx.cluster!r} is no cluster with a server")
    if _ADDRESS.fullmatch(cluster.server) is None:
        raise ConfigError(
            f"{path}: clusters[{ctx.cluster}].server: found {cluster.server!r}, expected https://HOST:PORT"
        )
    user = next((item.user for item in parsed.users if item.name == ctx.user), _User())
    if user.username is not None:
        raise ConfigError(_unsupported(path, ctx.user, "username"))
    return KubeconfigContext(chosen, ctx.namespace or "default", ctx.cluster, cluster, ctx.user, user)


def refuse_logins(path: Path, entry: KubeconfigContext) -> None:
    """Raises ConfigError where the user's credentials are to be fetched with a person's login tools."""
    for key, value in (("exec", entry.user.exec), ("auth-provider", entry.user.auth_provider)):
        if value is not None:
            raise ConfigError(_unsupported(path, entry.user_name, key))


def _unsupported(path: Path, name: str, key: str) -> str:
    return f"{path}: users[{name}].{key}: not supported here, expected a client certificate, token or tokenFile"


def from_kubeconfig(path: Path, *, context: str | None = None) -> ClusterConfig:
    """One context of a kubeconfig file, its current one by default; paths in it are relative to its folder.

    Raises ConfigError naming the file and the field.
    """
    entry = choose(path, context)
    refuse_logins(path, entry)
    cluster, user, secrets = entry.cluster, entry.user, _Reader(path)
    return ClusterConfig(
        server=cluster.server.rstrip("/"),
        ca_pem=secrets.pem("certificate-authority", cluster.certificate_authority, cluster.certificate_authority_data),
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        cert_pem=secrets.pem("client-certificate", user.client_certificate, user.client_certificate_data),
        key_pem=secrets.pem("client-key", user.client_key, user.client_key_data),
        token=user.token,
        token_file=path.parent / user.token_file if user.token_file else None,
        namespace=entry.namespace,
    )


def _parse(path: Path) -> _Kubeconfig:
    text = _read(path, "a kubeconfig file")
    try:
        if text.lstrip().startswith("{"):
            return msgspec.json.decode(text, type=_Kubeconfig)
        # Only here, only for YAML: the agent in a pod never pays for the parser.
        import yaml

        try:
            data = yaml.safe_load(text)
        # The parser's own errors, and those of numbers and dates that Python does not have.
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: not readable as YAML: {str(error).splitlines()[0]}") from None
        return msgspec.convert(data or {}, type=_Kubeconfig)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from None


class _Reader:
    """Reads the certificates that a kubeconfig holds or points to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pem(self, key: str, file: str | None, data: str | None) -> str | None:
        """``<key>-data`` (base64) wins over the file ``<key>``, as kubectl has it."""
        if data:
            try:
                return base64.b64decode(data, validate=True).decode()
            except ValueError:  # no base64, no ASCII, no text
                raise ConfigError(f"{self._path}: {key}-data: expected base64 of PEM text") from None
        return _read(self._path.parent / file, f"what {key} in {self._path} names") if file else None


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}, expected {what}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not text, expected {what}") from None


def _load_cert_chain(context: ssl.SSLContext, cert_pem: str, key_pem: str) -> None:
    """Python's ssl loads a certificate from a file only: this one is in memory, so no key touches a disk."""
    descriptor = os.memfd_create("client-certificate")
    try:
        os.write(descriptor, f"{cert_pem.rstrip()}\n{key_pem}".encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
