"""How a daemon reaches its API server, against the kubernetes package's reader of a pod's mount."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader

from kube.access import load
from kube.config import TokenSource, in_cluster
from kube.errors import ConfigError

HOSTS = st.sampled_from(("10.96.0.1", "fd00::1", "kubernetes.default.svc", ""))
ENVIRONS = st.fixed_dictionaries(
    {"KUBERNETES_SERVICE_HOST": HOSTS, "KUBERNETES_SERVICE_PORT": st.sampled_from(("443", "6443"))}
)
FILES = st.fixed_dictionaries(
    {}, optional={"token": st.sampled_from(("abc", "")), "ca.crt": st.sampled_from(("CA", ""))}
)


@given(ENVIRONS, FILES)
def test_a_pod_reads_what_the_kubernetes_package_reads(environ: dict[str, str], files: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in files.items():
            (root / name).write_text(text)
        found = Configuration()
        try:
            InClusterConfigLoader(str(root / "token"), str(root / "ca.crt"), environ=environ).load_and_set(found)
        except ConfigException:
            with pytest.raises(ConfigError):
                in_cluster(root=root, environ=environ)
            return
        config = in_cluster(root=root, environ=environ)
        assert (config.server, config.ca_pem) == (found.host, files["ca.crt"])
        assert TokenSource(config, monotonic=lambda: 0.0).token() == found.api_key["BearerToken"].removeprefix(
            "bearer "
        )


def test_outside_a_pod_it_says_what_is_to_be_done() -> None:
    with pytest.raises(
        ConfigError, match="KUBERNETES_SERVICE_HOST is not set: outside a pod a kubeconfig file must be"
    ):
        load(None, environ={})


def test_a_daemon_is_refused_a_persons_login(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        "{current-context: x, clusters: [{name: c, cluster: {server: 'https://a'}}],"
        " contexts: [{name: x, context: {cluster: c, user: u}}], users: [{name: u, user: {exec: {command: rm}}}]}"
    )
    with pytest.raises(ConfigError, match=r"users\[u\].exec: not supported here"):
        load(str(file))


def test_the_controller_loads_no_library_for_logins() -> None:
    code = "import sys, controller.main; print(sorted(sys.modules.keys() & {'kubernetes', 'requests', 'oauthlib'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
