"""A real API server with our CRDs, policies and conversion, and Kueue's CRDs beside them in a group of their own."""

import contextlib
import datetime as dt
import http.client
import ipaddress
import json
import ssl
import subprocess
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from controller.objects.conversion.review import answer
from hack.cluster import waiting
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from tests.conformance.crds import crdfiles

GROUP: Final = "kueue.x-k8s.io"
PEER: Final = "kueue.peer.test"
CHART: Final = crdfiles.ROOT / "charts" / "tessera"
POLICIES: Final = ("queue-policy-quotas.yaml", "queue-policy-workloads.yaml")
NAMESPACED: Final = ("LocalQueue", "Workload")


class Verdict(NamedTuple):
    accepted: bool
    message: str
    body: dict[str, Any]

    @property
    def by_policy(self) -> bool:
        return "ValidatingAdmissionPolicy" in self.message


@dataclass
class Api:
    """Requests on one connection, as the administrator."""

    cluster: Cluster

    def __post_init__(self) -> None:
        config = json.loads(self.cluster.kubeconfig.read_text())
        authority = b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        at = urlsplit(self.cluster.server)
        tls = ssl.create_default_context(cadata=authority)
        self._connection = http.client.HTTPSConnection(str(at.hostname), at.port, context=tls, timeout=30)

    def acting_as(self, user: str) -> "Api":
        """Another connection, as this user with every right."""
        other = Api(self.cluster)
        other._headers |= {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        return other

    def ask(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Verdict:
        """What the server says; its message where it refuses."""
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, content, {**self._headers, "Content-Type": content_type})
        response = self._connection.getresponse()
        text = response.read()
        found = json.loads(text) if text.startswith(b"{") else {"message": text.decode()}
        return Verdict(response.status < 300, str(found.get("message", "")), found)

    def patch(self, path: str, body: Any) -> Verdict:
        """By a merge patch (RFC 7386)."""
        return self.ask("PATCH", path, body, content_type="application/merge-patch+json")

    def close(self) -> None:
        self._connection.close()

    def create(self, given: dict[str, Any], group: str = GROUP, *, dry: bool = True) -> Verdict:
        return self.ask("POST", _path(given, group) + _query(dry), _in(given, group))

    def put(
        self,
        given: dict[str, Any],
        group: str = GROUP,
        *,
        status: bool = False,
        dry: bool = True,
        over: str | None = None,
    ) -> Verdict:
        """``given`` in place of what is there; ``over``: its resource version, where the caller knows it."""
        made = _in(given, group)
        made["metadata"] = {**made["metadata"], "resourceVersion": over or self.version_of(given, group)}
        return self.ask("PUT", self.named(given, group) + ("/status" if status else "") + _query(dry), made)

    def version_of(self, given: dict[str, Any], group: str = GROUP) -> str:
        return str(self.ask("GET", self.named(given, group)).body["metadata"]["resourceVersion"])

    def named(self, given: dict[str, Any], group: str = GROUP) -> str:
        return f"{_path(given, group)}/{given['metadata']['name']}"

    def delete(self, given: dict[str, Any], group: str = GROUP) -> None:
        self.ask("DELETE", self.named(given, group))


def _path(given: dict[str, Any], group: str) -> str:
    version = given["apiVersion"].rpartition("/")[2]
    namespace = f"/namespaces/{given['metadata'].get('namespace', 'default')}" if given["kind"] in NAMESPACED else ""
    return f"/apis/{group}/{version}{namespace}/{crdfiles.PLURALS[given['kind']]}"


def _query(dry: bool) -> str:
    return "?fieldValidation=Strict" + ("&dryRun=All" if dry else "")


def _in(given: dict[str, Any], group: str) -> dict[str, Any]:
    return {**deepcopy(given), "apiVersion": given["apiVersion"].replace(GROUP, group)}


# What is installed.


def install(cluster: Cluster, conversion: dict[str, Any]) -> None:
    """Our CRDs with ``conversion`` in place of the placeholder, and our policies."""
    made = [deepcopy(crdfiles.ours(kind)) for kind in crdfiles.PLURALS]
    for crd in made:
        if crd["spec"]["conversion"]["strategy"] == "Webhook":
            crd["spec"]["conversion"]["webhook"]["clientConfig"] = conversion
    _apply(cluster, [*made, *policies()])


@cache
def policies() -> tuple[dict[str, Any], ...]:
    """Policies and their bindings as the chart renders them."""
    helm = [str(binaries.binary("helm")), "template", "t", str(CHART), "--namespace", "tessera-system"]
    shown = [word for name in POLICIES for word in ("--show-only", f"templates/{name}")]
    done = subprocess.run([*helm, *shown], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return tuple(one for one in yaml.safe_load_all(done.stdout) if one)


def install_peers(cluster: Cluster) -> None:
    """Kueue's CRDs in their own group: the same schemas under another name, without webhooks."""
    made = [deepcopy(crdfiles.peer(kind)) for kind in crdfiles.PLURALS]
    for crd in made:
        crd["spec"]["group"] = PEER
        crd["metadata"] = {"name": f"{crd['spec']['names']['plural']}.{PEER}"}
    _apply(cluster, made)


def _apply(cluster: Cluster, objects: list[dict[str, Any]]) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", input="---\n".join(json.dumps(one) + "\n" for one in objects))


def await_kinds(api: Api, group: str) -> None:
    """Return once every kind is served in both versions."""
    for version in crdfiles.VERSIONS:
        for plural in crdfiles.PLURALS.values():
            await_served(api, f"/apis/{group}/{version}/{plural}")


def await_served(api: Api, path: str) -> None:
    waiting.until(lambda: api.ask("GET", path).accepted, path, timeout_s=120, every_s=0.1)


def await_policy(api: Api, wrong: dict[str, Any], *, status: bool = False) -> None:
    """Return once a policy refuses ``wrong``: policies take effect a moment after they were made."""

    def refused() -> bool:
        return (api.put(wrong, status=True) if status else api.create(wrong)).by_policy

    waiting.until(refused, f"a policy that refuses this {wrong['kind']}", timeout_s=120, every_s=0.2)


# Conversion.


@contextlib.contextmanager
def converting(folder: Path) -> Iterator[dict[str, Any]]:
    """A conversion webhook on loopback; how a CRD's clientConfig names it."""
    certificate, key = _certificate()
    (folder / "tls.pem").write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Webhook)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"https://127.0.0.1:{server.server_address[1]}/convert"
        yield {"url": url, "caBundle": b64encode(certificate).decode()}
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Webhook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = answer(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
        pass


def _certificate() -> tuple[bytes, bytes]:
    """A certificate for 127.0.0.1 that is its own authority, and its key; both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "conversion under test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private
