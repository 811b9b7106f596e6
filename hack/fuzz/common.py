"""Targets of rooms that agent, controller and commands share: configuration text, the API server's answers, fleets."""

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hack.fuzz.target import ROOT, Parse, Shape, Target

Made = tuple[Parse, tuple[type[Exception], ...]]
EXAMPLES: Final = ROOT / "examples"


def files(*patterns: str) -> Callable[[], Sequence[bytes]]:
    """The contents of examples."""
    return lambda: [path.read_bytes() for pattern in patterns for path in sorted(EXAMPLES.glob(pattern))]


def manifests(*patterns: str) -> list[dict[str, Any]]:
    """Objects of examples, one for each document."""
    found = (document for raw in files(*patterns)() for document in yaml.load_all(raw, yaml.CSafeLoader))
    return [document for document in found if isinstance(document, dict)]


def as_json(objects: Iterable[Any]) -> list[bytes]:
    return [msgspec.json.encode(each) for each in objects]


def by_file(read: Callable[[Path], object]) -> Parse:
    """A parser that opens its file itself, with the bytes in one that reaches no disk."""
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    descriptor, name = tempfile.mkstemp(prefix="fuzz-", dir=folder)
    path = Path(name)
    path.unlink()
    shown = Path(f"/proc/self/fd/{descriptor}")

    def parse(data: bytes) -> object:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)
        return read(shown)

    return parse


def _fleet() -> Made:
    from simulator.fleet.fleetfile import load_fleet
    from simulator.reading import InputError

    return by_file(load_fleet), (InputError,)


def _daemon_kubeconfig() -> Made:
    from kube.errors import ConfigError
    from kube.kubeconfig import from_kubeconfig

    def parse(path: Path) -> object:
        return from_kubeconfig(path).ssl_context()

    return by_file(parse), (ConfigError,)


def _command_kubeconfig() -> Made:
    from kube.errors import ConfigError
    from kube.kubeconfig import choose, config_of

    def parse(path: Path) -> object:
        """As ``kube.logins``, which would run what an entry names as a login."""
        return config_of(choose([path])).ssl_context()

    return by_file(parse), (ConfigError,)


_KUBECONFIG: Final = b"""apiVersion: v1
kind: Config
current-context: here
clusters:
- name: one
  cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: LS0tLS1CRUdJTg==, tls-server-name: a}
contexts:
- name: here
  context: {cluster: one, user: me, namespace: team}
users:
- name: me
  user: {token: abc}
"""


def _kubeconfigs() -> Sequence[bytes]:
    plain = yaml.load(_KUBECONFIG, yaml.CSafeLoader)
    return [
        _KUBECONFIG,
        _KUBECONFIG.replace(b", certificate-authority-data: LS0tLS1CRUdJTg==, tls-server-name: a", b""),
        msgspec.json.encode(plain),
        _KUBECONFIG.replace(b"{token: abc}", b"{exec: {command: none, apiVersion: client.authentication.k8s.io/v1}}"),
        _KUBECONFIG.replace(b"{token: abc}", b"{client-certificate-data: YQ==, client-key-data: YQ==}"),
        _KUBECONFIG.replace(b"{token: abc}", b"{auth-provider: {name: oidc, config: {id-token: a.b.c}}}"),
        _KUBECONFIG.replace(b"{token: abc}", b"{username: a, password: b}"),
    ]


def _watch() -> Made:
    from kube.client import _watch_event, decoder
    from kube.errors import KubeError
    from kube.objects import Metadata

    decode = decoder(Metadata)
    return lambda line: _watch_event("watch", line, decode), (KubeError,)


def _failure() -> Made:
    from kube.errors import KubeError, from_response

    def parse(data: bytes) -> object:
        status = 400 + (data[0] if data else 0)
        found: KubeError = from_response("GET /api", status, data[1:], data[1:9].decode(errors="replace"))
        raise found

    return parse, (KubeError,)


