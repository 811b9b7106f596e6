"""What the import rules refuse: imports are planted in the project's own import graph, one at a time.

A rule that no planted import breaks holds nothing. Each row of ``REFUSED`` names the rule that must break.
"""

import copy
import re
from functools import cache
from pathlib import Path

import pytest
from grimp import ImportGraph, build_graph
from importlinter.application.use_cases import read_user_options
from importlinter.application.user_options import UserOptions
from importlinter.configuration import configure
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

from hack.importrules import ActingContract
from hack.pages.rooms import GROUPS

ROOT = Path(__file__).parents[2]
TYPES: dict[str, type[Contract]] = {
    "acting": ActingContract,
    "forbidden": ForbiddenContract,
    "layers": LayersContract,
}

PACKAGES = "inventory <- deviceplugin <- agent <- cli"
INVENTORY = "inventory is pure data: it knows no other room and does no I/O"
KUBE = "kube does not know what a GPU is"
SIMULATOR = "the simulator is hardware: it knows nothing of who calls it"
SMALL = "the agent's processes stay small: no API client library, no CLI library"
LEAN = "no daemon logs in as a person does: the kubernetes package is for the command line"
MEMORY = "the kubelet is answered from memory: its room reaches neither NVML nor the API server"
AGENT_ROOMS = "inside the agent: what is decided and read below, what is served and published above"
NVML = "NVML's functions are called in agent.hardware, and in telemetry's readers, which run on a GPU's own thread"
PURE = "the engine decides: no I/O, no clock, nothing of the agent"
CONTROLLER_ROOMS = "rooms of the controller: what talks and serves stands above what decides"
SCHEDULER_ROOMS = "rooms of the scheduler: what an event passes through stands above what it is decided by"
ENGINE_ALONE = "the engine knows no object but what it is handed: nothing of jobs, pods, failures or the process"
YAMLFILE = "yamlfile reads files with their lines and knows no other room"
JUDGE = "the judge of histories is nobody's: it shares no code with what it judges, and does no I/O"
JUDGED = "no program of a cluster knows the judge: only the command line and developers' programs ask it"
ACTING = "who decides does not act: clocks, threads, sockets, processes, chance and logs are for the modules named here"
PRODUCT = "the product knows neither its tests nor its developers' programs"
FAILPOINTS = "failpoints do nothing and know no other room"
REFUSED = [
    # rule, importer, imported
    (PACKAGES, "deviceplugin.server", "agent.nodestate"),
    (INVENTORY, "inventory.devices", "asyncio"),
    (KUBE, "kube.client", "inventory.devices"),
    (SIMULATOR, "simulator.fleet", "agent.nodestate"),
    (SMALL, "agent.command", "rich"),
    (SMALL, "agent.command", "kubernetes"),
    (LEAN, "agent.cluster.publisher", "kube.logins"),
    (LEAN, "controller.cluster.process.process", "kube.logins"),
    (MEMORY, "deviceplugin.answer", "pynvml"),
    (AGENT_ROOMS, "agent.hardware.query", "agent.kubelet.plans"),
    (AGENT_ROOMS, "agent.mig.node", "agent.mps.node"),
    (AGENT_ROOMS, "agent.health.machine", "agent.hardware.probe"),
    (NVML, "agent.health.machine", "pynvml"),
    (PURE, "controller.scheduler.engine", "kube.client"),
    (PURE, "controller.scheduler.engine", "time"),
    (CONTROLLER_ROOMS, "controller.cluster.config.settings", "controller.insight.simulation.run"),
    (CONTROLLER_ROOMS, "controller.core", "controller.reconcile.jobs.reconcile_shell"),
    (CONTROLLER_ROOMS, "controller.reconcile.failures.gpufailures_shell", "controller.core"),
    (CONTROLLER_ROOMS, "controller.reconcile.failures.gpufailures", "controller.reconcile.repairs.breaker"),
    (CONTROLLER_ROOMS, "controller.jobs.framework.compose", "controller.jobs.kinds.table"),
    (CONTROLLER_ROOMS, "controller.reconcile.jobs.reconcile_shell", "controller.reconcile.pods.reconcile_shell"),
    (CONTROLLER_ROOMS, "controller.cluster.metrics.exposition", "controller.cluster.process.term"),
    (CONTROLLER_ROOMS, "controller.reconcile.pods.reconcile_shell", "controller.reconcile.failures.nodefailures_shell"),
    (CONTROLLER_ROOMS, "controller.cluster.watching.feeds", "controller.cluster.config.settings"),
    (CONTROLLER_ROOMS, "controller.cluster.writing.decisionwriter", "controller.reconcile.lifecycle.lifecycle"),
    (ENGINE_ALONE, "controller.scheduler.kueue.cycle", "controller.jobs.kinds.batchjob"),
    (ENGINE_ALONE, "controller.scheduler.engine", "controller.insight.simulation.run"),
    (ENGINE_ALONE, "controller.scheduler.state.intake", "controller.jobs.framework.podsets"),
    (SCHEDULER_ROOMS, "controller.scheduler.model.config", "controller.scheduler.quota.shares"),
    (SCHEDULER_ROOMS, "controller.scheduler.topology.placement", "controller.scheduler.cluster.cluster"),
    (SCHEDULER_ROOMS, "controller.scheduler.devices.cache", "controller.scheduler.quota.cells"),
    (SCHEDULER_ROOMS, "controller.scheduler.reservations.reservations", "controller.scheduler.kueue.nomination"),
    (SCHEDULER_ROOMS, "controller.scheduler.queues.lanes", "controller.scheduler.kueue.cycle"),
    (SCHEDULER_ROOMS, "controller.scheduler.preemption.search", "controller.scheduler.queues.pendingqueues"),
    (SCHEDULER_ROOMS, "controller.scheduler.state.intake", "controller.scheduler.outcomes"),
    (YAMLFILE, "yamlfile.tree", "cli.main"),
    (JUDGE, "history.quotas", "controller.scheduler.quota.quota"),
    (JUDGE, "history.devices", "inventory.devices"),
    (JUDGE, "history.judge", "time"),
    (JUDGED, "controller.core", "history.judge"),
    (JUDGED, "agent.nodestate", "history.hands"),
    (ACTING, "controller.scheduler.engine", "random"),
    (ACTING, "controller.scheduler.kueue.cycle", "threading"),
    (ACTING, "controller.scheduler.quota.quota", "subprocess"),
    (ACTING, "controller.scheduler.topology.placement", "socket"),
    (ACTING, "controller.scheduler.queues.lanes", "logging"),
    (ACTING, "agent.health.machine", "time"),
    (ACTING, "agent.health.machine", "agent.process.tasks"),
    (ACTING, "agent.nodestate", "asyncio"),
    (ACTING, "agent.nodestate", "agent.kubelet.podresources"),
    (ACTING, "agent.dra.ledger", "asyncio"),
    (ACTING, "agent.mps.core", "time"),
    (ACTING, "inventory.devices", "threading"),
    (ACTING, "controller.reconcile.jobs.reconcile", "kube.clock"),
    (ACTING, "controller.insight.forecast.changes.never", "random"),
    (PRODUCT, "kube.client", "tests"),
    (PRODUCT, "cli.main", "hack"),
    (FAILPOINTS, "failpoints.points", "os"),
]
EXTERNAL = {
    *("asyncio", "kubernetes", "logging", "pynvml", "random", "rich", "socket", "subprocess", "threading", "time"),
    *("hack", "tests"),
}


