"""What the import rules refuse: imports are planted in the project's own import graph, one at a time.

A rule that no planted import breaks holds nothing. Each row of ``REFUSED`` names the rule that must break.
"""

import copy
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
CONTROLLER_ROOMS = "rooms of the controller: the loop, jobs, pods and failures know nothing of each other"
ENGINE_ROOMS = "rooms of the engine: what an event passes through stands above what it is decided by"
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
    (LEAN, "controller.process.process", "kube.logins"),
    (MEMORY, "deviceplugin.answer", "pynvml"),
    (AGENT_ROOMS, "agent.hardware.query", "agent.kubelet.plans"),
    (AGENT_ROOMS, "agent.mig.node", "agent.mps.node"),
    (AGENT_ROOMS, "agent.health.machine", "agent.hardware.probe"),
    (NVML, "agent.health.machine", "pynvml"),
    (PURE, "controller.engine.engine", "kube.client"),
    (PURE, "controller.engine.engine", "time"),
    (CONTROLLER_ROOMS, "controller.config.settings", "controller.simulation.run"),
    (CONTROLLER_ROOMS, "controller.core", "controller.jobs.reconcile_shell"),
    (CONTROLLER_ROOMS, "controller.failures.gpufailures_shell", "controller.core"),
    (CONTROLLER_ROOMS, "controller.jobframework.compose", "controller.jobkinds.table"),
    (CONTROLLER_ROOMS, "controller.jobs.reconcile_shell", "controller.pods.reconcile_shell"),
    (CONTROLLER_ROOMS, "controller.metrics.exposition", "controller.process.term"),
    (CONTROLLER_ROOMS, "controller.pods.reconcile_shell", "controller.failures.nodefailures_shell"),
    (CONTROLLER_ROOMS, "controller.watching.feeds", "controller.config.settings"),
    (CONTROLLER_ROOMS, "controller.writing.decisionwriter", "controller.lifecycle.lifecycle"),
    (ENGINE_ALONE, "controller.engine.cycle.cycle", "controller.jobkinds.batchjob"),
    (ENGINE_ALONE, "controller.engine.engine", "controller.simulation.run"),
    (ENGINE_ALONE, "controller.engine.state.intake", "controller.jobframework.podsets"),
    (ENGINE_ROOMS, "controller.engine.model.config", "controller.engine.quota.shares"),
    (ENGINE_ROOMS, "controller.engine.topology.placement", "controller.engine.cluster.cluster"),
    (ENGINE_ROOMS, "controller.engine.devices.cache", "controller.engine.quota.cells"),
    (ENGINE_ROOMS, "controller.engine.claims.claims", "controller.engine.cycle.nomination"),
    (ENGINE_ROOMS, "controller.engine.queues.lanes", "controller.engine.cycle.cycle"),
    (ENGINE_ROOMS, "controller.engine.preemption.search", "controller.engine.queues.pendingqueues"),
    (ENGINE_ROOMS, "controller.engine.state.intake", "controller.engine.outcomes"),
    (YAMLFILE, "yamlfile.tree", "cli.main"),
    (JUDGE, "history.quotas", "controller.engine.quota.quota"),
    (JUDGE, "history.devices", "inventory.devices"),
    (JUDGE, "history.judge", "time"),
    (JUDGED, "controller.core", "history.judge"),
    (JUDGED, "agent.nodestate", "history.hands"),
    (ACTING, "controller.engine.engine", "random"),
    (ACTING, "controller.engine.cycle.cycle", "threading"),
    (ACTING, "controller.engine.quota.quota", "subprocess"),
    (ACTING, "controller.engine.topology.placement", "socket"),
    (ACTING, "controller.engine.queues.lanes", "logging"),
    (ACTING, "agent.health.machine", "time"),
    (ACTING, "agent.health.machine", "agent.process.tasks"),
    (ACTING, "agent.nodestate", "asyncio"),
    (ACTING, "agent.nodestate", "agent.kubelet.podresources"),
    (ACTING, "agent.dra.ledger", "asyncio"),
    (ACTING, "agent.mps.core", "time"),
    (ACTING, "inventory.devices", "threading"),
    (ACTING, "controller.jobs.reconcile", "kube.clock"),
    (ACTING, "controller.forecast.never", "random"),
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
