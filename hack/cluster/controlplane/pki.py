"""Certificates, keys and tokens of one cluster, made with openssl when it comes up and gone with its folder."""

import secrets
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.nodes.network import Addresses

_DAYS = "365"
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
ADMIN = "tessera-admin"
FRONT_PROXY = "front-proxy-client"


@dataclass(frozen=True)
class Pki:
    home: Path

    def file(self, name: str) -> str:
        return str(self.home / name)

    @property
    def ca(self) -> str:
        return self.file("ca.crt")

    @property
    def service_account_key(self) -> str:
        return self.file("sa.key")

    @property
    def service_account_public_key(self) -> str:
        return self.file("sa.pub")


def _openssl(*args: str) -> None:
    done = subprocess.run(["openssl", *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"openssl {args[0]} failed:\n{done.stderr[-1000:].rstrip()}")


def _leaf(pki: Pki, name: str, subject: str, *, usage: str, names: Iterable[str] = (), issuer: str = "ca") -> None:
    extensions = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"extendedKeyUsage={usage}"]
    if alternatives := ",".join(names):
        extensions += ["-addext", f"subjectAltName={alternatives}"]
    signed = ("-CA", pki.file(f"{issuer}.crt"), "-CAkey", pki.file(f"{issuer}.key"))
    out = ("-keyout", pki.file(f"{name}.key"), "-out", pki.file(f"{name}.crt"))
    _openssl("req", "-x509", *_CURVE, "-days", _DAYS, "-subj", subject, *signed, *out, *extensions)


def _authority(pki: Pki, name: str, subject: str) -> None:
    out = ("-keyout", pki.file(f"{name}.key"), "-out", pki.file(f"{name}.crt"))
    ca = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature")
    extensions = [part for each in ca for part in ("-addext", each)]
    _openssl("req", "-x509", *_CURVE, "-days", _DAYS, "-subj", subject, *out, *extensions)


def create(home: Path, addresses: Addresses) -> Pki:
    """A CA and what it signs: the API server, etcd (server and client in one), the API server as kubelet's client.

    Another signs for the front proxy, which speaks for users at aggregated API servers.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    pki = Pki(home)
    _authority(pki, "ca", "/CN=tessera test cluster")
    _authority(pki, "front-proxy-ca", "/CN=tessera test cluster, front proxy")
    _leaf(pki, "front-proxy", f"/CN={FRONT_PROXY}", usage="clientAuth", issuer="front-proxy-ca")
    hosts = (
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    )
    reached = [f"DNS:{host}" for host in hosts] + [f"IP:{each}" for each in ("127.0.0.1", addresses.api_service)]
    _leaf(pki, "apiserver", "/CN=kube-apiserver", usage="serverAuth", names=reached)
    _leaf(pki, "etcd", "/CN=etcd", usage="serverAuth,clientAuth", names=("DNS:localhost", "IP:127.0.0.1"))
    _leaf(pki, "kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client", usage="clientAuth")
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", pki.service_account_key)
    _openssl("pkey", "-in", pki.service_account_key, "-pubout", "-out", pki.service_account_public_key)
    return pki


def token_file(nodes: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The API server's token file (``token,user,uid,"groups"``) and the tokens by user name."""
    users = {ADMIN: "system:masters", "system:kube-scheduler": "", "system:kube-controller-manager": ""}
    users |= {f"system:node:{name}": "system:nodes" for name in nodes}
    tokens = {user: secrets.token_urlsafe(24) for user in users}
    lines = [
        f'{tokens[user]},{user},{user},"{group}"' if group else f"{tokens[user]},{user},{user}"
        for user, group in users.items()
    ]
    return "\n".join(lines) + "\n", tokens
