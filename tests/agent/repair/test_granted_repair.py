"""A GPU is reset by the controller's grant alone where there is an API server; people order by annotations."""

from collections.abc import AsyncIterator

import pytest

from agent.cluster import publisher
from agent.cluster.gpulayouts import GPU_LAYOUTS
from agent.cluster.gpunode import GPU_NODES
from agent.health.repairstate import RepairState
from inventory.api.gpunode import GRANT_LASTS_S
from kube.resources import NODES
from kube.testing import FakeApiServer
from tests.support.agent.granting import NODE, GrantedNode
from tests.support.agent.node import EAGER, GPU, Lab, fleet

H100 = "NVIDIA H100 80GB HBM3"
ON = EAGER + "remediation: {reset: when-free}\n"
DRAIN = EAGER + "remediation: {reset: drain, reboot: ask}\n"


@pytest.fixture
async def here(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GrantedNode]:
    monkeypatch.setattr(publisher, "GPUNODE_INTERVAL_S", 0.02)
    async with FakeApiServer() as server:
        yield GrantedNode(lab, server)
        await lab.stop()


def resets(here: GrantedNode, index: int) -> int:
    return here.lab.simulation.hardware.gpus[index].epoch - 1


def state(here: GrantedNode, index: int) -> str:
    return str(here.repair(index).get("state", ""))


async def asked(here: GrantedNode, index: int, action: str = "reset") -> None:
    await here.lab.until(lambda: here.asks(index) == action, f"GPU {index} asks for {action}")


async def back(here: GrantedNode, index: int) -> None:
    def well() -> bool:
        return resets(here, index) > 0 and not here.lab.down() and not here.repair(index)

    await here.lab.until(well, "it is back")


async def turned(here: GrantedNode) -> None:
    """The repairs have gone through two turns since now."""
    repair = here.lab.agent.repair
    before = repair.turns

    def looked() -> bool:
        repair.poke()  # a node without a GPU that waits looks at none by itself
        return repair.turns > before + 1

    await here.lab.until(looked)


async def test_a_drain_names_the_boards_that_a_reset_takes_along_and_no_pod_comes_to_them(here: GrantedNode) -> None:
    await here.serve(fleet(2, "Quadro RTX 8000"), DRAIN)
    await here.lab.kubelet.allocate(GPU, 2, pod="train")
    await here.lab.shown()
    here.lab.sim(gpu=0, xid=119)
    await asked(here, 0, "drain")
    assert here.repair(0)["takesAlong"] == [here.lab.uuid(1)]
    assert here.lab.down() == {here.lab.uuid(0)}, "not before the drain is granted"
    here.grant(0)
    await here.lab.until(lambda: here.lab.down() == {here.lab.uuid(0), here.lab.uuid(1)}, "no pod comes to either")

    def why() -> str:
        withheld: dict[str, str] = {each["device"]: each["why"] for each in here.status().get("withheld", ())}
        return withheld.get(here.lab.uuid(1), "")

    await here.lab.until(lambda: why().startswith("it is reset together with GPU 0 "), "the GpuNode says why")
    here.lab.kubelet.delete("train")
    await asked(here, 0)
    assert here.lab.uuid(1) in here.lab.down(), "it stays free until the reset is granted"
    here.grant(0)
    await back(here, 0)
    assert [resets(here, index) for index in range(2)] == [1, 1]


async def test_the_gpunode_says_whether_the_agent_takes_orders(here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), ON)
    await here.lab.until(lambda: here.status().get("resetMode") == "when-free", "it says so")
    await here.restart("version: v1\n")
    await here.lab.until(lambda: here.status().get("resetMode") == "never", "it says so")