def _prometheus() -> Made:
    from kube.prometheus import Prometheus, PrometheusError

    asked = Prometheus("http://127.0.0.1:9090", timeout_s=1)
    return lambda data: asked._vector(200, data), (PrometheusError,)  # noqa: SLF001 - what its answers come to


def _history() -> Made:
    from kube.prometheus import Prometheus, PrometheusError

    asked = Prometheus("http://127.0.0.1:9090", timeout_s=1)
    return lambda data: asked._matrix(200, data), (PrometheusError,)  # noqa: SLF001 - what its answers come to


def _device_plan() -> Made:
    from inventory.api import deviceplan

    def parse(data: bytes) -> object:
        found = deviceplan.devices(data.decode(errors="replace"))
        assert len(found) <= 6400, "more devices than any pod is given"  # noqa: PLR2004 - 64 GPUs by the percent
        return found

    return parse, ()


def _claim_plan() -> Made:
    from inventory.api import claimplan

    def parse(data: bytes) -> object:
        for requests in claimplan.read(data.decode(errors="replace")).values():
            for attributes in requests.values():
                assert '"' not in claimplan.expression(attributes).replace('"', "", 10**6), "a text leaves its quotes"
        return None

    return parse, ()


_EVENTS: Final[Sequence[Any]] = (
    {"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "7"}, "reason": "x", "note": "y"}},
    {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
    {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}},
)
_VECTOR: Final = {
    "status": "success",
    "data": {"resultType": "vector", "result": [{"metric": {"__name__": "up", "job": "a"}, "value": [1.5, "1"]}]},
}
_MATRIX: Final = {
    "status": "success",
    "data": {"resultType": "matrix", "result": [{"metric": {"queue": "a"}, "values": [[1.5, "1"], [2, "NaN"]]}]},
}

TARGETS: Final = (
    Target(
        name="fleet-file",
        what="fleet files of the simulator",
        writer="administrators",
        make=_fleet,
        seeds=files("fleets/*.yaml"),
        shape=Shape.TEXT,
    ),
    Target(
        name="kubeconfig-daemon",
        what="kubeconfigs, as agent and controller read them",
        writer="administrators",
        make=_daemon_kubeconfig,
        seeds=_kubeconfigs,
        shape=Shape.TEXT,
    ),
    Target(
        name="kubeconfig-command",
        what="kubeconfigs, as commands read them",
        writer="users",
        make=_command_kubeconfig,
        seeds=_kubeconfigs,
        shape=Shape.TEXT,
    ),
    Target(
        name="watch-event",
        what="lines of a watch",
        writer="the API server, a proxy before it",
        make=_watch,
        seeds=lambda: as_json(_EVENTS),
    ),
    Target(
        name="api-failure",
        what="bodies and pauses of refused requests",
        writer="the API server, a proxy before it",
        make=_failure,
        seeds=lambda: [
            b"\x1d" + each for each in as_json(({"kind": "Status", "reason": "TooManyRequests", "code": 429},))
        ],
        shape=Shape.TEXT,
    ),
    Target(
        name="prometheus",
        what="answers of Prometheus",
        writer="a Prometheus, and all that it scrapes",
        make=_prometheus,
        seeds=lambda: as_json((_VECTOR, {"status": "error", "error": "bad"})),
    ),
    Target(
        name="prometheus-history",
        what="answers of Prometheus over a time",
        writer="a Prometheus, and all that it scrapes",
        make=_history,
        seeds=lambda: as_json((_MATRIX, {"status": "error", "error": "bad"})),
    ),
    Target(
        name="device-plan",
        what="annotation tessera.dev/devices",
        writer="anybody who makes pods",
        make=_device_plan,
        seeds=lambda: [b"GPU-1,GPU-2", b"GPU-1*60,GPU-2*60"],
        shape=Shape.TEXT,
    ),
    Target(
        name="claim-plan",
        what="annotation with the devices of claims",
        writer="anybody who makes pods",
        make=_claim_plan,
        seeds=lambda: as_json(({"gpu": {"main": {"gpu.nvidia.com/uuid": ["GPU-1", "GPU-2"]}}},)),
    ),
)
