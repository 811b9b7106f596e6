"""The report's sections as tables. Each function returns None where there is nothing to show."""

import datetime as dt

from rich.text import Text

from agent.health.culprits import Culprit
from agent.health.nextsteps import next_step
from agent.kubelet.holders import Holder
from agent.mig.outcomes import MigState
from agent.report import DeviceReport, NodeReport
from cli.printing.console import ago, titled
from cli.printing.table import Table, less, prose
from inventory.api.gpunode import HANDED_OUT
from inventory.layout.entries import PERCENT_RESOURCE
from inventory.layout.layout import Layout, physical_id
from inventory.layout.offers import device_modes, weakest
from inventory.links import Link
from inventory.words.catalog import plural

STATE_STYLES = {"Healthy": "green", "Suspect": "yellow", "Unhealthy": "red", "Probation": "magenta"}
HISTORY_LINES = 20


def headline(report: NodeReport) -> Text:
    """One line with the node, the driver and the number of GPUs."""
    node = report.node
    driver = f"driver {node.driver_version}, CUDA {node.cuda_version[0]}.{node.cuda_version[1]}"
    simulated = ", simulated" if report.simulated else ""
    state = driver if report.driver_up else f"no driver now (last seen: {driver})"
    return Text(f"{node.name}: {plural(len(node.gpus), 'GPU')}{simulated}, {state}; agent {report.version}")


def _state(name: str) -> Text:
    return Text(name, style=STATE_STYLES.get(name, ""))


def _health(unit: DeviceReport | None) -> Text:
    """A GPU's health, and where it is repaired the state of that."""
    if unit is None:
        return _state("?")
    return _state(unit.state) if not unit.repair else Text(f"{unit.state}, {unit.repair}", style="red")


def gpus(report: NodeReport) -> Table | None:
    if not report.node.gpus:
        return None
    states = {unit.uuid: unit for unit in report.health}
    modes = device_modes(report.node, Layout(report.resources), report.by_claim)
    hardware = (less("memory"), less("NUMA", 5), less("PCI", 3), less("MIG", 4))
    table = titled("GPUs", "GPU", "product", *hardware, "mode", "health", less("UUID", 2))
    for gpu in report.node.gpus:
        mig = "on" if gpu.mig_enabled else "off" if gpu.mig_capable else "-"
        numa = "-" if gpu.numa_node is None else str(gpu.numa_node)
        memory = f"{gpu.memory_mib} MiB"
        state = _health(states.get(gpu.uuid))
        mode = modes[gpu.uuid].value
        table.add_row(str(gpu.index), gpu.product, memory, numa, gpu.pci_bus_id, mig, mode, state, gpu.uuid)
    return table


def links(report: NodeReport) -> Table | None:
    node = report.node
    if len(node.gpus) < 2:  # noqa: PLR2004 - one GPU has no links
        return None
    table = titled(
        "Links (NVn: n NVLinks, else the nearest common PCIe ancestor)", "", *(f"{g.index}" for g in node.gpus)
    )
    out = {unit.uuid for unit in report.health if unit.state not in HANDED_OUT}
    is_out = [gpu.uuid in out for gpu in node.gpus]
    for i, gpu in enumerate(node.gpus):
        row = [_link(link, down=is_out[i] or is_out[j]) if i != j else "-" for j, link in enumerate(node.links[i])]
        table.add_row(str(gpu.index), *row)
    return table


def _link(link: Link, *, down: bool) -> str:
    """A link's label. NVLinks are down with the GPU at either end."""
    return "down" if down and link.nvlinks else link.label


def partitions(report: NodeReport) -> Table | None:
    rows = [(gpu, mig) for gpu in report.node.gpus for mig in gpu.mig_instances]
    if not rows:
        return None
    table = titled("MIG instances", "GPU", "profile", less("GI/CI"), less("slots", 3), less("memory", 2), "UUID")
    for gpu, mig in rows:
        slots = "-" if mig.start is None or mig.size is None else f"{mig.start}-{mig.start + mig.size - 1}"
        ids = f"{mig.gi_id}/{mig.ci_id}"
        table.add_row(str(gpu.index), mig.profile, ids, slots, f"{mig.memory_mib} MiB", mig.uuid)
    return table


def mig_layouts(report: NodeReport) -> Table | None:
    if not report.mig:
        return None
    table = titled("MIG layouts", "GPU", prose("wished"), "state", "for", prose("why"))
    for gpu in report.mig:
        style = "" if gpu.state is MigState.APPLIED else "yellow"
        state = Text(gpu.state.value, style=style)
        table.add_row(str(gpu.index), gpu.wish, state, ago(report.now_s - gpu.since_s), gpu.sentence)
    return table


