"""One workload on its GPUs, one node with its faults, and GPUs that do nothing: read when somebody asks. Pure."""

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from controller.objects.meta import epoch_s
from controller.web.fleetrows import NONE, links, node_row
from controller.web.live import State, levels

Json = dict[str, Any]
IDLE: Final = 0.01
"""Less busy than this is idle."""
_MOST: Final = 1_000


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
        found = state.gpu_nodes().get(name)
        if found is None and name not in state.nodes():
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
        resources = [
            {"name": each.name, "devices": each.devices, "sharing": each.sharing}
            for each in (found.status.resources if found is not None else ())
        ]
        return {
            **row,
            "links": links(found.status.links) if found is not None else [],
            "resources": resources,
            "faults": faults,
        }

    def of_workload(self, key: str) -> Json:
        """What is known beside its explanation, but for its forecast."""
        return {"gpus": list(self._gpus_of(key))}

    def _gpus_of(self, key: str) -> Iterator[Json]:
        namespace = key.partition("/")[0]
        for name, found in sorted(self._state.gpu_nodes().items()):
            pods = {each.physical: each.pod_key for each in found.status.holders if each.namespace == namespace}
            mine = {uuid: pod for uuid, pod in pods.items() if self._state.workload_of(pod) == key}
            for device in found.status.devices if mine else ():
                uuids = [device.uuid, *(each.uuid for each in (device.mig.instances if device.mig else ()))]
                for uuid in uuids:
                    if uuid in mine:
                        figures = self._state.figures.get(uuid, NONE)
                        health = device.health.state if device.health is not None else "Healthy"
                        yield {
                            "node": name,
                            "index": device.index,
                            "uuid": uuid,
                            "pod": mine[uuid],
                            "health": health,
                            "busy": figures.busy,
                            "usedMiB": figures.used_mib,
                        }

    def waste(self) -> Json:
        """GPUs that are held and idle, where that is measured; and GPUs that nobody holds."""
        idle: list[Json] = []
        unused: list[Json] = []
        for name, found in sorted(self._state.gpu_nodes().items()):
            for gpu in self._row(name)["gpus"]:
                place = {"node": name, **{key: gpu[key] for key in ("index", "uuid", "product")}}
                holders = [holder for part in gpu["parts"] for holder in part["holders"]]
                if not holders and gpu["health"] in ("Healthy", "Suspect"):
                    unused.append({**place, "why": "no pod holds it"})
                elif gpu["busy"] is not None and gpu["busy"] < IDLE:
                    since = epoch_s(found.status.observed_at) if found.status.observed_at is not None else None
                    idle += [{**place, **holder, "since": since, "busy": gpu["busy"]} for holder in holders]
        measured = bool(self._state.figures)
        why = None if measured else "no Prometheus is configured: which held GPUs are idle is not known"
        return {
            "idle": idle[:_MOST],
            "unused": unused[:_MOST],
            "advice": [],
            "measured": measured,
            "why": why,
        }


def runbook(reason: str) -> Json | None:
    """The page about a fault."""
    name = next((page for sign, page in _RUNBOOKS if re.search(sign, reason)), None)
    return {"title": name, "text": _text(name)} if name is not None else None


@lru_cache
def _text(name: str) -> str:
    """From the image, or from the repository that this runs in."""
    root = files("controller.web")
    for folder in (root / "runbooks", root / ".." / ".." / "docs" / "runbooks"):
        if (page := folder / f"{name}.md").is_file():
            return page.read_text()
    return ""


_RUNBOOKS: Final = (
    (r"\b(XID|xid) ?\d+", "TesseraGpuXid"),
    (r"(?i)row remap.*fail|remapping failed", "TesseraGpuRowRemapFailed"),
    (r"(?i)row remap|remapping", "TesseraGpuRowRemapPending"),
    (r"(?i)ecc", "TesseraGpuEccUncorrected"),
)
