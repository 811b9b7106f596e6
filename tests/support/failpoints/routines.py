"""What a process does by itself, outside of jobs and devices: certificates, addresses of webhooks, leases, Events,
names of configurations. Each is done by one process until it dies, and by the next from the beginning.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from agent.cluster.publisher import _LabelWriter
from agent.config.load import last_good, remember
from agent.config.names import ConfigName
from agent.config.settings import DriverSettings
from agent.kubelet.cdifiles import CdiFiles
from controller.cluster.process.uninstall import remove_finalizers, remove_placeholders
from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS
from controller.cluster.webhooks.certificates import AUTHORITY_S
from controller.cluster.webhooks.injection import CRDS, MUTATING, ServiceTarget, inject
from controller.cluster.webhooks.keeper import SECRETS, OwnCertificates, SecretName, read
from controller.people.visibility.service_shell import API_SERVICES, ViewService
from deviceplugin.cdi import file_name
from deviceplugin.strategy import AllocationSpec, DeviceListStrategy, NodeAccess
from failpoints.names import Failpoint
from hack.failpoints.armed import Moment, Point
from kube.client import Client
from kube.clock import Backoff, sleep
from kube.election.lease import Identity, Leadership, LeaseRef
from kube.objects import ObjectReference
from kube.resources import EVENTS, LEASES, NODES
from kube.testing import FakeApiServer, VirtualClock
from kube.writing.events import EventRecorder, Occurrence

SECRET: Final = SecretName("tessera-system", "certificates")
SERVICE: Final = ("tessera-system", "view")
HOOK: Final = ServiceTarget("tessera-system", "hook")
IN_USE: Final = "kueue.x-k8s.io/resource-in-use"
LEASED: Final = LeaseRef("tessera-system", "tessera-controller")


class Scene:
    """What outlives a process: API server, files, time."""

    def __init__(self, server: FakeApiServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.clock = VirtualClock()
        self.lives = 0
        self.done = 0
        """How often the routine has come to its end."""


class Routine(NamedTuple):
    """``run`` is all that a process does of it; ``right`` says whether its end is as it should be."""

    name: str
    failpoints: tuple[Failpoint, ...]
    run: Callable[[Scene, Client], Awaitable[object]]
    right: Callable[[Scene], bool]
    before: Callable[[Scene], object] = lambda _: None
    step_s: float = 0.5
    """Of virtual time, between two looks."""

    @property
    def points(self) -> list[Point]:
        return [Point(failpoint, moment) for failpoint in self.failpoints for moment in Moment]


async def certificates(scene: Scene, client: Client) -> None:
    """Made, and a year later a step further."""
    await OwnCertificates(client, SECRET, names=("hook",), clock=scene.clock).current()
    if not scene.done:
        scene.clock.advance(AUTHORITY_S)
    await OwnCertificates(client, SECRET, names=("hook",), clock=scene.clock).current()


def certified(scene: Scene) -> bool:
    kept = read(scene.server.get(SECRETS, SECRET.name, namespace=SECRET.namespace)["data"])
    return kept is not None and kept.serving.certificate != b""


def installed(scene: Scene) -> None:
    versions = [{"name": "v1beta1", "served": True, "storage": False}, {"name": "v1beta2", "served": True}]
    scene.server.create(CRDS, "workloads.kueue.x-k8s.io", {"metadata": {}, "spec": {"versions": versions}})
    hook = {"name": "a", "clientConfig": HOOK.client_config("/mutate"), "sideEffects": "None"}
    scene.server.create(MUTATING, "hooks", {"metadata": {}, "webhooks": [hook]})


async def injects(scene: Scene, client: Client) -> None:
    del scene
    named = ((MUTATING, "hooks"),)
    await inject(client, HOOK, b"trusted", leading=True, configurations=named, serve_old_workloads=False)


def injected(scene: Scene) -> bool:
    spec = scene.server.get(CRDS, "workloads.kueue.x-k8s.io")["spec"]
    (hook,) = scene.server.get(MUTATING, "hooks")["webhooks"]
    served = {each["name"]: each["served"] for each in spec["versions"]}
    return (
        spec["conversion"]["webhook"]["clientConfig"]["service"]["name"] == HOOK.name
        and served == {"v1beta1": False, "v1beta2": True}
        and bool(hook["clientConfig"]["caBundle"])
    )


def served(scene: Scene) -> None:
    service = {"namespace": SERVICE[0], "name": SERVICE[1]}
    scene.server.create(API_SERVICES, "v1.view", {"metadata": {}, "spec": {"service": service}})


async def serves(scene: Scene, client: Client) -> None:
    unused = cast("Any", None)
    view = ViewService(client, unused, unused, SERVICE, clock=scene.clock, backoff=Backoff(random=lambda: 0.5))
    await view._inject("v1.view", b"trusted")


def queues(scene: Scene) -> None:
    for resource in (CLUSTER_QUEUES, FLAVORS):
        scene.server.create(resource, "a", {"metadata": {"finalizers": [IN_USE]}})


async def _uninstalled(client: Client) -> None:
    await remove_finalizers(client)
    await remove_placeholders(client, "tessera-system")


async def leads(scene: Scene, client: Client) -> None:
    """Over some renewals, and lets the lease go."""
    me = Identity(f"life-{scene.lives}")
    leadership = Leadership(client, [LEASED], me=me, clock=scene.clock, random=lambda: 0.5)
    assert await leadership.lead(lambda: sleep(scene.clock, 20.0))


async def tells(scene: Scene, client: Client) -> None:
    """The same thing happens twice."""
    about = ObjectReference(api_version="v1", kind="Node", name="node-1", uid="uid-1")
    backoff = Backoff(random=lambda: 0.5)
    recorder = EventRecorder(client, controller="tessera", instance="a", clock=scene.clock, backoff=backoff)
    running = asyncio.create_task(recorder.run())
    try:
        for _ in range(2):
            recorder.record(Occurrence(regarding=about, reason="Told", action="Tell", note="told", type="Normal"))
            while not recorder.settled:
                await asyncio.wait([running], timeout=0.001)
                if running.done():
                    running.result()
    finally:
        running.cancel()


def labelled(scene: Scene) -> None:
    scene.server.create(NODES, "node-1", {"metadata": {"labels": {"nvidia.com/gpu.product": "an-older-one"}}})


async def labels(scene: Scene, client: Client) -> None:
    writer = _LabelWriter(client, "node-1", scene.clock, lambda **_: None, lambda _: None)
    await writer.write({"nvidia.com/gpu.count": "2"})


def uncut(scene: Scene) -> None:
    """A node that had devices, of GPUs and of GPUDirect Storage, has none."""
    for cls in ("gpu", "gds"):
        (scene.folder / file_name(cls)).write_text("{}")


async def removes(scene: Scene, _: Client) -> None:
    spec = AllocationSpec(strategies=(DeviceListStrategy.CDI_CRI,), gds=True)
    await CdiFiles(scene.folder, DriverSettings(), simulated=True).write(spec, NodeAccess())


async def chooses(scene: Scene, _: Client) -> None:
    ConfigName(scene.folder).choose("large")


async def chooses_none(scene: Scene, _: Client) -> None:
    ConfigName(scene.folder).choose(None)


async def remembers(scene: Scene, _: Client) -> None:
    remember(scene.folder, "version: v1\n")


ROUTINES: Final = (
    Routine("certificates", (Failpoint.CERTIFICATES, Failpoint.CERTIFICATES_RENEWED), certificates, certified),
    Routine(
        "addresses of webhooks",
        (Failpoint.CRD_CONVERSION, Failpoint.CRD_SERVED, Failpoint.WEBHOOK_BUNDLE),
        injects,
        injected,
        installed,
    ),
    Routine(
        "the address of the view",
        (Failpoint.API_SERVICE_BUNDLE,),
        serves,
        lambda scene: bool(scene.server.get(API_SERVICES, "v1.view")["spec"].get("caBundle")),
        served,
    ),
    Routine(
        "the end of a release",
        (Failpoint.UNINSTALLED,),
        lambda _, client: _uninstalled(client),
        lambda scene: (
            not any(
                scene.server.get(resource, "a")["metadata"].get("finalizers") for resource in (CLUSTER_QUEUES, FLAVORS)
            )
        ),
        queues,
    ),
    Routine(
        "a lease",
        (Failpoint.LEASE, Failpoint.LEASE_CHANGED),
        leads,
        lambda scene: scene.server.get(LEASES, LEASED.name, namespace=LEASED.namespace)["spec"]["holderIdentity"] == "",
    ),
    Routine(
        "Events",
        (Failpoint.EVENT_COUNTED,),
        tells,
        lambda scene: any(each.get("series", {}).get("count") == 2 for each in scene.server.list_all(EVENTS)),
        step_s=60.0,
    ),
    Routine(
        "a label of two owners",
        (Failpoint.NODE_LABEL_REMOVED,),
        labels,
        lambda scene: scene.server.get(NODES, "node-1")["metadata"]["labels"] == {"nvidia.com/gpu.count": "2"},
        labelled,
    ),
    Routine(
        "device files of no devices",
        (Failpoint.CDI_REMOVED,),
        removes,
        lambda scene: not list(scene.folder.iterdir()),
        uncut,
    ),
    Routine(
        "a configuration's name",
        (Failpoint.CONFIG_NAME,),
        chooses,
        lambda scene: ConfigName(scene.folder).name == "large",
    ),
    Routine(
        "no configuration's name",
        (Failpoint.CONFIG_NAME_REMOVED,),
        chooses_none,
        lambda scene: ConfigName(scene.folder).name is None,
        lambda scene: ConfigName(scene.folder).choose("large"),
    ),
    Routine(
        "the last good configuration",
        (Failpoint.LAST_GOOD_CONFIG,),
        remembers,
        lambda scene: last_good(scene.folder) == "version: v1\n",
    ),
)
