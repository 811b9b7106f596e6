"""Users who ask the controller: through the API server, and at its own port."""

import http.client
import json
import socket
import ssl
import time
from base64 import b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from hack.cluster.cluster import Cluster
from tests.support.e2e.incluster import ACCOUNT, NAMESPACE, WEB_PORT, InCluster

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
SECRET: Final = f"{ACCOUNT}-web"
Headers = dict[str, str]


@dataclass(frozen=True)
class Answer:
    code: int
    body: bytes
    headers: Headers = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Named(http.client.HTTPSConnection):
    """One whose server has another name than its address."""

    def __init__(self, host: str, port: int, name: str, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=30, context=context)
        self._as, self._tls = name, context

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), 30)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self._as)


def through(cluster: Cluster, path: str, token: str) -> Answer:
    """What the API server answers to a bearer of this token."""
    config = json.loads(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = b64decode(config["certificate-authority-data"]).decode()
    at = urlsplit(config["server"])
    connection = _Named(
        str(at.hostname), int(at.port or 443), "127.0.0.1", ssl.create_default_context(cadata=authority)
    )
    return _get(connection, path, {"Authorization": f"Bearer {token}"})


def directly(controller: InCluster, path: str, headers: Headers, certificate: str = "") -> Answer:
    """What the port answers. ``certificate``: of the cluster's, that the client shows."""
    tls = ssl.create_default_context(cadata=trusted(controller.cluster))
    if certificate:
        pki = controller.cluster.paths.pki
        tls.load_cert_chain(pki / f"{certificate}.crt", pki / f"{certificate}.key")
    return _get(_Named(controller.host, WEB_PORT, f"{ACCOUNT}.{NAMESPACE}.svc", tls), path, headers)


def begun(controller: InCluster, path: str, headers: Headers, *, until: bytes) -> bytes:
    """What a stream of the port begins with, up to the end of the line with ``until``."""
    connection = _Named(
        controller.host,
        WEB_PORT,
        f"{ACCOUNT}.{NAMESPACE}.svc",
        ssl.create_default_context(cadata=trusted(controller.cluster)),
    )
    try:
        connection.request("GET", path, headers=headers)
        answer, found = connection.getresponse(), b""
        assert answer.status == http.client.OK, answer.read()
        while until not in found:
            line = answer.readline()
            assert line, found
            found += line
        return found
    finally:
        connection.close()


def presented(controller: InCluster) -> bytes:
    """The certificate that the port shows."""
    tls = ssl.create_default_context(cadata=trusted(controller.cluster))
    with (
        socket.create_connection((controller.host, WEB_PORT), 30) as plain,
        tls.wrap_socket(plain, server_hostname=f"{ACCOUNT}.{NAMESPACE}.svc") as shown,
    ):
        return shown.getpeercert(binary_form=True) or b""


def secret(cluster: Cluster) -> dict[str, bytes]:
    """The port's certificates, PEM."""
    found = json.loads(cluster.kubectl("get", "secret", SECRET, "-n", NAMESPACE, "-o", "json"))
    return {key: b64decode(value) for key, value in found["data"].items()}


def trusted(cluster: Cluster) -> str:
    return secret(cluster)["ca.crt"].decode()


def _get(connection: http.client.HTTPConnection, path: str, headers: Headers) -> Answer:
    try:
        connection.request("GET", path, headers=headers)
        found = connection.getresponse()
        return Answer(found.status, found.read(), dict(found.getheaders()))
    finally:
        connection.close()


def signed(account: str, uid: str, *, key: bytes, lives_s: float) -> str:
    """A token of a service account, ``namespace/name``, that began 20 minutes ago and ends in ``lives_s``."""
    namespace, _, name = account.partition("/")
    now_s = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": [ISSUER],
        "sub": f"system:serviceaccount:{namespace}:{name}",
        "iat": now_s - 1200,
        "nbf": now_s - 1200,
        "exp": int(now_s + lives_s),
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
    }
    text = ".".join(_encoded(json.dumps(part).encode()) for part in ({"alg": "ES256", "typ": "JWT"}, claims))
    private = serialization.load_pem_private_key(key, password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    parts = decode_dss_signature(private.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{_encoded(b''.join(part.to_bytes(32, 'big') for part in parts))}"


def _encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def kubeconfig(cluster: Cluster, token: str, folder: Path, namespace: str) -> Path:
    """A person's file with this token."""
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["context"]["namespace"] = namespace
    file = folder / f"{namespace}.kubeconfig"
    file.write_text(json.dumps(config))
    return file