async def test_a_repair_is_shown_with_what_comes_next_and_is_granted(here: GrantedNode) -> None:
    await here.serve(fleet(2, H100), ON)
    here.lab.sim(gpu=1, xid=119)
    await asked(here, 1)
    shown = here.repair(1)
    assert (shown["state"], shown["generation"]) == ("Draining", 1)
    assert "controller" in shown["next"]
    assert {"since", "faultSince", "reason", "cause", "note"} <= shown.keys()
    await turned(here)
    assert resets(here, 1) == 0, "nobody has let it"
    here.grant(1)
    await back(here, 1)
    assert [resets(here, index) for index in range(2)] == [0, 1]
    assert here.status()["remediationGrants"] == here.grants, "the controller's field is not touched"


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": 2},
        {"action": "drain"},
        {"action": "x" * 4000},
        {"gpu": "GPU-other"},
        {"generation": -1},
        {"generation": "one"},
        {"granted": "yesterday"},
        {"granted": "0001-01-01T00:00:00Z"},
        {"granted": "9999-12-31T23:59:59Z"},
        {"granted": None},
        {"ago_s": GRANT_LASTS_S + 1},
    ],
    ids=str,
)
async def test_what_is_no_grant_of_this_repair_lets_nothing(changes: dict[str, object], here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), ON)
    here.lab.sim(gpu=0, xid=119)
    await asked(here, 0)
    here.grant(0, **changes)  # type: ignore[arg-type] # hostile values
    await turned(here)
    assert resets(here, 0) == 0
    given: set[int] = set()

    def let() -> bool:
        generation = here.repair(0).get("generation", 0)
        if here.asks(0) and generation not in given:  # one that came too late is asked for anew
            given.add(generation)
            here.write_grants([])
            here.grant(0)
        return resets(here, 0) > 0

    await here.lab.until(let)
    await back(here, 0)


async def test_grants_that_are_no_list_hide_nothing_that_was_known(here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), ON)
    here.lab.sim(gpu=0, xid=119)
    await asked(here, 0)
    here.server.merge(GPU_NODES, "node-1", {"status": {"remediationGrants": {"all": True}}})
    await turned(here)
    assert resets(here, 0) == 0


async def test_a_grant_that_was_used_lets_no_second_reset(here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), ON)
    here.lab.sim(gpu=0, fail={"call": "reset", "code": 19})
    here.lab.sim(gpu=0, xid=119)
    await asked(here, 0)
    here.grant(0)
    await here.lab.until(lambda: here.repair(0).get("generation") == 2 and here.asks(0) == "reset")
    await turned(here)
    assert here.repair(0)["attempt"] == 1
    here.lab.sim(gpu=0, fail={"call": "reset", "code": 0})
    here.grant(0)
    await back(here, 0)


async def test_a_generation_survives_the_agent(here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), ON)
    here.lab.sim(gpu=0, xid=119)
    await asked(here, 0)
    here.grant(0)
    await back(here, 0)
    here.lab.sim(gpu=0, xid=119)
    await asked(here, 0)
    generation = here.repair(0)["generation"]
    assert generation > 1
    (here.lab.state_dir / "repairs.json").unlink()
    await here.restart(ON)
    await here.lab.listed()
    await here.lab.until(lambda: here.asks(0) == "reset")
    await turned(here)
    assert resets(here, 0) == 1, "the old grant is for nobody"


async def test_nothing_is_asked_for_while_somebody_has_it_and_drain_asks_for_its_pods(here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), ON)
    await here.lab.kubelet.allocate(GPU, 1, pod="train")
    await here.lab.shown()
    here.lab.sim(gpu=0, xid=119)
    await here.lab.until(lambda: "train" in here.repair(0).get("note", ""))
    assert here.asks(0) == ""
    await here.lab.agent.reconfigure(here.lab.settings(DRAIN))
    await asked(here, 0, "drain")
    here.grant(0)
    await turned(here)
    assert (resets(here, 0), here.asks(0)) == (0, "drain")
    here.lab.kubelet.delete("train")
    await asked(here, 0)
    here.grant(0)
    await back(here, 0)


async def test_a_process_is_not_drained_and_nothing_is_asked_for(here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), DRAIN)
    here.lab.sim(gpu=0, load={"pid": 4242})
    here.lab.sim(gpu=0, xid=119)
    await here.lab.until(lambda: "process 4242" in here.repair(0).get("note", ""))
    assert here.asks(0) == ""
    here.lab.sim(gpu=0, end=4242)
    await asked(here, 0)


