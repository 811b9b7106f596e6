"""Where the API server is: service-account mount, tokens, TLS."""

from pathlib import Path

import pytest

from hack.cluster.controlplane import pki as keys
from hack.cluster.nodes.network import Addresses, Network
from kube.config import ClusterConfig, TokenSource, in_cluster
from kube.errors import ConfigError, UnavailableError


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


@pytest.mark.parametrize("body", [b"two\nlines\n", b"\xff\xfe", b""])
def test_a_token_file_that_cannot_be_used_leaves_the_last_or_is_no_answer(tmp_path: Path, body: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(body)
    config = ClusterConfig(server="http://x", token_file=file)
    tokens = TokenSource(config, monotonic=lambda: 0.0)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"expected (a token|UTF-8 text)"):
            tokens.token()
    file.write_text("one")
    assert tokens.token() == "one"
    file.write_bytes(body)
    assert not tokens.refused()
    assert tokens.token() == "one"


def test_secrets_stay_out_of_repr() -> None:
    config = ClusterConfig(server="https://x", token="hush", key_pem="hush", cert_pem="hush")
    assert "hush" not in repr(config)


def test_a_bad_certificate_is_one_line() -> None:
    with pytest.raises(ConfigError, match="TLS material for https://x is unusable"):
        ClusterConfig(server="https://x", ca_pem="no certificate").ssl_context()
