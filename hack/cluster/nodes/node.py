"""One node: its first process, containerd and kubelet, started in that order into the node's own namespaces."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import processes, waiting
from hack.cluster.controlplane import controlplane, render
from hack.cluster.controlplane.pki import Pki
from hack.cluster.errors import ClusterError
from hack.cluster.layout import ClusterPaths, NodePaths
from hack.cluster.nodes import cgroups
from hack.cluster.nodes.nodeinit import InitSpec
from hack.cluster.prerequisites import CNI_BIN_DIR, search_path
from hack.cluster.processes import Identity
from hack.cluster.state import State

CHECKOUT = Path(__file__).resolve().parents[3]
_START_S = 240.0
_STOP_S = 30.0


@dataclass(frozen=True)
class NodeHost:
    """The outside's handle on one node. Everything about it is in the cluster's state: a handle holds nothing open."""

    cluster: ClusterPaths
    paths: NodePaths
    state: Callable[[], State]
    """The cluster's state as it is now."""

    @property
    def name(self) -> str:
        return self.paths.name

    @property
    def kubelet_dir(self) -> Path:
        """The node's /var/lib/kubelet as the machine sees it: ``--kubelet-dir`` of an agent outside the node."""
        return self.paths.kubelet_dir

    @property
    def cdi_dir(self) -> Path:
        """The node's CDI folder (/var/run/cdi inside) as the machine sees it."""
        return self.paths.cdi_dir

    @property
    def agent_dir(self) -> Path:
        """A folder for the state of an agent of this node, with a path short enough for its sockets."""
        return self.paths.home / "agent"

    @property
    def cgroup(self) -> str:
        return f"{self.cluster.cgroup}/{self.name}"

    @property
    def init_key(self) -> str:
        return f"init-{self.name}"

    def log(self, component: str) -> Path:
        return self.cluster.log(f"{component}-{self.name}")

    def boot(self) -> Identity:
        """Start the node's first process and return once its mounts are in place."""
        self._make_folders()
        cgroups.make(self.cgroup)
        state = self.state()
        spec = InitSpec(
            lib=str(self.paths.lib),
            log=str(self.paths.log),
            cdi=str(self.paths.cdi_dir),
            tunables=str(self.paths.tunables),
            scratch=str(self.paths.home / "scratch"),
            keep=(str(self.cluster.home), str(CHECKOUT), *state.binaries.values()),
            ready=str(self.paths.init_ready),
        )
        spec.dump(self.paths.init_spec)
        log = self.log("init")
        log.parent.mkdir(parents=True, exist_ok=True)
        command = f"from hack.cluster.nodes.nodeinit import main; main({str(self.paths.init_spec)!r})"
        environment = processes.child_environment(self.cluster.home, {"PYTHONPATH": str(CHECKOUT)})
        with log.open("ab") as errors:
            argv = [sys.executable, "-c", command]
            done = subprocess.run(
                argv, stdout=subprocess.PIPE, stderr=errors, env=environment, cwd="/", check=False, timeout=_START_S
            )
        if done.returncode != 0:
            raise ClusterError(f"node {self.name} did not start\n{waiting.tail(log)}".rstrip())
        init = processes.identify(int(done.stdout))
        if init is None:
            raise ClusterError(f"node {self.name}: its first process ended at once\n{waiting.tail(log)}".rstrip())
        waiting.until(
            self.paths.init_ready.exists,
            f"mounts of {self.name}",
            timeout_s=_START_S,
            watched={log: init},
            every_s=0.02,
        )
        return init

    def _make_folders(self) -> None:
        for folder in (
            self.paths.kubelet_dir / "device-plugins",
            self.paths.log,
            self.paths.cdi_dir,
            self.paths.cni_dir,
            self.paths.tunables,
            self.paths.containerd_root,
            self.agent_dir,
        ):
            folder.mkdir(parents=True, exist_ok=True)

    def init(self) -> Identity:
        """The node's first process; ClusterError if it is gone."""
        found = self.state().processes.get(self.init_key)
        if found is None or not processes.alive(found):
            raise ClusterError(f"node {self.name} is not running")
        return found

    def inside(self, *argv: str) -> list[str]:
        """The command line that runs ``argv`` in the node's namespaces."""
        return ["nsenter", f"--target={self.init().pid}", "--mount", "--pid", "--", *argv]

    def _launch(self, component: str, argv: list[str], *, extra_path: Path | None = None) -> None:
        """Start a daemon in the node: a child of the node's first process, its output in the component's log."""
        path = os.pathsep.join([str(extra_path), search_path()] if extra_path else [search_path()])
        environment = processes.child_environment(self.cluster.home, {"PATH": path})
        command = self.inside(*processes.detached(argv, self.log(component)))
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, check=False, text=True
        )
        if done.returncode != 0:
            raise ClusterError(f"{component} of {self.name} did not start: {done.stderr.strip()}")

    def running(self, component: str) -> list[Identity]:
        """Living processes of ``containerd`` or ``kubelet`` in this node (the program, not what it starts)."""
        wanted = {"containerd": ("containerd", "--config"), "kubelet": ("tessera-kubernetes", "kubelet")}[component]
        living = []
        for each in processes.beside(self.init()):
            argv = processes.command_line(each.pid)
            if len(argv) > 1 and (Path(argv[0]).name, argv[1]) == wanted:
                living.append(each)
        return living

    def _watched(self, component: str) -> dict[Path, Identity]:
        return {self.log(component): each for each in self.running(component)[:1]}

    def start_containerd(self) -> None:
        """Write its configuration, start it and wait until it takes calls."""
        state = self.state()
        chosen = json.loads(self.paths.init_ready.read_text(encoding="utf-8"))["snapshotter"]
        config = render.containerd_config(paths=self.paths, snapshotter=chosen, cni_bin_dir=CNI_BIN_DIR)
        self.paths.containerd_config.write_text(config, encoding="utf-8")
        addresses = state.addresses
        own = addresses.node_slice(state.spec.nodes.index(self.name))
        cni = render.cni_config(bridge=self.cluster.bridge, pods=addresses.pods, own=own, gateway=addresses.gateway)
        (self.paths.cni_dir / "10-tessera.conflist").write_text(cni, encoding="utf-8")
        binaries = Path(state.binaries["containerd"])
        self._launch(
            "containerd",
            [str(binaries / "containerd"), "--config", str(self.paths.containerd_config)],
            extra_path=binaries,
        )
        self._await("containerd", lambda: self._ctr("version").returncode == 0, "calls to containerd")

    def _await(self, component: str, ready: Callable[[], bool], what: str) -> None:
        # The process appears a moment after the launch: only one that was seen can be missed.
        waiting.until(
            lambda: bool(self.running(component)), f"{component} of {self.name}", timeout_s=_START_S, every_s=0.02
        )
        waiting.until(ready, f"{what} of {self.name}", timeout_s=_START_S, watched=self._watched(component))

    def _ctr(self, *args: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        ctr = str(Path(self.state().binaries["containerd"]) / "ctr")
        command = self.inside(ctr, "--address", str(self.paths.containerd_socket), "--namespace", "k8s.io", *args)
        environment = processes.child_environment(self.cluster.home)
        return subprocess.run(command, input=stdin, capture_output=True, env=environment, cwd="/", check=False)

    def load_image(self, archive: Path) -> None:
        """Import the images of a tar (docker save's or OCI layout) so that pods can use them with pull policy Never."""
        chosen = json.loads(self.paths.init_ready.read_text(encoding="utf-8"))["snapshotter"]
        # Through the client, since the daemon's own import unpacks for overlayfs only.
        done = self._ctr("images", "import", "--local", "--snapshotter", chosen, "-", stdin=archive.read_bytes())
        if done.returncode != 0:
            raise ClusterError(f"importing {archive} into {self.name}: {done.stderr.decode(errors='replace').strip()}")

    def tag_image(self, name: str, another: str) -> None:
        """Give an image of this node another name besides."""
        done = self._ctr("images", "tag", name, another)
        if done.returncode != 0:
            raise ClusterError(f"naming {name} {another}: {done.stderr.decode(errors='replace').strip()}")

    def write_kubelet_files(self, token: str) -> None:
        state = self.state()
        pki = Pki(self.cluster.pki)
        config = render.kubelet_config(
            paths=self.paths,
            client_ca=pki.ca,
            addresses=state.addresses,
            port=state.ports[f"kubelet-{self.name}"],
            healthz_port=state.ports[f"healthz-{self.name}"],
            cgroup=f"/{self.cgroup}",
            overrides=state.spec.kubelet_config,
        )
        self.paths.kubelet_config.write_text(config, encoding="utf-8")
        text = render.kubeconfig(
            server=controlplane.server(state),
            ca_pem=Path(pki.ca).read_bytes(),
            user=f"system:node:{self.name}",
            token=token,
            cluster=self.cluster.name,
        )
        self.paths.kubeconfig.write_text(text, encoding="utf-8")

    def kubelet_is_healthy(self) -> bool:
        return waiting.answers(f"http://127.0.0.1:{self.state().ports[f'healthz-{self.name}']}/healthz")

    def start_kubelet(self, *, wait: bool = True) -> None:
        """Start the kubelet if it is not running; with ``wait``, return once it says that it is healthy."""
        if not self.running("kubelet"):
            state = self.state()
            flags = controlplane.kubelet(
                self.paths.kubeconfig, self.paths.kubelet_config, node=self.name, address=state.addresses.gateway
            )
            self._launch("kubelet", [str(Path(state.binaries["kubernetes"]) / "tessera-kubernetes"), *flags])
        if wait:
            self.await_kubelet()

    def await_kubelet(self) -> None:
        """Return once the kubelet says that it is healthy; ClusterError with its log's tail if it does not come up."""
        self._await("kubelet", self.kubelet_is_healthy, "kubelet's health")

    def kill_kubelet(self) -> None:
        """End the kubelet with SIGKILL; pods go on running."""
        self._end_kubelet(grace_s=0.0)

    def stop_kubelet(self) -> None:
        """End the kubelet with SIGTERM; pods go on running."""
        self._end_kubelet(grace_s=_STOP_S)

    def restart_kubelet(self, *, wait: bool = True) -> None:
        """Stop the kubelet as a service manager would, and start it again."""
        self.stop_kubelet()
        self.start_kubelet(wait=wait)

    def _end_kubelet(self, *, grace_s: float) -> None:
        if left := processes.end(self.running("kubelet"), grace_s=grace_s):
            raise ClusterError(f"kubelet of {self.name} (pid {left[0].pid}) does not end")
