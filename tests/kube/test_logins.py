"""People who log in: by plugins and at OIDC providers."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from kube.errors import ConfigError
from kube.kubeconfig import from_kubeconfig
from kube.logins import logged_in

V1 = "client.authentication.k8s.io/v1"


def answer(**status: str) -> str:
    return json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status})


def script(folder: Path, body: str) -> str:
    """A plugin beside the kubeconfig, as the kubeconfig names it."""
    file = folder / "login"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return "./login"


def written(folder: Path, user: dict[str, Any], cluster: dict[str, Any], *, context: str = "here") -> Path:
    """A kubeconfig with one user, whose current context is ``here``."""
    file = folder / "config"
    text = {
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
        "current-context": "here",
    }
    file.write_text(yaml.safe_dump(text))
    return file


def kubeconfig(folder: Path, plugin: dict[str, Any]) -> Path:
    file = folder / "config"
    text = {
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": "https://10.0.0.1:6443",
                    "certificate-authority-data": base64.b64encode(b"CA TEXT").decode(),
                },
            }
        ],
        "users": [{"name": "u", "user": {"exec": {"apiVersion": V1, **plugin}}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "here",
    }
    file.write_text(json.dumps(text))
    return file


def test_a_token_is_taken_from_the_plugin(tmp_path: Path) -> None:
    command = script(tmp_path, f'test "$1" = --region && test "$PROFILE" = ml && echo \'{answer(token="t0ken")}\'')
    plugin = {"command": command, "args": ["--region"], "env": [{"name": "PROFILE", "value": "ml"}]}
    config = logged_in(kubeconfig(tmp_path, plugin))
    assert (config.token, config.ca_pem) == ("t0ken", "CA TEXT")
    assert "t0ken" not in repr(config)


def test_a_certificate_with_its_key_is_taken_too(tmp_path: Path) -> None:
    command = script(tmp_path, f"echo '{answer(clientCertificateData='CERT', clientKeyData='KEY')}'")
    config = logged_in(kubeconfig(tmp_path, {"command": command}))
    assert (config.cert_pem, config.key_pem, config.token) == ("CERT", "KEY", None)


def test_a_plugin_that_asks_for_it_is_told_the_cluster(tmp_path: Path) -> None:
    command = script(tmp_path, f"echo \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/told\necho '{answer(token='t')}'")
    logged_in(kubeconfig(tmp_path, {"command": command, "provideClusterInfo": True}))
    told = json.loads((tmp_path / "told").read_text())
    assert told["apiVersion"] == V1
    assert told["spec"]["interactive"] is False
    assert told["spec"]["cluster"]["server"] == "https://10.0.0.1:6443"
    logged_in(kubeconfig(tmp_path, {"command": command}))
    assert "cluster" not in json.loads((tmp_path / "told").read_text())["spec"]


def test_a_daemon_runs_none(tmp_path: Path) -> None:
    command = script(tmp_path, f"touch {tmp_path}/ran")
    with pytest.raises(ConfigError, match="not supported here"):
        from_kubeconfig(kubeconfig(tmp_path, {"command": command}))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("body", "more", "said"),
    [
        ("exit 3", {}, "./login: exec: process returned 3: log in with it first"),
        ("echo who are you >&2; exit 1", {}, "process returned 1. who are you: log in with it first"),
        ("echo hello", {}, "failed to decode process output"),
        (f"echo '{answer()}'", {}, "found neither a token nor a certificate"),
        (f"echo '{answer(clientKeyData='K')}'", {}, "found neither a token nor a certificate"),
        ("true", {"apiVersion": "v7"}, ".apiVersion: found 'v7', expected client.authentication.k8s.io/v1"),
        ("true", {"interactiveMode": "Always"}, ".interactiveMode: found Always, expected a terminal"),
        ("true", {"command": "no-such-login", "installHint": "get it\nthere"}, "no such file or directory, expected a"),
        ("true", {"command": "no-such-login", "installHint": "get it\nthere"}, "(get it there)"),
        ("true", {"args": "x"}, "users[u].exec.args: found str, expected array"),
    ],
)
def test_what_goes_wrong_with_a_plugin_is_one_line(tmp_path: Path, body: str, more: dict[str, Any], said: str) -> None:
    file = kubeconfig(tmp_path, {"command": script(tmp_path, body), **more})
    with pytest.raises(ConfigError) as failed:
        logged_in(file)
    assert said in str(failed.value)
    assert str(failed.value).startswith(f"{file}: users[u].exec")
    assert "\n" not in str(failed.value)


def test_no_certificate_of_a_plugin_is_left_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = script(tmp_path, f"echo '{answer(clientCertificateData='CERT', clientKeyData='KEY')}'")
    file, before = kubeconfig(tmp_path, {"command": command}), set(Path("/dev/shm").iterdir())
    logged_in(file)
    assert {one.name for one in tmp_path.iterdir()} == {"config", "login"}
    assert set(Path("/dev/shm").iterdir()) <= before


def test_a_plugin_runs_in_the_folder_of_the_users_own_file(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    command = script(there, f"echo '{answer(token='t0ken')}'")
    users = kubeconfig(there, {"command": command})
    first = tmp_path / "config"
    first.write_text(json.dumps({"current-context": "here"}))
    assert logged_in(first, users).token == "t0ken"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"auth-provider": {"name": "gcp"}}, "users[u].auth-provider: found 'gcp', expected oidc"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": "a"}}}, "users[u].auth-provider: it gave no token"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": 5}}}, "config.id-token: found int, expected str"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_where(tmp_path: Path, user: dict[str, Any], said: str) -> None:
    file = written(tmp_path, user, {})
    with pytest.raises(ConfigError) as failed:
        logged_in(file)
    assert str(failed.value).startswith(f"{file}: ")
    assert said in str(failed.value)
    assert "\n" not in str(failed.value)


class Issuer:
    """An OIDC provider over TLS, with a certificate of its own. ``renewals``: the refresh tokens that it was sent."""

    def __init__(self, folder: Path) -> None:
        self.renewals: list[str] = []
        self.asked = 0
        issued = own_certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued[0], issued[1])
        self.ca = Path(issued[0]).read_bytes()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                self._answer({"token_endpoint": f"{issuer.url}/token"})

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                issuer.renewals += form["refresh_token"]
                self._answer(
                    {"id_token": jwt(2e10), "access_token": "a", "refresh_token": "next", "token_type": "bearer"}
                )

            def _answer(self, body: dict[str, Any]) -> None:
                raw = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://localhost:{self.server.server_port}"


def own_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "issuer.crt", folder / "issuer.key"
    cert_file.write_bytes(certificate.public_bytes(Encoding.PEM))
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return cert_file, key_file


def jwt(expires_s: float) -> str:
    def part(body: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(body).encode()).decode().rstrip("=")

    # A length that needs no padding the package would take for a mistake.
    payload = next(text for fill in range(4) if len(text := part({"exp": int(expires_s), "f": "x" * fill})) % 4 != 1)
    return f"{part({'alg': 'none'})}.{payload}.c2ln"


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[Issuer]:
    found = Issuer(tmp_path)
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def oidc(issuer: Issuer, token: str, **more: str) -> dict[str, Any]:
    config = {"idp-issuer-url": issuer.url, "client-id": "tessera", "client-secret": "hush", "refresh-token": "first"}
    return {"auth-provider": {"name": "oidc", "config": {**config, "id-token": token, **more}}}


def test_an_oidc_token_that_lasts_is_taken_as_it_is(tmp_path: Path, issuer: Issuer) -> None:
    token = jwt(2e10)
    assert logged_in(written(tmp_path, oidc(issuer, token), {})).token == token
    assert issuer.asked == 0


@pytest.mark.parametrize("data", [True, False])
def test_an_oidc_token_that_has_ended_is_renewed_and_kept(tmp_path: Path, issuer: Issuer, *, data: bool) -> None:
    key, value = ("idp-certificate-authority-data", base64.b64encode(issuer.ca).decode())
    if not data:
        key, value = "idp-certificate-authority", "issuer.crt"
    file = written(tmp_path, oidc(issuer, jwt(1e9), **{key: value}), {})
    assert logged_in(file).token == jwt(2e10)
    assert issuer.renewals == ["first"]
    kept = yaml.safe_load(file.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert (kept["id-token"], kept["refresh-token"], kept[key]) == (jwt(2e10), "next", value)


def test_an_issuer_without_a_trusted_certificate_is_sent_no_secret(tmp_path: Path, issuer: Issuer) -> None:
    file = written(tmp_path, oidc(issuer, jwt(1e9)), {})
    with pytest.raises(ConfigError, match=r"(?i)certificate"):
        logged_in(file)
    assert (issuer.asked, issuer.renewals) == (0, [])
    with pytest.raises(ConfigError, match="not supported here"):
        from_kubeconfig(file)


def test_certificates_that_tls_cannot_use_are_told_with_their_place(tmp_path: Path) -> None:
    cert, _ = own_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, key = own_certificate(tmp_path / "other")
    file = written(tmp_path, {"client-certificate": str(cert), "client-key": str(key)}, {})
    with pytest.raises(ConfigError) as failed:
        logged_in(file).ssl_context()
    assert str(failed.value).startswith(f"{file}: users[u].client-certificate: TLS material for https://10.0.0.1:6443")
    command = script(tmp_path, f"echo '{answer(clientCertificateData='CERT', clientKeyData='KEY')}'")
    file = written(tmp_path, {"exec": {"apiVersion": V1, "command": command}}, {})
    with pytest.raises(ConfigError) as failed:
        logged_in(file).ssl_context()
    assert str(failed.value).startswith(f"{file}: users[u].exec: TLS material for ")