@pytest.mark.parametrize(("config", "asks"), [(DRAIN, "reboot"), (ON, "")])
async def test_a_reboot_is_asked_for_where_that_is_configured(config: str, asks: str, here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), config)
    here.lab.sim(gpu=0, xid=79)
    await here.lab.until(lambda: state(here, 0) == "RebootWanted")
    assert here.asks(0) == asks


async def test_two_gpus_with_grants_are_reset_one_after_the_other_and_a_third_too(here: GrantedNode) -> None:
    await here.serve(fleet(3, H100), ON)
    for index in range(3):
        here.lab.sim(gpu=index, xid=119)
    for index in range(3):
        await asked(here, index)
        here.grant(index)
    for index in range(3):
        await back(here, index)
    assert [resets(here, index) for index in range(3)] == [1, 1, 1]


async def test_its_own_gpunode_is_watched_only_where_it_resets(here: GrantedNode) -> None:
    watches = f"{GPU_NODES.path()}"
    await here.serve(fleet(1, H100), EAGER)
    assert not here.server.seen("GET", f"{watches}") or all(
        request.path.endswith("/node-1") for request in here.server.seen("GET", watches)
    )
    here.order(0, "retire")
    await here.lab.agent.reconfigure(here.lab.settings(ON))
    await here.lab.until(lambda: here.orders() == {} and "before this node took orders" in here.answer(0))
    assert state(here, 0) == "", "an order from before is not obeyed"
    here.order(0, "retire")
    await here.lab.until(lambda: here.orders() == {} and state(here, 0) == "Retired")


async def test_a_person_retires_and_returns(here: GrantedNode) -> None:
    await here.serve(fleet(2, H100), ON)
    here.order(1, "retire")
    await here.lab.until(lambda: here.lab.down() == {here.lab.uuid(1)} and here.orders() == {})
    await here.lab.until(lambda: "returned" in here.answer(1))
    await here.restart(ON)
    await here.lab.listed()
    await here.lab.until(lambda: here.lab.down() == {here.lab.uuid(1)}, "the next agent knows it")
    assert "returned" in here.answer(1), "and what was answered"
    here.order(1, "return")
    await here.lab.until(lambda: not here.lab.down() and not here.repair(1) and here.orders() == {})
    assert "given back" in here.answer(1)


async def test_a_person_has_a_gpu_reset_that_has_no_fault(here: GrantedNode) -> None:
    await here.serve(fleet(2, H100), ON)
    here.order(0, "start")
    await asked(here, 0)
    await here.lab.until(lambda: here.orders() == {})
    here.grant(0)
    await back(here, 0)
    assert [resets(here, index) for index in range(2)] == [1, 0]
    steps = [(change.gpu, change.old, change.new) for change in here.lab.reporter.transitions]
    assert steps == [
        (here.lab.uuid(0), "Healthy", "Probation"),
        (here.lab.uuid(0), "Probation", "Healthy"),
    ], "what was reset is on probation, whatever it was before"


async def test_on_a_node_that_nobody_repairs_no_grant_is_promised(here: GrantedNode) -> None:
    label = "k8saas.nvidia.com/ManagedByNVSentinel"
    here.server.merge(NODES, NODE, {"metadata": {"labels": {label: "false"}}})
    await here.serve(fleet(1, H100), ON)
    here.lab.sim(gpu=0, xid=119)
    await here.lab.until(lambda: f"{label}=false" in str(here.repair(0).get("note")))
    here.server.merge(NODES, NODE, {"metadata": {"labels": {label: None}}})
    await here.lab.until(lambda: "the controller is asked" in str(here.repair(0).get("note")))


