"""Turns each device's usage into the series that Prometheus reads. Pure.

DCGM's series carry dcgm-exporter's labels in its order. A device that one container has for itself carries its pod on
every series. On a shared one, each figure that can be divided (see ``fields.PER_POD``) has one series for each pod with
that pod's own part and one without a pod for the rest, so that sums stay true; the rest of its series are the device's,
without a pod.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from agent.health.xids import UNKNOWN_XID_NAME, XIDS
from agent.kubelet.containers import PodContainer
from agent.telemetry.activity import Activity
from agent.telemetry.allocation import NOBODY, Allocation, GpuPart, Tenants, tenants
from agent.telemetry.collectors import USUAL, Collectors
from agent.telemetry.energy import Account
from agent.telemetry.exposition import Family, Writer, labels
from agent.telemetry.fields import (
    CLOCK_EVENT_COUNT,
    CLOCK_EVENTS,
    CLOCK_REASONS,
    HEALTH_STATUS,
    PER_POD,
    XID_COUNT,
    XID_ERRORS,
)
from agent.telemetry.healthwatch import Finding
from agent.telemetry.podlabels import claim_pairs
from agent.telemetry.reading.readings import GpuReading
from agent.telemetry.shares import Figure
from agent.telemetry.usage import FIGURES, Usage
from inventory.devices import Gpu, GpuUuid, NodeInventory

User = tuple[GpuPart, PodContainer]

BUSY = "tessera_gpu_busy_ratio"
ALLOCATION = "tessera_gpu_allocation"
THROTTLED = "tessera_gpu_throttled"
NVLINKS = "tessera_gpu_nvlinks"
OPEN_XID = "tessera_gpu_open_xid"
POD_SM = "tessera_pod_gpu_sm_utilization_ratio"
POD_ENCODER = "tessera_pod_gpu_encoder_utilization_ratio"
POD_DECODER = "tessera_pod_gpu_decoder_utilization_ratio"
POD_MEMORY = "tessera_pod_gpu_memory_used_bytes"
POD_BUSY = "tessera_pod_gpu_busy_ratio"
POD_POWER = "tessera_pod_gpu_power_estimate_watts"
POD_ENERGY = "tessera_pod_gpu_energy_estimate_joules_total"
POD_IDLE = "tessera_pod_gpu_idle_seconds"
POD_USE = "tessera_pod_gpu_use"

OWN: tuple[Family, ...] = (
    Family(BUSY, "gauge", "Share of the time that the device worked, 0 to 1, in whatever mode it is."),
    Family(ALLOCATION, "gauge", "Share of the physical GPU that the container was given, 0 to 1."),
    Family(THROTTLED, "gauge", "1 while this reason holds the clocks down."),
    Family(NVLINKS, "gauge", "NVLinks that were ever up, by whether they are so now."),
    Family(OPEN_XID, "gauge", "XID of the worst fault that is open; 0 when there is none."),
    Family(POD_SM, "gauge", "Part of the device's SM utilisation, 0 to 1."),
    Family(POD_ENCODER, "gauge", "Part of the device's encoder utilisation, 0 to 1."),
    Family(POD_DECODER, "gauge", "Part of the device's decoder utilisation, 0 to 1."),
    Family(POD_MEMORY, "gauge", "Part of the device's used framebuffer memory."),
    Family(POD_BUSY, "gauge", "Part of the device's busy ratio, 0 to 1, in whatever mode it is."),
    Family(POD_POWER, "gauge", "Estimate: the device's power draw, apportioned by activity."),
    Family(POD_ENERGY, "counter", "Estimate: the device's energy since the agent first saw it, apportioned as power."),
    Family(POD_IDLE, "gauge", "Time since the device last worked for this pod, as far as the agent has seen."),
    Family(POD_USE, "gauge", "1 for what the pod does with the device: active, warm, held or empty."),
)
"""The families under our own names, beside DCGM's."""

