"""Where everything of one cluster lies: one folder, so that removing it removes all files.

``<root>/<name>/`` holds the control plane's files, ``<root>/<name>/<node>/`` one node's. The root is short on purpose:
device-plugin sockets below it must fit into the 107 bytes of a Unix socket's address.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import UsageError

ROOT_ENV = "TESSERA_CLUSTER_DIR"
"""Environment variable that names the folder of all clusters."""

MARK_ENV = "TESSERA_CLUSTER_MEMBER"
"""Every process of a cluster carries this variable with the cluster's folder: cleaning up finds them by it."""

AUDIT_ENV = "TESSERA_CLUSTER_AUDIT"
"""Environment variable that names a folder with an audit ``policy.yaml``; API servers write their logs beside it."""

DEFAULT_ROOT = Path("/var/tmp/tessera")
"""Made 0700, and its owner checked before use."""

RESERVED = frozenset({"etcd", "logs", "pki"})
"""Names inside a cluster's folder that no node may have."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
_SOCKET_LIMIT = 107
_LONGEST_SOCKET = "lib/kubelet/device-plugins/tessera-nvidia.com_gpu.sock"


def default_root() -> Path:
    """The folder of all clusters: ``$TESSERA_CLUSTER_DIR``, else one below /var/tmp."""
    return Path(os.environ.get(ROOT_ENV) or DEFAULT_ROOT)


def checked_name(kind: str, name: str) -> str:
    """``name`` itself if it can name a cluster or a node, else UsageError."""
    if not _NAME.fullmatch(name) or name in RESERVED:
        raise UsageError(
            f"{kind} name: found {name!r}, expected 1 to 32 of a-z, 0-9 and '-', and none of {sorted(RESERVED)}"
        )
    return name


@dataclass(frozen=True)
class NodePaths:
    """One node's files. ``lib`` is bound over /var/lib and ``log`` over /var/log in the node's mount namespace."""

    home: Path

    @property
    def name(self) -> str:
        return self.home.name

    @property
    def lib(self) -> Path:
        return self.home / "lib"

    @property
    def log(self) -> Path:
        return self.home / "log"

    @property
    def kubelet_dir(self) -> Path:
        """The node's /var/lib/kubelet as the machine sees it."""
        return self.lib / "kubelet"

    @property
    def cdi_dir(self) -> Path:
        """The node's /var/run/cdi as the machine sees it."""
        return self.home / "cdi"

    @property
    def cni_dir(self) -> Path:
        return self.home / "cni"

    @property
    def tunables(self) -> Path:
        return self.home / "tunables"

    @property
    def containerd_root(self) -> Path:
        return self.home / "containerd"

    @property
    def containerd_socket(self) -> Path:
        return self.home / "containerd.sock"

    @property
    def containerd_config(self) -> Path:
        return self.home / "containerd.toml"

    @property
    def kubelet_config(self) -> Path:
        return self.home / "kubelet.json"

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    @property
    def init_spec(self) -> Path:
        return self.home / "init.json"

    @property
    def init_ready(self) -> Path:
        return self.home / "init.ready"


@dataclass(frozen=True)
class ClusterPaths:
    """One cluster's files."""

    home: Path

    @classmethod
    def of(cls, name: str, root: Path | None = None) -> "ClusterPaths":
        """Paths of the cluster ``name``; UsageError for a name or a root that cannot work."""
        checked_name("cluster", name)
        return cls((root or default_root()).resolve() / name)

    @property
    def name(self) -> str:
        return self.home.name

    @property
    def short_id(self) -> str:
        """Eight hex digits of the folder: names what the kernel keeps (bridge, cgroup), the same after any crash."""
        return hashlib.sha256(os.fsencode(self.home)).hexdigest()[:8]

    @property
    def bridge(self) -> str:
        return f"tsr{self.short_id}"

    @property
    def cgroup(self) -> str:
        return f"tessera-{self.short_id}"

    @property
    def state(self) -> Path:
        return self.home / "state.json"

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.home / "pki"

    @property
    def tokens(self) -> Path:
        return self.pki / "tokens.csv"

    @property
    def etcd(self) -> Path:
        return self.home / "etcd"

    @property
    def images(self) -> Path:
        return self.home / "images.tar"

    @property
    def stages(self) -> Path:
        return self.home / "kwok.yaml"

    @property
    def corefile(self) -> Path:
        return self.home / "Corefile"

    def log(self, component: str) -> Path:
        return self.home / "logs" / f"{component}.log"

    def node(self, name: str) -> NodePaths:
        return NodePaths(self.home / checked_name("node", name))

    def check_socket_length(self, nodes: tuple[str, ...]) -> None:
        """UsageError if a device-plugin socket of one of ``nodes`` would not fit into a socket address."""
        for node in nodes:
            longest = len(os.fsencode(self.node(node).home / _LONGEST_SOCKET))
            if longest > _SOCKET_LIMIT:
                raise UsageError(
                    f"state folder {self.home}: sockets of {node} would need {longest} bytes, "
                    f"expected at most {_SOCKET_LIMIT}: choose a shorter --state-dir"
                )
