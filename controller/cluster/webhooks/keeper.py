"""The Secret that the replicas share: it is read, brought up to date, and written with the version that was read.

If two replicas start together, one creates the Secret and the other reads it; so do they at a renewal.
"""

import logging
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from controller.cluster.webhooks.certificates import Kept, Pair, advanced, check_pair, split
from controller.cluster.webhooks.tls import CertificateError, Served
from failpoints import points
from failpoints.names import Failpoint
from kube.client import Client
from kube.clock import Clock
from kube.errors import ConflictError, NotFoundError, UnavailableError
from kube.objects import ObjectMeta
from kube.resources import Resource

log = logging.getLogger(__name__)

SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)

_ATTEMPTS = 5
"""Lost races in one round. Each loss means that another replica made progress."""


class Secret(Struct, frozen=True):
    """A Secret; ``data`` is base64. Its repr shows no data."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys {', '.join(sorted(self.data))})"


@dataclass(frozen=True)
class SecretName:
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class OwnCertificates:
    """Certificates of the controller's own authority, kept in ``secret``. ``names``: DNS names and addresses of the
    serving certificate.
    """

    def __init__(self, client: Client, secret: SecretName, *, names: Sequence[str], clock: Clock) -> None:
        self._client = client
        self._secret = secret
        self._names = tuple(names)
        self._clock = clock
        self._last: Kept | None = None
        self._former: Pair | None = None

    async def current(self) -> Served:
        """The certificate to serve now, after every step that is due was written. Raises KubeError."""
        for _ in range(_ATTEMPTS):
            try:
                certificates = await self._round()
            except ConflictError:
                continue
            if self._last is not None and self._last.issuer != certificates.issuer:
                self._former = self._last.issuer
            self._last = certificates
            return Served(
                certificate=certificates.serving.certificate, key=certificates.serving.key, trusted=certificates.trusted
            )
        raise UnavailableError(f"Secret {self._secret}: others kept writing it")

    @property
    def authority(self) -> Pair:
        """The authority that signs now. ``current`` comes first."""
        assert self._last is not None, "nothing was read yet"
        return self._last.issuer

    @property
    def authorities(self) -> tuple[Pair, ...]:
        """The authority that signs now, the announced one, and the former one while its certificate is trusted:
        replicas read the Secret a minute apart, so others may be one step ahead or behind. ``current`` comes first.
        """
        assert self._last is not None, "nothing was read yet"
        former = self._former
        others = self._last.next, former if former and former.certificate in self._last.retired else None
        return self._last.issuer, *(pair for pair in others if pair is not None)

    async def _round(self) -> Kept:
        try:
            secret = await self._client.get(SECRETS, self._secret.name, Secret, namespace=self._secret.namespace)
        except NotFoundError:
            # The Secret was deleted while this replica serves: the authority that the API server trusts is restored,
            # not replaced.
            wanted = advanced(self._last, self._names, self._clock.wall())
            points.before(Failpoint.CERTIFICATES)
            await self._client.create(SECRETS, self._body(wanted, ""), Secret, namespace=self._secret.namespace)
            points.after(Failpoint.CERTIFICATES)
            log.info("created Secret %s with certificates", self._secret)
            return wanted
        kept = self._read(secret)
        wanted = advanced(kept, self._names, self._clock.wall())
        if wanted != kept:
            body = self._body(wanted, secret.metadata.resource_version)
            points.before(Failpoint.CERTIFICATES_RENEWED)
            await self._client.update(SECRETS, self._secret.name, body, Secret, namespace=self._secret.namespace)
            points.after(Failpoint.CERTIFICATES_RENEWED)
            log.info("renewed the certificates in Secret %s", self._secret)
        return wanted

    def _read(self, found: Secret) -> Kept | None:
        try:
            return read(found.data)
        except CertificateError as error:
            log.warning("Secret %s: %s: starting with what is known", self._secret, error)
            return self._last

    def _body(self, kept: Kept, version: str) -> dict[str, object]:
        metadata = {"name": self._secret.name, "namespace": self._secret.namespace}
        if version:
            metadata["resourceVersion"] = version
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": metadata,
            "data": written(kept),
        }


class GivenCertificates:
    """Certificates that another system (such as cert-manager) keeps in ``secret``: tls.crt, tls.key and ca.crt."""

    def __init__(self, client: Client, secret: SecretName) -> None:
        self._client = client
        self._secret = secret

    async def current(self) -> Served:
        """The certificate in the Secret. Raises KubeError, and CertificateError that names the Secret for one that
        cannot be served.
        """
        secret = await self._client.get(SECRETS, self._secret.name, Secret, namespace=self._secret.namespace)
        try:
            served = Served(
                certificate=_data(secret.data, "tls.crt"),
                key=_data(secret.data, "tls.key"),
                trusted=_data(secret.data, "ca.crt"),
            )
            split(served.certificate)
            split(served.trusted)
        except CertificateError as error:
            raise CertificateError(f"Secret {self._secret}: {error}") from None
        return served


def written(kept: Kept) -> dict[str, str]:
    """The Secret's data. Its first three keys are those of any TLS Secret."""
    pairs = {
        "tls.crt": kept.serving.certificate,
        "tls.key": kept.serving.key,
        "ca.crt": kept.trusted,
        "issuer.crt": kept.issuer.certificate,
        "issuer.key": kept.issuer.key,
    }
    if kept.next is not None:
        pairs |= {"next.crt": kept.next.certificate, "next.key": kept.next.key}
    return {key: b64encode(value).decode() for key, value in pairs.items()}


def read(data: dict[str, str]) -> Kept:
    """The certificates in the Secret's data, as ``written`` makes it. Raises CertificateError, one line that names the
    key and never shows its value.
    """
    issuer = _pair(data, "issuer")
    following = _pair(data, "next") if "next.crt" in data else None
    known = {issuer.certificate, following.certificate if following else b""}
    retired = tuple(certificate for certificate in split(_data(data, "ca.crt")) if certificate not in known)
    return Kept(issuer=issuer, serving=_pair(data, "tls"), next=following, retired=retired)


def _pair(data: dict[str, str], name: str) -> Pair:
    try:
        (certificate,) = split(_data(data, f"{name}.crt"))
    except ValueError as error:
        raise CertificateError(f"{name}.crt: {error}") from None
    pair = Pair(certificate=certificate, key=_data(data, f"{name}.key"))
    try:
        check_pair(pair)
    except CertificateError as error:
        raise CertificateError(f"{name}: {error}") from None
    return pair


def _data(data: dict[str, str], key: str) -> bytes:
    try:
        return b64decode(data[key], validate=True)
    except KeyError:
        raise CertificateError(f"{key}: missing") from None
    except (Base64Error, ValueError):
        raise CertificateError(f"{key}: no base64") from None