@cache
def options() -> UserOptions:
    configure()
    found: UserOptions = read_user_options(str(ROOT / "pyproject.toml"))
    return found


@cache
def graph() -> ImportGraph:
    return build_graph(
        *options().session_options["root_packages"],
        include_external_packages=True,
        cache_dir=None,
    )


@cache
def contract(name: str) -> Contract:
    given = next(one for one in options().contracts_options if one["name"] == name)
    return TYPES[given["type"]](name, options().session_options, given)


def kept(name: str, *planted: tuple[str, str]) -> bool:
    imports = copy.deepcopy(graph())
    for importer, imported in planted:
        if imported not in imports.modules:
            imports.add_module(imported, is_squashed=True)
        imports.add_import(importer=importer, imported=imported, line_number=1, line_contents=f"import {imported}")
    return bool(contract(name).check(imports, verbose=False).kept)


@pytest.mark.parametrize("rule", [one["name"] for one in options().contracts_options])
def test_every_rule_is_kept_by_the_sources_and_has_a_planted_import(rule: str) -> None:
    assert kept(rule)
    assert rule in {name for name, _, _ in REFUSED}


@pytest.mark.parametrize(("rule", "importer", "imported"), REFUSED)
def test_a_planted_import_breaks_its_rule(rule: str, importer: str, imported: str) -> None:
    assert importer in graph().modules
    assert imported in graph().modules or imported in EXTERNAL
    assert not kept(rule, (importer, imported))


def test_an_entry_that_no_module_needs_breaks_the_rule() -> None:
    given = next(one for one in options().contracts_options if one["name"] == ACTING)
    for entry, line in [
        ("agent.health.machine", "agent.health.machine may act and does not: it decides"),
        ("agent.gone", "acting: agent.gone is no module"),
    ]:
        more = {**given, "acting": [*given["acting"], entry]}
        check = ActingContract(ACTING, options().session_options, more).check(graph(), verbose=False)
        assert line in check.metadata["broken"]


def test_every_room_of_the_controller_has_its_floor() -> None:
    """Import-linter cannot demand it of rooms that stand below folders which only group them."""
    rules = [one for one in options().contracts_options if one["name"] in (CONTROLLER_ROOMS, SCHEDULER_ROOMS)]
    told = {room for rule in rules for floor in rule["layers"] for room in re.findall(r"[\w.]+", floor)}
    inside = {*GROUPS, "controller", "controller.scheduler"}
    rooms = {name for name in graph().modules if name.rpartition(".")[0] in inside} - inside
    assert {room for room in rooms - told if not room.startswith("controller.objects.")} == set()