def resources(report: NodeReport) -> Table | None:
    if not report.resources and not report.problems:
        return None
    servers = {server.resource: server for server in report.servers}
    bad = {unit.uuid for unit in report.health if unit.state not in HANDED_OUT}
    held = {held_by.device for held_by in report.holders}
    more = (less("sharing", 2), less("enforced by", 3), less("kubelet"))
    table = titled("Resources", "resource", "devices", "healthy", "held", *more)
    for resource in report.resources:
        server = servers.get(resource.name)
        healthy = sum(1 for device in resource.devices if device.physical_id not in bad)
        taken = sum(1 for device in resource.devices if device.id in held)
        known = "registered" if server is not None and server.registered else "not registered"
        counts = (str(len(resource.devices)), str(healthy), str(taken))
        table.add_row(resource.name, *counts, resource.sharing.value, weakest(resource).value, known)
    for problem in report.problems:
        table.add_row(Text(f"problem: {problem}", style="yellow"))
    return table


def holders(report: NodeReport) -> Table | None:
    if not report.holders:
        return None
    by_claim = any(held_by.claim for held_by in report.holders)
    more = (less("claim", 3),) if by_claim else ()
    table = titled("Held", "pod", less("container", 2), less("resource"), "device", *more)
    percents: dict[tuple[Holder, str, str], int] = {}
    for held_by in report.holders:
        whole = held_by.holder.resource == PERCENT_RESOURCE
        key = (held_by.holder, physical_id(held_by.device) if whole else held_by.device, held_by.claim)
        percents[key] = percents.get(key, 0) + 1
    for (holder, device, claim), count in percents.items():
        shown = f"{count} % of {device}" if holder.resource == PERCENT_RESOURCE else device
        cells = (f"{holder.namespace}/{holder.pod}", holder.container, holder.resource, shown)
        table.add_row(*cells, *((claim or "-",) if by_claim else ()))
    return table


def mps(report: NodeReport) -> Table | None:
    if not report.mps:
        return None
    table = titled("MPS daemons", "device", less("UUID", 2), "phase", "since", less("restarts"), prose("why"))
    for daemon in report.mps:
        age = ago(report.now_s - daemon.since_s)
        table.add_row(daemon.name, daemon.device, daemon.phase.value, age, str(daemon.restarts), daemon.reason)
    return table


def health(report: NodeReport) -> Table | None:
    index = {gpu.uuid: gpu.index for gpu in report.node.gpus}
    rows = [(index.get(group.uuid, -1), fault) for group in report.faults for fault in group.faults]
    if not rows:
        return None
    table = titled("Open faults", "GPU", "since", less("times"), prose("cause"), prose("what to do"), less("source", 2))
    for gpu, fault in rows:
        table.add_row(
            str(gpu), ago(report.now_s - fault.since_s), str(fault.count), fault.cause, fault.action, fault.source
        )
    return table


def application_faults(report: NodeReport) -> Table | None:
    """The XIDs of applications, by GPU, and whose fault they are."""
    if not report.application_faults:
        return None
    index = {gpu.uuid: str(gpu.index) for gpu in report.node.gpus}
    table = titled("Application faults", "GPU", "XID", "times", "last", "at fault", prose("under"), less("serial", 2))
    for fault in sorted(report.application_faults, key=lambda each: (each.gpu not in index, index.get(each.gpu, ""))):
        at_fault = {Culprit.PROGRAM: "the program", Culprit.GPU: "the GPU"}.get(fault.culprit, "-")
        table.add_row(
            index.get(fault.gpu, fault.gpu),
            str(fault.xid),
            str(fault.count),
            ago(report.now_s - fault.last_s),
            at_fault,
            ", ".join(fault.programs) or "-",
            fault.serial,
        )
    return table


def repairs(report: NodeReport) -> Table | None:
    """The repairs of GPUs, each with what comes next, and why the others that are taken out have none."""
    unrepaired = [unit for unit in report.health if unit.unrepaired]
    if not report.repairs and not unrepaired:
        return None
    index = {gpu.uuid: gpu.index for gpu in report.node.gpus}
    table = titled("Repairs", "GPU", "state", "since", "attempt", prose("why"), prose("next"))
    for repair in sorted(report.repairs, key=lambda repair: index.get(repair.gpu, -1)):
        table.add_row(
            str(index.get(repair.gpu, repair.gpu)),
            repair.state.value,
            ago(report.now_s - repair.since_s),
            str(repair.attempt),
            repair.note,
            next_step(repair.state, report.asks.get(repair.gpu, ""), held_back=repair.held_back),
        )
    for unit in unrepaired:
        table.add_row(str(unit.gpu_index), "-", ago(report.now_s - unit.since_s), "-", unit.unrepaired, "-")
    return table


def history(report: NodeReport) -> Table | None:
    if not report.history:
        return None
    index = {gpu.uuid: gpu.index for gpu in report.node.gpus}
    latest = sorted(report.history, key=lambda change: change.at_s)[-HISTORY_LINES:]
    table = titled("Health history", "when", "GPU", "from", "to", prose("cause"))
    for change in latest:
        name = str(index.get(change.gpu, "?")) + (f" {change.mig}" if change.mig else "")
        table.add_row(_clock(change.at_s), name, _state(change.old.value), _state(change.new.value), change.cause)
    return table


def _clock(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
