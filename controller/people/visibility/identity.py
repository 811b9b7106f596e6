"""The user behind a request: a bearer token, or headers of the API server's front proxy. Pure.

Headers count only from a peer whose certificate the front proxy's authority signed, under an allowed name: the
ConfigMap ``kube-system/extension-apiserver-authentication`` has both (Kubernetes documentation, "Configure the
Aggregation Layer").
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from controller.cluster.webhooks.certificates import split
from controller.cluster.webhooks.tls import CertificateError

MAX_TOKEN: Final = 16 * 1024
MAX_GROUPS: Final = 1000
"""The most groups of one user. A request with more is refused: no cluster has such a user."""
REPLICA: Final = "tessera replica"
"""The name in certificates by which replicas know one another. The replicas' own authority signs them."""

Headers = Iterable[tuple[str, str]]
"""The headers as they were sent: a name may come more than once."""


class FrontProxyError(ValueError):
    """The ConfigMap's data cannot be understood: one sentence."""


@dataclass(frozen=True)
class User:
    """A user as TokenReviews and SubjectAccessReviews have one."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class FrontProxy:
    """The front proxy. ``trusted``: its authorities, PEM. ``names``: of certificates that may speak for users; empty
    allows any.
    """

    trusted: bytes
    names: frozenset[str]
    user: tuple[str, ...] = ("x-remote-user",)
    uid: tuple[str, ...] = ("x-remote-uid",)
    group: tuple[str, ...] = ("x-remote-group",)
    extra: tuple[str, ...] = ("x-remote-extra-",)


AMONG_REPLICAS: Final = FrontProxy(trusted=b"", names=frozenset({REPLICA}))
"""The headers in which a replica hands on a user that it knows."""


def front_proxy(data: Mapping[str, str]) -> FrontProxy | None:
    """The front proxy in the ConfigMap's data; None if the cluster has none. Raises FrontProxyError."""
    bundle = data.get("requestheader-client-ca-file", "").encode()
    if not bundle.strip():
        return None
    try:
        # Text between certificates is left out: TLS takes certificates alone.
        trusted = b"".join(split(bundle))
    except CertificateError as error:
        raise FrontProxyError(f"requestheader-client-ca-file: {error}") from None
    return FrontProxy(
        trusted=trusted,
        names=frozenset(_listed(data, "requestheader-allowed-names")),
        user=_lower(data, "requestheader-username-headers"),
        uid=_lower(data, "requestheader-uid-headers"),
        group=_lower(data, "requestheader-group-headers"),
        extra=_lower(data, "requestheader-extra-headers-prefix"),
    )


def _listed(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(data.get(key) or "[]", type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise FrontProxyError(f"{key}: {error}") from None


def _lower(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in _listed(data, key) if name)


def speaks_for_users(certificate: x509.Certificate | None, proxy: FrontProxy, own: bytes) -> bool:
    """Whether headers of this peer count. TLS has verified that ``proxy``'s authorities or ``own`` ones signed its
    certificate.

    A certificate of the replicas' own authority must be a replica's, whatever names the proxy allows; a certificate of
    the proxy's authority must have an allowed name.
    """
    if certificate is None:
        return False
    if is_replica(certificate, own):
        return proxy is AMONG_REPLICAS
    if proxy is AMONG_REPLICAS or not proxy.trusted or _issued_by(certificate, own):
        return False
    return not proxy.names or _common_name(certificate) in proxy.names


def is_replica(certificate: x509.Certificate | None, own: bytes) -> bool:
    """Whether one of the authorities in ``own`` signed the certificate for a replica."""
    return certificate is not None and _common_name(certificate) == REPLICA and _issued_by(certificate, own)


def _issued_by(certificate: x509.Certificate, bundle: bytes) -> bool:
    for authority in x509.load_pem_x509_certificates(bundle) if bundle.strip() else ():
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def _common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if len(found) == 1 else ""


def from_headers(headers: Headers, proxy: FrontProxy) -> User | None:
    """The user that the front proxy names; None if it names none."""
    sent = [(name.lower(), value) for name, value in headers]
    name = next((value for wanted in proxy.user for key, value in sent if key == wanted and value), "")
    groups = tuple(value for wanted in proxy.group for key, value in sent if key == wanted)
    if not name or len(groups) > MAX_GROUPS:
        return None
    extra: dict[str, list[str]] = {}
    for prefix in proxy.extra:
        for key, value in sent:
            if key.startswith(prefix):
                extra.setdefault(unquote(key.removeprefix(prefix)), []).append(value)
    return User(
        name=name,
        uid=next((value for wanted in proxy.uid for key, value in sent if key == wanted), ""),
        groups=groups,
        extra=tuple((key, tuple(values)) for key, values in sorted(extra.items())),
    )


def as_headers(user: User) -> list[tuple[str, str]]:
    """The headers that ``from_headers`` reads, for another replica."""
    sent = [("X-Remote-User", user.name), *(("X-Remote-Group", group) for group in user.groups)]
    if user.uid:
        sent.append(("X-Remote-Uid", user.uid))
    sent += [(f"X-Remote-Extra-{_escaped(key)}", value) for key, values in user.extra for value in values]
    return sent


def _escaped(key: str) -> str:
    """The key in a header's name, which may have few characters: all others are percent-encoded, as client-go
    does it.
    """
    return "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else _percent(char) for char in key)


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


def bearer(headers: Headers) -> str | None:
    """The token of the one Authorization header; None if there is none, or more, or it is no token."""
    given = [value for name, value in headers if name.lower() == "authorization"]
    scheme, _, token = given[0].strip().partition(" ") if len(given) == 1 else ("", "", "")
    token = token.strip()
    usable = scheme.lower() == "bearer" and token.isascii() and token.isprintable() and " " not in token
    return token if usable and 0 < len(token) <= MAX_TOKEN else None


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _Review(msgspec.Struct):
    authenticated: bool = False
    user: _UserInfo = msgspec.field(default_factory=_UserInfo)
    error: str = ""


def reviewed(status: Any) -> User | None:
    """The user in a TokenReview's status; None for an unknown token."""
    try:
        review = msgspec.convert(status, type=_Review)
    except msgspec.MsgspecError:
        return None
    user = review.user
    if not review.authenticated or review.error or not user.username or len(user.groups or ()) > MAX_GROUPS:
        return None
    return User(user.username, user.uid, user.groups or (), tuple(sorted((user.extra or {}).items())))


def spoken(user: User) -> dict[str, Any]:
    """The user's part of a SubjectAccessReview's spec."""
    return {
        "user": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra},
    }
