"""Login plugins: what they are given, what is taken from them, and one line for what they do not do."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kube.config import from_kubeconfig
from kube.errors import ConfigError
from kube.login import log_in

V1 = "client.authentication.k8s.io/v1"


def answer(**status: str) -> str:
    return json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status})


def script(folder: Path, body: str) -> str:
    """A plugin beside the kubeconfig, as the kubeconfig names it."""
    file = folder / "login"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return "./login"


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
    config = from_kubeconfig(kubeconfig(tmp_path, plugin), plugins=True)
    assert (config.token, config.ca_pem) == ("t0ken", "CA TEXT")
    assert "t0ken" not in repr(config)


def test_a_certificate_with_its_key_is_taken_too(tmp_path: Path) -> None:
    command = script(tmp_path, f"echo '{answer(clientCertificateData='CERT', clientKeyData='KEY')}'")
    config = from_kubeconfig(kubeconfig(tmp_path, {"command": command}), plugins=True)
    assert (config.cert_pem, config.key_pem, config.token) == ("CERT", "KEY", None)


def test_a_plugin_that_asks_for_it_is_told_the_cluster(tmp_path: Path) -> None:
    command = script(tmp_path, f"echo \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/told\necho '{answer(token='t')}'")
    from_kubeconfig(kubeconfig(tmp_path, {"command": command, "provideClusterInfo": True}), plugins=True)
    told = json.loads((tmp_path / "told").read_text())
    assert told["apiVersion"] == V1
    assert told["spec"]["interactive"] is False
    assert told["spec"]["cluster"]["server"] == "https://10.0.0.1:6443"
    from_kubeconfig(kubeconfig(tmp_path, {"command": command}), plugins=True)
    assert "cluster" not in json.loads((tmp_path / "told").read_text())["spec"]


def test_a_daemon_runs_none(tmp_path: Path) -> None:
    command = script(tmp_path, f"touch {tmp_path}/ran")
    with pytest.raises(ConfigError, match="not supported here"):
        from_kubeconfig(kubeconfig(tmp_path, {"command": command}))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("body", "more", "said"),
    [
        ("exit 3", {}, "./login ended with 3: log in with it first"),
        ("echo hello", {}, "found another answer, expected an ExecCredential as JSON"),
        (f"echo '{answer()}'", {}, "found neither a token nor a certificate"),
        (f"echo '{answer(clientKeyData='K')}'", {}, "found neither a token nor a certificate"),
        ("true", {"apiVersion": "v7"}, ".apiVersion: found 'v7', expected client.authentication.k8s.io/v1"),
        ("true", {"interactiveMode": "Always"}, ".interactiveMode: found Always, expected a terminal"),
        ("true", {"command": "no-such-login", "installHint": "get it\nthere"}, "no such file or directory, expected a"),
        ("true", {"command": "no-such-login", "installHint": "get it\nthere"}, "(get it there)"),
        ("true", {"args": "x"}, "Expected `array"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, body: str, more: dict[str, Any], said: str) -> None:
    raw = {"command": script(tmp_path, body), "apiVersion": V1, **more}
    with pytest.raises(ConfigError) as failed:
        log_in(raw, "config: users[u].exec", tmp_path, {})
    assert said in str(failed.value)
    assert str(failed.value).startswith("config: users[u].exec")
    assert "\n" not in str(failed.value)
