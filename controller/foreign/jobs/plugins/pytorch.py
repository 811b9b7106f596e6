"""``pytorch``: the variables that ``torch.distributed`` starts by."""

from collections.abc import Mapping
from typing import Final

from controller.foreign.jobs.plugins.flags import Parsed, Value
from controller.foreign.jobs.plugins.plugin import (
    JobView,
    PluginDefaults,
    PodView,
    containers,
    open_port,
    set_variables,
    variable,
)
from controller.jobs.framework.raw import Json

_WAITS, _WAITS_AT_MOST, _IMAGE = "wait-master-enabled", "wait-master-timeout", "wait-master-image"
_WAITING: Final = "wait-for-master"


class Pytorch(PluginDefaults):
    """Writes the variables. Ranks count pods: the master has rank 0, workers follow in the order of their indexes."""

    name = "pytorch"
    flags: Mapping[str, Value] = {
        "master": "master",
        "worker": "worker",
        "port": 23456,
        _WAITS: False,
        _WAITS_AT_MOST: 300,
        _IMAGE: "busybox:1.36.1",
    }

    def write(self, pod: Json, made: PodView, job: JobView, given: Parsed) -> None:
        master, worker = given.text("master"), given.text("worker")
        found = job.task(master)
        if found is None:
            return
        address, port = found.host(0), given.number("port")
        variables = [
            variable("MASTER_ADDR", address),
            variable("MASTER_PORT", port),
            variable("WORLD_SIZE", job.replicas(master, worker)),
        ]
        if made.task in (master, worker):
            variables.append(variable("RANK", 0 if made.task == master else made.index + 1))
        for container in containers(pod, initial=False):
            open_port(container, "pytorchjob-port", port)
            set_variables(container, *variables)
        if made.task == worker and given.on(_WAITS):
            _wait(pod, address, given)


def _wait(pod: Json, address: str, given: Parsed) -> None:
    """Adds the init container by which workers wait until the master's name is known; the pod fails if it is not in
    time.

    The name is short, and busybox' ``nslookup`` queries it unchanged: the script tries each domain of the search list,
    as the C library does. Process 1 would not be ended by SIGTERM without a trap.
    """
    initial = pod["spec"].setdefault("initContainers", [])
    if any(container.get("name") == _WAITING for container in initial):
        return
    seconds = given.number(_WAITS_AT_MOST)
    script = (
        "known() { for zone in '' $(sed -n 's/^search //p' /etc/resolv.conf); do "
        f"nslookup {address}${{zone:+.$zone}} > /dev/null 2>&1 && return; done; false; }}; "
        f"trap 'exit 1' TERM; end=$(($(date +%s) + {seconds})); until known; do "
        f"if [ $(date +%s) -ge $end ]; then echo 'no address of {address} within {seconds} seconds' >&2; exit 1; fi; "
        "sleep 1; done"
    )
    initial.append({"name": _WAITING, "image": given.text(_IMAGE), "command": ["sh", "-c", script]})