async def test_a_person_stops_a_repair(here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), ON)
    here.lab.sim(gpu=0, xid=119)
    await asked(here, 0)
    here.order(0, "stop")
    await here.lab.until(lambda: not here.repair(0) and here.orders() == {})
    await turned(here)
    assert (resets(here, 0), here.lab.agent.node_state.withheld) == (0, {})
    assert here.lab.down() == {here.lab.uuid(0)}, "its fault keeps it out"

    def why() -> str:
        return str(here.status()["devices"][0]["health"].get("unrepaired", ""))

    await here.lab.until(
        lambda: why().startswith("it is not repaired: a person ended its repair"), "the GpuNode says why"
    )


async def test_an_order_that_is_none_is_answered_and_taken_off(here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), ON)
    here.order(0, "explode")
    here.order_of("GPU-elsewhere", "start")
    await here.lab.until(lambda: here.orders() == {})
    await here.lab.until(lambda: len(here.status().get("orderAnswers", ())) == 2)
    assert here.answer(0) == "Found 'explode', expected start, stop, retire or return. Correct the order"
    assert all(one["refused"] for one in here.status()["orderAnswers"])
    assert here.lab.report().repairs == ()


async def test_a_newer_order_is_not_lost_and_none_is_obeyed_twice(here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), ON)
    held = [True]
    here.server.refuse = lambda method, path: 503 if held[0] and method == "PATCH" and path.endswith("node-1") else None
    here.order(0, "retire")
    await here.lab.until(lambda: any(one.state is RepairState.RETIRED for one in here.lab.report().repairs))
    here.order(0, "return")
    await here.lab.until(lambda: here.lab.report().repairs == ())
    held[0] = False
    await here.lab.until(lambda: here.orders() == {})
    assert here.lab.report().repairs == ()


async def test_an_agent_without_a_state_folder_still_obeys(here: GrantedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.repair.journal_shell import RepairJournal

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    await here.serve(fleet(1, H100), ON)
    monkeypatch.setattr(RepairJournal, "write", full)
    here.order(0, "retire")
    await here.lab.until(lambda: here.orders() == {} and here.lab.down() == {here.lab.uuid(0)})


async def test_a_gpulayout_says_for_its_nodes_what_is_repaired(here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), EAGER)
    here.lab.sim(gpu=0, xid=119)
    await here.lab.until(lambda: bool(here.lab.down()))
    assert here.repair(0) == {}
    here.server.create(GPU_LAYOUTS, "a", {"spec": {"layout": [], "remediation": {"reset": "when-free"}}})
    await asked(here, 0)
    here.server.merge(GPU_LAYOUTS, "a", {"spec": {"remediation": {"reset": "never"}}})
    await here.lab.until(lambda: here.repair(0) == {})


async def test_a_gpulayout_that_asks_for_a_reset_without_the_rights_is_refused_in_problems(
    here: GrantedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.daemon.may_reset", lambda _: False)
    await here.serve(fleet(1, H100), EAGER)
    here.server.create(GPU_LAYOUTS, "a", {"spec": {"layout": [], "remediation": {"reset": "drain"}}})
    await here.lab.until(lambda: any("found drain" in line for line in here.status().get("problems", ())))
    here.lab.sim(gpu=0, xid=119)
    await here.lab.until(lambda: bool(here.lab.down()))
    await turned(here)
    assert here.repair(0) == {}


async def test_drain_without_an_api_server_is_named_as_what_it_is(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), DRAIN)
    assert any("asks nobody to leave" in line for line in lab.agent.node_state.problems)
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: lab.simulation.hardware.gpus[0].epoch > 1 and not lab.down())


async def test_an_order_that_stands_before_any_gpu_is_known_waits_for_them(here: GrantedNode) -> None:
    await here.serve(fleet(1, H100), ON)
    uuid = here.lab.uuid(0)
    await here.lab.stop()
    (here.lab.state_dir / "checkpoint.json").unlink()
    here.lab.sim(driver="down")
    here.order_of(uuid, "retire")
    await here.start(ON)
    await here.lab.until(lambda: len(here.server.seen("GET", "gpunodes")) > 2)
    assert here.orders() == {uuid: "retire"}
    here.lab.sim(driver="up")
    await here.lab.until(lambda: here.orders() == {} and state(here, 0) == "Retired")
