"""The configuration files of a cluster, as text. Pure: every choice comes in as an argument."""

import base64
import json
from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from hack.cluster.layout import NodePaths
from hack.cluster.nodes.network import Addresses, Network

PAUSE_IMAGE = "tessera.test/pause:1"
TEST_IMAGE = "tessera.test/busybox:1"


def kubeconfig(*, server: str, ca_pem: bytes, user: str, token: str, cluster: str) -> str:
    """A kubeconfig for one user. JSON, which every YAML reader takes."""
    return _json(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": cluster,
                    "cluster": {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()},
                }
            ],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
            "current-context": cluster,
        }
    )


def kubelet_config(
    *,
    paths: NodePaths,
    client_ca: str,
    addresses: Addresses,
    port: int,
    healthz_port: int,
    cgroup: str,
    overrides: Mapping[str, Any],
) -> str:
    """KubeletConfiguration (kubelet.config.k8s.io/v1beta1) for a node that shares its machine with others."""
    never = {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"}
    return _json(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": str(addresses.gateway),
            "port": port,
            "readOnlyPort": 0,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": healthz_port,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": client_ca},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{paths.containerd_socket}",
            "clusterDNS": [str(addresses.dns_service)],
            "clusterDomain": "cluster.local",
            "cgroupDriver": "cgroupfs",
            # With one cgroup of its own, cleaning up finds every container there.
            "cgroupRoot": cgroup,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            # A full disk of the developer's is no reason to evict the pods of a test.
            "evictionHard": never,
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            # The usual place is outside the folders that are the node's own.
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
            "nodeStatusUpdateFrequency": "1s",
            # A kubelet that could not prepare a pod's claim counts that as no error: it tries again at this pace, which
            # is a minute by default.
            "syncFrequency": "10s",
            **overrides,
        }
    )


def containerd_config(*, paths: NodePaths, snapshotter: str, cni_bin_dir: Path) -> str:
    """containerd's configuration (version 3). /run is the node's own, so its state needs no name of its own."""
    return f"""\
version = 3
root = {_toml(paths.containerd_root)}
state = "/run/containerd"

[grpc]
address = {_toml(paths.containerd_socket)}

[plugins.'io.containerd.internal.v1.opt']
path = {_toml(paths.home / "opt")}

[plugins.'io.containerd.nri.v1.nri']
disable = true

[plugins.'io.containerd.cri.v1.images']
snapshotter = {_toml(snapshotter)}

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = {_toml(PAUSE_IMAGE)}

[plugins.'io.containerd.cri.v1.runtime']
# Without this a machine that forbids lowering oom_score_adj refuses every container.
restrict_oom_score_adj = true
enable_cdi = true
cdi_spec_dirs = [{_toml(paths.cdi_dir)}]

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [{_toml(cni_bin_dir)}]
conf_dir = {_toml(paths.cni_dir)}

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def cni_config(*, bridge: str, pods: Network, own: Network, gateway: IPv4Address, mtu: int = 1500) -> str:
    """Pods of a node take addresses from ``own`` and reach all of ``pods`` on the bridge, without forwarding."""
    rng = {
        "subnet": str(pods),
        "rangeStart": str(own[1] if own[1] != gateway else own[2]),
        "rangeEnd": str(own[-2]),
        "gateway": str(gateway),
    }
    # isGateway would have the plugin set the machine's ip_forward; the bridge has its address already.
    plugin = {
        "type": "bridge",
        "bridge": bridge,
        "isGateway": False,
        "ipMasq": False,
        "mtu": mtu,
        "ipam": {
            "type": "host-local",
            "ranges": [[rng]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": "/var/lib/cni/networks",
        },
    }
    return _json({"cniVersion": "1.0.0", "name": "tessera", "plugins": [plugin]})


def corefile(*, address: IPv4Address, ready_port: int, kubeconfig: Path) -> str:
    """CoreDNS for the cluster's own names: any other name is refused, since nothing outside can be asked."""
    return f"""\
.:53 {{
    bind {address}
    errors
    ready 127.0.0.1:{ready_port}
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
    }}
}}
"""


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def _toml(value: object) -> str:
    """A TOML basic string: JSON's escapes are a subset of TOML's."""
    return json.dumps(str(value))
