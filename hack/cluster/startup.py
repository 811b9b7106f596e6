"""Starting a cluster's parts in order, each written down before it is made.

Nodes boot and import their images while the control plane starts: the two do not need each other until the kubelets
register.
"""

import dataclasses
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from hack.cluster import processes, waiting
from hack.cluster import state as states
from hack.cluster.controlplane import controlplane, pki, render, stages
from hack.cluster.errors import ClusterError
from hack.cluster.layout import AUDIT_ENV, ClusterPaths
from hack.cluster.mutex import mutex
from hack.cluster.nodes import network, serviceroute
from hack.cluster.nodes.node import NodeHost
from hack.cluster.processes import Identity
from hack.cluster.programs import images
from hack.cluster.state import Spec, State
from inventory.words.catalog import plural

_READY_S = 300.0
_COMPONENT_S = 240.0
_API_SERVICE_PORT = 443  # the API server gives its Service no other
_DNS_PORT = 53
_DNS_READY = "coredns-ready"

Say = Callable[[str], None]
Kubectl = Callable[..., str]


class Startup:
    """One run of ``up``. Its threads share the state, which only ``_record`` changes."""

    def __init__(self, paths: ClusterPaths, built: Mapping[str, str], kubectl: Kubectl, say: Say) -> None:
        self._paths = paths
        self._built = dict(built)
        self._kubectl = kubectl
        self._say = say
        self._lock = threading.Lock()
        self._state: State | None = None
        self._tokens: dict[str, str] = {}
        self._start = time.monotonic()

    def run(self, spec: Spec) -> None:
        """Start everything; returns when all nodes are Ready and the default service account exists."""
        states.make_private(self._paths.home.parent)
        states.make_private(self._paths.home)
        self._choose(spec)
        hosts = [NodeHost(self._paths, self._paths.node(name), self._now) for name in spec.nodes]
        with ThreadPoolExecutor(max_workers=4) as pool:
            booted = [pool.submit(self._boot, host) for host in hosts]
            self._control_plane()
            self._join(hosts, booted)
        if spec.kwok_nodes:
            self._kwok(spec)
        if spec.dns:
            self._dns()
        self._await_ready(spec)
        self._record(lambda state: dataclasses.replace(state, phase="up"))
        self._tell(f"ready: {plural(len(spec.nodes) + spec.kwok_nodes, 'node')}")

    def _tell(self, what: str) -> None:
        self._say(f"[{time.monotonic() - self._start:5.1f} s] {what}")

    def _now(self) -> State:
        assert self._state is not None, "chosen before any part starts"
        return self._state

    def _record(self, change: Callable[[State], State]) -> None:
        with self._lock:
            self._state = change(self._now())
            states.save(self._paths.state, self._state)

    def _choose(self, spec: Spec) -> None:
        """Choose what no other cluster has, write it down and take the addresses, all before another may choose."""
        names = ["etcd", "etcd-peer", "apiserver"]
        names += [f"{kind}-{node}" for node in spec.nodes for kind in ("kubelet", "healthz")]
        names += [_DNS_READY] if spec.dns else []
        with mutex("addresses and ports"):
            addresses = network.choose_addresses(network.networks_in_use(), seed=int(self._paths.short_id, 16))
            ports = network.choose_ports(names, claimed=states.claimed_ports(self._paths.home.parent))
            cidr = str(addresses.cluster)
            self._state = State(
                spec=spec,
                phase="starting",
                cluster_cidr=cidr,
                ports=ports,
                binaries=self._built,
                audit=os.environ.get(AUDIT_ENV, ""),
            )
            states.save(self._paths.state, self._state)
            network.add_bridge(self._paths.bridge, addresses)

    def _spawn(self, component: str, argv: Sequence[str]) -> Identity:
        identity = processes.spawn(argv, home=self._paths.home, log=self._paths.log(component))
        self._record(lambda state: state.with_process(component, identity))
        return identity

    def _kubernetes(self, component: str, argv: Sequence[str]) -> Identity:
        return self._spawn(component, [str(Path(self._built["kubernetes"]) / "tessera-kubernetes"), *argv])

    def _control_plane(self) -> None:
        self._tell("starting etcd and the API server")
        keys = pki.create(self._paths.pki, self._now().addresses)
        etcd = self._kubernetes("etcd", controlplane.etcd(self._paths, self._now()))
        text, self._tokens = pki.token_file(self._now().spec.nodes)
        self._paths.tokens.write_text(text, encoding="utf-8")
        self._write_kubeconfig(self._paths.kubeconfig, pki.ADMIN, keys)
        apiserver = self._kubernetes("apiserver", controlplane.apiserver(self._paths, self._now()))
        watched = {self._paths.log("etcd"): etcd, self._paths.log("apiserver"): apiserver}
        ready = f"{controlplane.server(self._now())}/readyz"
        token = self._tokens[pki.ADMIN]
        waiting.until(
            lambda: waiting.answers(ready, ca=keys.ca, token=token),
            "the API server",
            timeout_s=_COMPONENT_S,
            watched=watched,
        )
        self._tell("API server is ready; starting the controllers and the scheduler")
        manager, scheduler = self._paths.pki / "controller-manager.kubeconfig", self._paths.pki / "scheduler.kubeconfig"
        self._write_kubeconfig(manager, "system:kube-controller-manager", keys)
        self._write_kubeconfig(scheduler, "system:kube-scheduler", keys)
        self._kubernetes("controller-manager", controlplane.controller_manager(self._paths, self._now(), manager))
        self._kubernetes("scheduler", controlplane.scheduler(self._now(), scheduler))

        self._service_route()

    def _service_route(self) -> None:
        address, port = str(self._now().addresses.api_service), _API_SERVICE_PORT
        if not network.is_free(port, address):
            # Something on the machine listens on this port of every address. Pods that need the API have no way then.
            self._tell(f"port {port} is taken on this machine: pods will not reach the API server")
            return
        target = self._now().ports["apiserver"]
        script = Path(serviceroute.__file__)
        self._spawn("service-route", [sys.executable, str(script), address, str(port), str(target)])

    def _write_kubeconfig(self, path: Path, user: str, keys: pki.Pki) -> None:
        text = render.kubeconfig(
            server=controlplane.server(self._now()),
            ca_pem=Path(keys.ca).read_bytes(),
            user=user,
            token=self._tokens[user],
            cluster=self._paths.name,
        )
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")

    def _boot(self, host: NodeHost) -> None:
        init = host.boot()
        self._record(lambda state: state.with_process(host.init_key, init))
        host.start_containerd()
        host.load_image(self._test_images())
        self._tell(f"containerd of {host.name} is ready and has the test images")

    def _test_images(self) -> Path:
        with self._lock:
            if not self._paths.images.exists():
                images.write_test_images(self._paths.images, machine=platform.machine())
        return self._paths.images

    def _join(self, hosts: Sequence[NodeHost], booted: Sequence[Future[None]]) -> None:
        """Start the kubelets, once both their containerd and the API server are there."""
        for host, boot in zip(hosts, booted, strict=True):
            boot.result()
            host.write_kubelet_files(self._tokens[f"system:node:{host.name}"])
            host.start_kubelet(wait=False)
        for host in hosts:
            host.await_kubelet()

    def _kwok(self, spec: Spec) -> None:
        self._paths.stages.write_text(stages.stages(), encoding="utf-8")
        self._spawn("kwok", [str(Path(self._built["kwok"]) / "kwok"), *controlplane.kwok(self._paths)])
        self._kubectl("create", "-f", "-", input=stages.nodes(spec.kwok_nodes, spec.kwok_capacity))

    def _dns(self) -> None:
        """CoreDNS, on the address that kubelets write into pods' resolv.conf. It answers once it knows all Services."""
        address, port = self._now().addresses.dns_service, self._now().ports[_DNS_READY]
        if not network.is_free(_DNS_PORT, str(address)):
            raise ClusterError(f"port {_DNS_PORT} of every address is taken on this machine: CoreDNS needs it")
        text = render.corefile(address=address, ready_port=port, kubeconfig=self._paths.kubeconfig)
        self._paths.corefile.write_text(text, encoding="utf-8")
        identity = self._spawn(
            "coredns", [str(Path(self._built["coredns"]) / "coredns"), *controlplane.coredns(self._paths)]
        )
        waiting.until(
            lambda: waiting.answers(f"http://127.0.0.1:{port}/ready"),
            "CoreDNS",
            timeout_s=_COMPONENT_S,
            watched={self._paths.log("coredns"): identity},
        )

    def _await_ready(self, spec: Spec) -> None:
        watched = {
            self._paths.log(name): each for name, each in self._now().processes.items() if not name.startswith("init-")
        }
        wanted = {*spec.nodes, *(f"kwok-{index}" for index in range(spec.kwok_nodes))}
        template = '{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'

        def all_ready() -> bool:
            lines = self._kubectl("get", "nodes", "-o", f"jsonpath={template}").splitlines()
            return wanted <= {line.split()[0] for line in lines if line.endswith(" True")}

        if wanted:
            waiting.until(
                all_ready, f"Ready of {', '.join(sorted(wanted)[:5])}", timeout_s=_READY_S, watched=watched, every_s=0.3
            )
        account = ("get", "serviceaccount", "default", "--ignore-not-found", "-o", "name")
        waiting.until(
            lambda: bool(self._kubectl(*account)), "the default service account", timeout_s=_READY_S, watched=watched
        )