_PARTS: tuple[tuple[str, Figure, float], ...] = (
    (POD_SM, Figure.SM, 0.01),
    (POD_ENCODER, Figure.ENCODER, 0.01),
    (POD_DECODER, Figure.DECODER, 0.01),
    (POD_MEMORY, Figure.MEMORY_MIB, float(1 << 20)),
    (POD_POWER, Figure.POWER_W, 1.0),
)
_FIGURE_OF = {name: figure for figure, name in FIGURES.items()}
OLD_NAMES = {"container": "container_name", "namespace": "pod_namespace", "pod": "pod_name"}
"""dcgm-exporter 1.x's names of a pod's labels."""
_REST = (("owner", "unattributed"),)


class Recent(Struct, frozen=True, kw_only=True):
    """One GPU's recent events. ``xid`` is the XID that is shown, ``open_xid`` that of the worst open fault.

    ``xids`` and ``clock_events`` count within their windows, by XID and by reason.
    """

    xid: int = 0
    open_xid: int = 0
    xids: Mapping[int, int] = {}
    clock_events: Mapping[str, int] = {}
    watches: Mapping[str, Finding] = {}


NOTHING_RECENT = Recent()


class Style(Struct, frozen=True, kw_only=True):
    """dcgm-exporter's options for the labels of DCGM's series; see ``MetricsSettings``."""

    no_hostname: bool = False
    old_names: bool = False
    dashed_model: bool = False


class Scene(Struct, frozen=True, kw_only=True):
    """The input of one exposition: readings, shares, energy, idle times and recent events.

    ``pod_pairs`` has the further labels of a pod's series, by namespace and name.
    """

    node: NodeInventory
    usages: tuple[Usage, ...] = ()
    readings: Mapping[GpuUuid, GpuReading] = {}
    allocations: tuple[Allocation, ...] = ()
    recent: Mapping[GpuUuid, Recent] = {}
    xid_window_ms: int = 300_000
    clock_window_ms: int = 300_000
    pod_pairs: Mapping[tuple[str, str], tuple[tuple[str, str], ...]] = {}
    energy: Mapping[GpuUuid, Account[User]] = {}
    activities: Mapping[User, Activity] = {}
    collectors: Collectors = USUAL
    host: str = ""
    host_label: str = "Hostname"
    style: Style = Style()


def write(scene: Scene) -> Writer:
    """The series of a scene."""
    dcgm = [Family(field.name, field.kind.value, field.help) for field in scene.collectors.series]
    writer = Writer((*dcgm, *OWN))
    names = _Names(scene)
    for usage in scene.usages:
        _dcgm(writer, names, usage)
        _own(writer, names, usage, scene)
    holding = tenants(scene.allocations)
    for gpu in scene.node.gpus:
        _recent(writer, names, gpu, holding.get(GpuPart(gpu.uuid), NOBODY), scene)
        _board(writer, names, gpu, scene)
    for allocation in scene.allocations:
        found = scene.node.gpu(allocation.place.gpu)
        if found is not None:
            identity = names.short(found, allocation.place)
            writer.add(
                ALLOCATION,
                _with(
                    identity,
                    _pod(allocation.holder),
                    ("resource", allocation.resource),
                    ("mode", allocation.mode),
                    *claim_pairs(allocation.claim),
                ),
                allocation.share,
            )
    for name, old in scene.collectors.beside.items():
        writer.repeat(name, old)
    return writer


