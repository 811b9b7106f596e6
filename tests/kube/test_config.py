"""Where the API server is: service-account mount and kubeconfig."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.cluster.controlplane import pki as keys
from hack.cluster.nodes.network import Addresses, Network
from kube.config import ClusterConfig, TokenSource, from_kubeconfig, in_cluster
from kube.errors import ConfigError


def kubeconfig(folder: Path, user: dict[str, Any], *, as_json: bool = False, **cluster: str) -> Path:
    dashed = {key.replace("_", "-"): value for key, value in cluster.items()}
    body = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/"} | dashed}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(body) if as_json else yaml.safe_dump(body))
    return path


def test_a_kubeconfig_gives_server_token_and_namespace(tmp_path: Path) -> None:
    config = from_kubeconfig(kubeconfig(tmp_path, {"token": "secret"}))
    assert (config.server, config.token, config.namespace) == ("https://10.0.0.1:6443", "secret", "lab")


def test_a_json_kubeconfig_is_read_without_the_yaml_parser(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "t"}, as_json=True)
    code = (
        "import sys; sys.modules['yaml'] = None\n"
        "from pathlib import Path; from kube.config import from_kubeconfig\n"
        f"print(from_kubeconfig(Path({str(path)!r})).server)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path.cwd())
    assert done.stdout == "https://10.0.0.1:6443\n", done.stderr


def test_certificates_come_from_data_or_from_files_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("CA TEXT")
    user = {"client-certificate-data": base64.b64encode(b"CERT").decode(), "client-key-data": "S0VZ"}
    config = from_kubeconfig(kubeconfig(tmp_path, user, certificate_authority="ca.crt"))
    assert (config.ca_pem, config.cert_pem, config.key_pem) == ("CA TEXT", "CERT", "KEY")


@pytest.mark.parametrize("server", ["10.0.0.1:6443", "https://", "https://10.0.0.1\n:6443", "ftp://10.0.0.1"])
def test_a_server_that_is_no_address_is_refused_in_one_line(tmp_path: Path, server: str) -> None:
    with pytest.raises(ConfigError, match=r"clusters\[c\].server: found .*, expected https://HOST:PORT$") as refused:
        from_kubeconfig(kubeconfig(tmp_path, {}, server=server))
    assert str(refused.value).splitlines() == [str(refused.value)]


def test_a_comment_between_certificates_may_be_in_any_language(tmp_path: Path) -> None:
    ca = Path(keys.create(tmp_path, Addresses(Network("10.250.0.0/16"))).ca).read_text()
    config = ClusterConfig(server="https://10.0.0.1", ca_pem=f"# Zertifizierungsstelle für Zürich\n{ca}")
    context = config.ssl_context()
    assert context is not None
    assert len(context.get_ca_certs()) == 1


def test_authorities_that_are_no_certificates_are_refused_in_any_language() -> None:
    with pytest.raises(ConfigError, match="TLS material for https://a is unusable"):
        ClusterConfig(server="https://a", ca_pem="-----Pø").ssl_context()


def test_an_error_is_one_line_whatever_the_context_is_called() -> None:
    assert str(ConfigError("contexts[a\r\nb\u2028c].cluster: found none")) == "contexts[a b c].cluster: found none"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"exec": {"command": "login"}}, "users[u].exec: not supported"),
        ({"auth-provider": {"name": "gcp"}}, "users[u].auth-provider: not supported"),
        ({"client-key-data": "%%%"}, "client-key-data: expected base64"),
        ({"client-key": "gone.pem"}, "gone.pem: No such file"),
        ({"token": 7}, "Expected `str"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_where(tmp_path: Path, user: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_kubeconfig(kubeconfig(tmp_path, user))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_context_names_the_ones_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found 'away', expected one of the contexts: here"):
        from_kubeconfig(kubeconfig(tmp_path, {}), context="away")


def test_a_pod_reads_its_service_account(tmp_path: Path) -> None:
    for name, text in (("token", "abc\n"), ("ca.crt", "CA"), ("namespace", "tessera\n")):
        (tmp_path / name).write_text(text)
    config = in_cluster(
        root=tmp_path, environ={"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    )
    assert config.server == "https://[fd00::1]:6443"
    assert config.namespace == "tessera"
    assert TokenSource(config, monotonic=lambda: 0.0).token() == "abc"


def test_outside_a_pod_in_cluster_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST is not set"):
        in_cluster(root=tmp_path, environ={})


def test_a_rotated_token_is_read_again_and_an_unreadable_one_is_kept(tmp_path: Path) -> None:
    now = [0.0]
    file = tmp_path / "token"
    file.write_text("one")
    tokens = TokenSource(ClusterConfig(server="http://x", token_file=file), monotonic=lambda: now[0])
    assert tokens.token() == "one"
    file.write_text("two")
    assert tokens.token() == "one"
    now[0] = 61.0
    assert tokens.token() == "two"
    file.unlink()
    now[0] = 200.0
    assert tokens.token() == "two"


def test_secrets_stay_out_of_repr() -> None:
    config = ClusterConfig(server="https://x", token="hush", key_pem="hush", cert_pem="hush")
    assert "hush" not in repr(config)


def test_a_bad_certificate_is_one_line() -> None:
    with pytest.raises(ConfigError, match="TLS material for https://x is unusable"):
        ClusterConfig(server="https://x", ca_pem="no certificate").ssl_context()
