"""The command lines of the control plane's programs, of kwok and of CoreDNS. Pure: paths in, arguments out."""

from pathlib import Path

from hack.cluster.controlplane.pki import FRONT_PROXY, Pki
from hack.cluster.layout import ClusterPaths
from hack.cluster.state import State

KWOK_ANNOTATION = ("kwok.x-k8s.io/node", "fake")


def server(state: State) -> str:
    """The API server's address as the machine sees it."""
    return f"https://127.0.0.1:{state.ports['apiserver']}"


def etcd(paths: ClusterPaths, state: State) -> list[str]:
    client, peer = (f"https://127.0.0.1:{state.ports[name]}" for name in ("etcd", "etcd-peer"))
    pki = Pki(paths.pki)
    flags = {
        "name": "default",
        "data-dir": paths.etcd,
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        "log-level": "warn",
        # A test cluster's data need not survive a power cut.
        "unsafe-no-fsync": "true",
    }
    for side in ("", "peer-"):
        flags |= {
            f"{side}cert-file": pki.file("etcd.crt"),
            f"{side}key-file": pki.file("etcd.key"),
            f"{side}trusted-ca-file": pki.ca,
            f"{side}client-cert-auth": "true",
        }
    return ["etcd", *_flags(flags)]


def apiserver(paths: ClusterPaths, state: State) -> list[str]:
    pki = Pki(paths.pki)
    flags = {
        "etcd-servers": f"https://127.0.0.1:{state.ports['etcd']}",
        "etcd-cafile": pki.ca,
        "etcd-certfile": pki.file("etcd.crt"),
        "etcd-keyfile": pki.file("etcd.key"),
        "bind-address": "127.0.0.1",
        "secure-port": state.ports["apiserver"],
        # Only for what it says of itself; nobody is told to come here (no endpoint reconciler).
        "advertise-address": state.addresses.gateway,
        "endpoint-reconciler-type": "none",
        "tls-cert-file": pki.file("apiserver.crt"),
        "tls-private-key-file": pki.file("apiserver.key"),
        "client-ca-file": pki.ca,
        "token-auth-file": paths.tokens,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "service-cluster-ip-range": state.addresses.services,
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": pki.service_account_public_key,
        "service-account-signing-key-file": pki.service_account_key,
        "kubelet-client-certificate": pki.file("kubelet-client.crt"),
        "kubelet-client-key": pki.file("kubelet-client.key"),
        "kubelet-preferred-address-types": "InternalIP",
        "requestheader-client-ca-file": pki.file("front-proxy-ca.crt"),
        "requestheader-allowed-names": FRONT_PROXY,
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": pki.file("front-proxy.crt"),
        "proxy-client-key-file": pki.file("front-proxy.key"),
        "profiling": "false",
    }
    if state.audit:
        flags |= {
            "audit-policy-file": Path(state.audit) / "policy.yaml",
            "audit-log-path": Path(state.audit) / f"{paths.name}.log",
        }
    return ["kube-apiserver", *_flags(flags), *state.spec.apiserver_args]


def controller_manager(paths: ClusterPaths, state: State, kubeconfig: Path) -> list[str]:
    flags = {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "leader-elect": "false",
        "secure-port": 0,
        "root-ca-file": Pki(paths.pki).ca,
        "service-account-private-key-file": Pki(paths.pki).service_account_key,
        "use-service-account-credentials": "true",
        "flex-volume-plugin-dir": paths.home / "volume-plugins",
        # The default, 20 a second for each controller, keeps who deletes 200 pods waiting for half a minute.
        "kube-api-qps": 200,
        # The default is 50 s, kwok's heartbeat comes every 25 s: no node is lost because the machine is busy.
        "node-monitor-grace-period": "5m",
        "kube-api-burst": 400,
    }
    return ["kube-controller-manager", *_flags(flags), *state.spec.controller_manager_args]


def scheduler(state: State, kubeconfig: Path) -> list[str]:
    flags = {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "leader-elect": "false",
        "secure-port": 0,
    }
    return ["kube-scheduler", *_flags(flags), *state.spec.scheduler_args]


def kubelet(kubeconfig: Path, config: Path, *, node: str, address: object) -> list[str]:
    flags = {"config": config, "kubeconfig": kubeconfig, "hostname-override": node, "node-ip": address, "v": 2}
    return ["kubelet", *_flags(flags)]


def kwok(paths: ClusterPaths) -> list[str]:
    flags = {
        "kubeconfig": paths.kubeconfig,
        "config": paths.stages,
        "manage-nodes-with-annotation-selector": "=".join(KWOK_ANNOTATION),
    }
    return [*_flags(flags)]


def coredns(paths: ClusterPaths) -> list[str]:
    return ["-conf", str(paths.corefile)]


def _flags(values: dict[str, object] | dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]