class _Names:
    """The label texts of one exposition, each made once."""

    def __init__(self, scene: Scene) -> None:
        self._host = (scene.host_label, scene.host)
        self._style = scene.style
        self._node = scene.node
        self._readings = scene.readings
        self._pod_pairs = scene.pod_pairs
        self._claims = {(each.place, each.holder): claim_pairs(each.claim) for each in scene.allocations}
        self._wanted = sorted(scene.collectors.labels)  # dcgm-exporter's order, whatever that of the file
        self._dcgm: dict[GpuPart, str] = {}
        self._short: dict[GpuPart, str] = {}
        self._profiles = {
            (gpu.uuid, mig.gi_id): mig.profile.rpartition("c.")[2]
            for gpu in scene.node.gpus
            for mig in gpu.mig_instances
        }

    def dcgm(self, gpu: Gpu, place: GpuPart) -> str:
        """dcgm-exporter's labels of a device, without a pod."""
        if place not in self._dcgm:
            domain, _, rest = gpu.pci_bus_id.partition(":")
            pairs = [
                ("gpu", str(gpu.index)),
                ("uuid" if self._style.old_names else "UUID", gpu.uuid),
                ("pci_bus_id", f"{domain.zfill(8)}:{rest}".upper()),
                ("device", f"nvidia{gpu.index}"),
                ("modelName", gpu.product.replace(" ", "-") if self._style.dashed_model else gpu.product),
                *self._instance(place),
                *(() if self._style.no_hostname else (self._host,)),
                *((name, self._static(gpu, name)) for name in self._wanted),
            ]
            self._dcgm[place] = labels(pairs)
        return self._dcgm[place]

    def short(self, gpu: Gpu, place: GpuPart) -> str:
        """The labels that identify a device in Tessera's own series, so that they join with DCGM's."""
        if place not in self._short:
            self._short[place] = labels(
                [("gpu", str(gpu.index)), ("UUID", gpu.uuid), *self._instance(place), self._host]
            )
        return self._short[place]

    def pod(self, holder: PodContainer, place: GpuPart) -> tuple[tuple[str, str], ...]:
        """dcgm-exporter's labels of a pod, and of the claim by which it has the device."""
        further = self._pod_pairs.get((holder.namespace, holder.pod), ())
        named = _pod(holder)
        if self._style.old_names:
            named = tuple((OLD_NAMES[label], value) for label, value in named)
        return (*named, *self._claims.get((place, holder), ()), *further)

    def _instance(self, place: GpuPart) -> list[tuple[str, str]]:
        if place.gi_id < 0:
            return []
        return [("GPU_I_PROFILE", self._profiles.get((place.gpu, place.gi_id), "")), ("GPU_I_ID", str(place.gi_id))]

    def _static(self, gpu: Gpu, name: str) -> str:
        major, minor = self._node.cuda_version
        domain, _, rest = gpu.pci_bus_id.partition(":")
        known = {
            "DCGM_FI_DRIVER_VERSION": self._node.driver_version,
            "DCGM_FI_CUDA_DRIVER_VERSION": str(major * 1000 + minor * 10) if major else "",
            "DCGM_FI_DEV_NAME": gpu.product,
            "DCGM_FI_DEV_BRAND": gpu.brand,
            "DCGM_FI_DEV_SERIAL": gpu.serial or "",
            "DCGM_FI_DEV_UUID": gpu.uuid,
            "DCGM_FI_DEV_MINOR_NUMBER": str(gpu.minor),
            "DCGM_FI_DEV_PCI_BUSID": f"{domain.zfill(8)}:{rest}".upper(),
        }
        reading = self._readings.get(gpu.uuid)
        return known.get(name, "") if reading is None else known.get(name) or reading.texts.get(name, "")


def _pod(name: PodContainer) -> tuple[tuple[str, str], ...]:
    # dcgm-exporter writes them in this order.
    return ("container", name.container), ("namespace", name.namespace), ("pod", name.pod)


def _with(base: str, more: Iterable[tuple[str, str]], *further: tuple[str, str]) -> str:
    text = labels((*more, *further))
    return f"{base},{text}" if text else base


def _dcgm(writer: Writer, names: _Names, usage: Usage) -> None:
    base = names.dcgm(usage.gpu, usage.place)
    alone = usage.tenants.exclusive
    owned = _with(base, names.pod(usage.tenants.holders[0], usage.place)) if alone else base
    for name, value in usage.values.items():
        if not writer.wants(name):
            continue
        split = usage.attribution.splits.get(_FIGURE_OF[name]) if name in PER_POD and not alone else None
        if split is None or not split.pods:
            writer.add(name, owned, value)
            continue
        for pod, part in split.pods.items():
            writer.add(name, _with(base, names.pod(pod, usage.place)), part)
        writer.add(name, base, split.unattributed)


def _own(writer: Writer, names: _Names, usage: Usage, scene: Scene) -> None:
    base = names.short(usage.gpu, usage.place)
    if usage.busy is not None:
        writer.add(BUSY, _with(base, [("source", usage.busy.source)]), usage.busy.ratio)
    pods = {pod: _with(base, _pod(pod), ("owner", "pod")) for pod in usage.attribution.pods}
    rest = _with(base, _REST)
    for name, figure, factor in _PARTS:
        split = usage.attribution.splits.get(figure)
        if split is None:
            continue
        for pod, part in split.pods.items():
            writer.add(name, pods[pod], part * factor)
        if not usage.tenants.exclusive:
            writer.add(name, rest, split.unattributed * factor)
    _own_busy(writer, usage, pods, rest)
    _own_lasting(writer, usage, scene, pods, rest)


