"""The processes of ours that faults are done to, and the objects that their queues are made of."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.chaos.api import TEAM
from hack.chaos.checks import CHECK, CHECKED, CONTROLLER
from hack.chaos.invariants import Json
from hack.chaos.load import CLASS, QUOTA
from hack.chaos.proxy import Proxy
from tests.support.e2e import queuelab
from tests.support.e2e.lab import Agent

SEAM: Final = Path(__file__).parent / "seam"
CLOCK_ENV: Final = "TESSERA_CHAOS_CLOCK"


@dataclass
class ChaosAgent(Agent):
    """An agent whose state lies where ``kept`` says."""

    kept: Path = Path()

    @property
    def state_dir(self) -> Path:
        return self.kept

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def listens(self) -> bool:
        return _listens(self.port)


@dataclass
class Replica(queuelab.Controller):
    """A controller behind a proxy, with a clock that can be stepped."""

    proxy: Proxy | None = None
    clock: Path = Path()

    def start(self) -> None:
        with _environment({"PYTHONPATH": str(SEAM), CLOCK_ENV: str(self.clock)}):
            super().start()

    @property
    def listens(self) -> bool:
        return _listens(self.port)

    def _account(self) -> Path:
        assert self.proxy is not None
        path = super()._account()
        config = json.loads(path.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.proxy.port}"
        path.write_text(json.dumps(config))
        return path


def _listens(port: int) -> bool:
    """Whether a process got so far that it serves."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def _environment(more: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def objects() -> str:
    """Namespace, class and template of claims, topology, flavor, an admission check, and two queues that lend to each
    other, one with that check: for kubectl.
    """
    group = [
        ("v1", "Namespace", TEAM, "", {}),
        ("resource.k8s.io/v1", "DeviceClass", CLASS, "", {"spec": _class()}),
        ("resource.k8s.io/v1", "ResourceClaimTemplate", "gpu", TEAM, {"spec": {"spec": _claim()}}),
    ]
    api = queuelab.API
    levels = {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
    flavor = {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": "hosts"}
    group += [
        (api, "Topology", "hosts", "", {"spec": levels}),
        (api, "ResourceFlavor", "gpus", "", {"spec": flavor}),
        (api, "AdmissionCheck", CHECK, "", {"spec": {"controllerName": CONTROLLER}}),
    ]
    for name, amounts in QUOTA.items():
        spec: Json = {"namespaceSelector": {}, "cohortName": "all", "resourceGroups": resource_groups(amounts)}
        if name == CHECKED:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
        group.append((api, "ClusterQueue", name, "", {"spec": spec}))
        group.append((api, "LocalQueue", name, TEAM, {"spec": {"clusterQueue": name}}))
    bodies = [
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
            **parts,
        }
        for version, kind, name, namespace, parts in group
    ]
    return "\n---\n".join(map(json.dumps, bodies))


def resource_groups(amounts: Mapping[str, int]) -> list[Json]:
    """Of a ClusterQueue with so much of each resource."""
    quotas = [{"name": resource, "nominalQuota": str(amount)} for resource, amount in amounts.items()]
    return [{"coveredResources": [*amounts], "flavors": [{"name": "gpus", "resources": quotas}]}]


def _class() -> Json:
    expression = f"device.driver == '{CLASS}' && device.attributes['{CLASS}'].type == 'gpu'"
    return {"selectors": [{"cel": {"expression": expression}}]}


def _claim() -> Json:
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CLASS}}]}}
