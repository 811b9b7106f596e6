"""One workload on its GPUs, one node with its faults, and idle GPUs: read on request. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from controller.insight.podtroubles import with_sizes
from controller.objects.meta import epoch_s
from controller.people.history.figures import NONE, FiguresOf
from controller.people.page.fleetrows import links, node_row
from controller.people.page.live import State, levels
from inventory.api.gpunode import Device, GpuNodeStatus
from inventory.gpustates import IDLE_RATIO, GpuState, offered
from inventory.words.catalog import plural

Json = dict[str, Any]
_MOST: Final = 1_000
_MOST_ADVICE: Final = 100
_HOUR_S: Final = 3600
_NOT_MEASURED: Final = (
    "which held GPUs are idle is not known: tessera.page.prometheus is not configured, or it does not answer"
)


class Detail:
    def __init__(self, state: State, now_s: float) -> None:
        self._state = state
        self._now_s = now_s

    def _row(self, name: str) -> Json:
        state = self._state
        node, found = state.nodes().get(name), state.gpu_nodes().get(name)
        return node_row(name, node, found, levels(state.engine), state.workload_of, state.figures)

    def node(self, name: str) -> Json | None:
        state = self._state
        gpu_node = state.gpu_nodes().get(name)
        if gpu_node is None and name not in state.nodes():
            return None
        row = self._row(name)
        faults = [
            {
                "gpu": gpu["index"],
                "uuid": gpu["uuid"],
                "state": gpu["health"],
                "reason": reason,
                "since": gpu["since"],
                "runbook": runbook(reason),
            }
            for gpu in row["gpus"]
            for reason in gpu["reasons"]
        ]
        serving = offered(gpu_node.status.devices) if gpu_node is not None else {}
        resources = [
            {
                "name": resource.name,
                "devices": resource.devices,
                "inService": min(resource.devices, serving[resource.name]),
                "sharing": resource.sharing,
            }
            for resource in (gpu_node.status.resources if gpu_node is not None else ())
        ]
        return {
            **row,
            "links": links(gpu_node.status.links) if gpu_node is not None else [],
            "resources": resources,
            "faults": faults,
            "repairs": list(repairs(gpu_node.status)) if gpu_node is not None else [],
        }

    @property
    def figures(self) -> FiguresOf:
        """The measured figures of GPUs by UUID; empty where nothing is measured."""
        return self._state.figures

    def gpus_of(self, key: str) -> Iterator[list[Json]]:
        """The GPUs that a workload holds, one list for each node."""
        namespace = key.partition("/")[0]
        for name, gpu_node in sorted(self._state.gpu_nodes().items()):
            pods = {each.physical: each.pod_key for each in gpu_node.status.holders if each.namespace == namespace}
            mine = {uuid: pod for uuid, pod in pods.items() if self._state.workload_of(pod) == key}
            yield [
                self._held(name, device, uuid, mine[uuid])
                for device in gpu_node.status.devices
                if mine
                for uuid in device.uuids
                if uuid in mine
            ]

    def _held(self, node: str, device: Device, uuid: str, pod: str) -> Json:
        figures = self._state.figures.get(uuid, NONE)
        return {
            "node": node,
            "index": device.index,
            "uuid": uuid,
            "pod": pod,
            "health": device.health_state,
            "busy": figures.busy,
            "usedMiB": figures.used_mib,
        }


def repairs(status: GpuNodeStatus) -> Iterator[Json]:
    """The GPUs in repair by index, each as its agent tells of it; ``granted``: when the controller granted what it asks
    for. A GPU that the node has no more has no ``gpu``, and stands last.
    """
    indexes = {device.uuid: device.index for device in status.devices}
    grants = {(each.gpu, each.generation, each.action): each.granted for each in status.remediation_grants}
    for repair in sorted(status.repairs, key=lambda one: (indexes.get(one.gpu, len(indexes)), one.gpu)):
        granted = grants.get((repair.gpu, repair.generation, repair.asks))
        yield {
            "gpu": indexes.get(repair.gpu),
            "uuid": repair.gpu,
            "state": repair.state,
            "since": _epoch_s(repair.since),
            "faultSince": _epoch_s(repair.fault_since),
            "attempt": repair.attempt,
            "cause": repair.cause or repair.reason,
            "asks": repair.asks,
            "granted": _epoch_s(granted),
            "note": repair.note,
            "next": repair.next,
        }


def _epoch_s(moment: datetime | None) -> float | None:
    return None if moment is None else epoch_s(moment)


def told(found: Json, gpus: list[Json], job: str | None, pods: Json | None = None) -> Json:
    """The page's answer about one workload: ``found``, which is answered of it without the page too, and what only the
    page adds: its GPUs, its job's name and how its pods do.
    """
    forecast = found["forecast"]
    named = {"from": "fromSeconds", "likely": "likelySeconds", "to": "toSeconds"}
    changes = forecast["changes"] if forecast is not None else []
    times = {name: forecast[theirs] for name, theirs in named.items()} if forecast is not None else {}
    return {
        **found,
        "gpus": gpus,
        "job": job,
        "pods": with_sizes(pods, found.get("tooLarge")),
        "forecast": None if forecast is None else {**forecast, **times},
        "change": changes[0]["sentence"] if changes else None,
    }


def waste(rows: Iterable[bytes], figures: FiguresOf) -> Json:
    """GPUs that are held and idle, where that is measured; and GPUs that nobody holds. ``rows``: the fleet's, as JSON.

    If the peak of the last hour is measured, a GPU is idle only if the peak is below ``IDLE_RATIO`` too: a GPU that
    rests between two training steps is not.
    """
    idle: list[Json] = []
    unused: list[Json] = []
    for row in map(msgspec.json.decode, rows):
        for gpu in row["gpus"]:
            place = {"node": row["name"], **{key: gpu[key] for key in ("index", "uuid", "product")}}
            holders = [holder for part in gpu["parts"] for holder in part["holders"]]
            if not holders and gpu["state"] in (GpuState.FREE, GpuState.OFF):
                unused.append({**place, "why": "no pod holds it"})
            elif gpu["busy"] is not None and gpu["busy"] < IDLE_RATIO:
                peak = figures.get(gpu["uuid"], NONE).peak
                if peak is not None and peak >= IDLE_RATIO:
                    continue
                hour_s = _HOUR_S if peak is not None and row["observed"] is not None else 0
                since = row["observed"] - hour_s if hour_s else row["observed"]
                idle += [{**place, **holder, "since": since, "busy": gpu["busy"]} for holder in holders]
    measured = bool(figures)
    why = None if measured else _NOT_MEASURED
    advice = list(_advice(idle)) if measured else []
    return {"idle": idle[:_MOST], "unused": unused[:_MOST], "advice": advice, "measured": measured, "why": why}


def _advice(idle: Iterable[Json]) -> Iterator[Json]:
    """One line of advice for each workload that has idle GPUs, the one with the most first."""
    counts = Counter(each["workload"] for each in idle if each["workload"])
    for workload, count in counts.most_common(_MOST_ADVICE):
        gpus = plural(count, "GPU that does", "GPUs that do")
        sentence = f"It holds {gpus} nothing: end it, or ask for fewer."
        yield {"kind": "idle", "sentence": sentence, "workload": workload, "hidden": False}


def runbook(reason: str) -> Json | None:
    """The runbook about a fault: its title and text; None where there is none."""
    name = next((page for sign, page in _RUNBOOKS if re.search(sign, reason)), None)
    return {"title": name, "text": _text(name)} if name is not None else None


@lru_cache
def _text(name: str) -> str:
    """The text of a runbook, from the image or from the repository that this runs in; empty if there is no such
    file. Cached: a file is read in 75 us or more, on the event loop.
    """
    root = files("controller.people.page")
    for folder in (root / "runbooks", root / ".." / ".." / ".." / "docs" / "runbooks"):
        if (page := folder / f"{name}.md").is_file():
            return page.read_text()
    return ""


_RUNBOOKS: Final = (
    (r"\b(XID|xid) ?\d+", "TesseraGpuXid"),
    (r"\brow remap failed", "TesseraGpuRowRemapFailed"),
    (r"\brow remap waits", "TesseraGpuRowRemapPending"),
    (r"\buncorrected memory errors?\b", "TesseraGpuEccUncorrected"),
    (r"^NVLink .* down\b", "TesseraNvLinkDown"),
)