def _own_busy(writer: Writer, usage: Usage, pods: Mapping[PodContainer, str], rest: str) -> None:
    split = usage.attribution.splits.get(Figure.BUSY)
    if split is None or usage.busy is None:
        return
    source = ("source", usage.busy.source)
    for pod, part in split.pods.items():
        writer.add(POD_BUSY, _with(pods[pod], [source]), part)
    if not usage.tenants.exclusive:
        writer.add(POD_BUSY, _with(rest, [source]), split.unattributed)


def _own_lasting(writer: Writer, usage: Usage, scene: Scene, pods: Mapping[PodContainer, str], rest: str) -> None:
    """The series of energy and idle time, which are summed over many passes."""
    account = scene.energy.get(usage.gpu.uuid)
    for pod, text in pods.items():
        joules = None if account is None else account.users_mj.get((usage.place, pod))
        if joules is not None:
            writer.add(POD_ENERGY, text, joules / 1000)
        seen = scene.activities.get((usage.place, pod))
        if seen is not None:
            writer.add(POD_IDLE, text, seen.idle_s)
            writer.add(POD_USE, _with(text, [("use", seen.use.value)]), 1)
    if account is not None and usage.place.gi_id < 0:
        writer.add(POD_ENERGY, rest, account.unattributed_mj / 1000)


def _recent(writer: Writer, names: _Names, gpu: Gpu, held: Tenants, scene: Scene) -> None:
    """Write the recent events of every GPU, also of one that does not answer: they come from XIDs and open faults."""
    recent = scene.recent.get(gpu.uuid, NOTHING_RECENT)
    pod = dict(names.pod(held.holders[0], GpuPart(gpu.uuid))) if held.exclusive else {}

    def add(name: str, value: float, **more: str) -> None:
        writer.add(name, _with(names.dcgm(gpu, GpuPart(gpu.uuid)), sorted({**pod, **more}.items())), value)

    writer.add(OPEN_XID, names.short(gpu, GpuPart(gpu.uuid)), recent.open_xid)
    if writer.wants(XID_ERRORS):
        add(XID_ERRORS, recent.xid, err_code=str(recent.xid), err_msg=_xid_name(recent.xid))
    # Where nothing was counted one series without an event says so.
    if writer.wants(XID_COUNT):
        window = str(scene.xid_window_ms)
        for xid, count in sorted(recent.xids.items()):
            add(XID_COUNT, count, window_size_in_ms=window, xid=str(xid))
        if not recent.xids:
            add(XID_COUNT, 0, window_size_in_ms=window)
    if writer.wants(CLOCK_EVENT_COUNT):
        window = str(scene.clock_window_ms)
        for reason, count in recent.clock_events.items():
            add(CLOCK_EVENT_COUNT, count, window_size_in_ms=window, clock_event=reason)
        if not recent.clock_events:
            add(CLOCK_EVENT_COUNT, 0, window_size_in_ms=window)
    if writer.wants(HEALTH_STATUS):
        for watch, finding in recent.watches.items():
            add(HEALTH_STATUS, finding.result, health_watch=watch, health_error_code=finding.code)


def _xid_name(xid: int) -> str:
    if xid == 0:
        return "No Error"
    return XIDS[xid].name if xid in XIDS else UNKNOWN_XID_NAME


def _board(writer: Writer, names: _Names, gpu: Gpu, scene: Scene) -> None:
    reading = scene.readings.get(gpu.uuid)
    if reading is None:
        return
    base = names.short(gpu, GpuPart(gpu.uuid))
    mask = reading.values.get(CLOCK_REASONS)
    if mask is not None:
        for word, bit in CLOCK_EVENTS.items():
            writer.add(THROTTLED, _with(base, [("reason", word)]), int(mask) & bit != 0)
    if reading.links:
        writer.add(NVLINKS, _with(base, [("state", "up")]), reading.links_up)
        writer.add(NVLINKS, _with(base, [("state", "down")]), reading.links - reading.links_up)
