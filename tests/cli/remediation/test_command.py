"""``tessera remediation``: lists, plans, orders with the agents' answers, and the breaker of a flavor."""

import asyncio
import json
from typing import Any, Final

import pytest
import yaml

from cli.remediation import order_shell
from cli.remediation.budgets_shell import BUDGETS
from controller.cluster.watching.kinds import FLAVORS, GPU_NODES, NODES
from inventory.api.names import (
    NVSENTINEL_MANAGED,
    REMEDIATION_BREAKER,
    REMEDIATION_ORDER,
    REMEDIATION_TRIPPED,
    REPAIR_BREAKER,
    REPAIR_BREAKER_TRIPPED,
)
from kube.resources import PODS
from kube.testing import eventually
from tests.support.cli.shell import Shell
from tests.support.controller.gpunodes import full_status

KEY: Final = f"{REMEDIATION_ORDER}GPU-3"
DEVICES: Final = [
    {"uuid": f"GPU-{at}", "index": at, "health": {"state": "Unhealthy" if at == 3 else "Healthy"}} for at in (0, 3)
]
REPAIR: Final = {
    "gpu": "GPU-3",
    "state": "Retired",
    "generation": 1,
    "since": "2026-01-01T00:00:00Z",
    "attempt": 2,
    "note": "Xid95, 5 times within 86400 s",
    "next": "have the board looked at",
}


class Agent:
    """The agent of gpu-7, as far as orders go."""

    def __init__(self, shell: Shell) -> None:
        self.server = shell.scene.server
        self.obeyed: list[str] = []
        self._count = 0

    def standing(self) -> str | None:
        found = self.server.get(GPU_NODES, "gpu-7")["metadata"].get("annotations") or {}
        said: str | None = found.get(KEY)
        return said

    def reads(self) -> int:
        """The times that the GpuNode was read over the API."""
        return sum(one.method == "GET" and one.path.endswith("/gpu-7") for one in self.server.requests)

    def obey(self, answer: str, *, refused: bool = False) -> None:
        """Take the order off and answer it."""
        order = self.standing()
        assert order is not None
        self._count += 1
        at = f"2026-01-01T00:00:{self._count:02d}Z"
        told = {"gpu": "GPU-3", "order": order, "answer": answer, "at": at, "refused": refused}
        self.server.merge(
            GPU_NODES,
            "gpu-7",
            {"metadata": {"annotations": {KEY: None}}, "status": {"orderAnswers": [told]}},
        )
        self.obeyed.append(order)


@pytest.fixture
async def agent(shell: Shell) -> Agent:
    status = full_status({"devices": DEVICES, "repairs": [REPAIR]})
    shell.scene.server.create(GPU_NODES, "gpu-7", {"status": status})
    shell.scene.server.create(GPU_NODES, "gpu-8", {"status": full_status({"devices": [], "repairs": []})})
    return Agent(shell)


async def answering(agent: Agent, answer: str, *, refused: bool = False) -> None:
    await eventually(lambda: agent.standing() is not None)
    agent.obey(answer, refused=refused)


async def test_an_order_for_a_node_whose_agent_takes_none_is_refused_before_it_is_written(
    shell: Shell, agent: Agent
) -> None:
    agent.server.merge(GPU_NODES, "gpu-7", {"status": {"resetMode": "never"}})
    done = await shell.run("remediation", "start", "gpu-7", "3", code=1)
    assert "found remediation.reset: never there, expected when-free or drain" in done.stderr
    assert agent.standing() is None


@pytest.mark.usefixtures("agent")
async def test_every_gpu_in_repair_is_listed_for_people_and_programs(shell: Shell) -> None:
    text = (await shell.run("remediation", "list")).stdout
    assert "gpu-7  3    Retired" in text
    assert "have the board looked at" in text
    (row,) = (await shell.json("remediation", "list"))["repairs"]
    assert {key: row[key] for key in ("node", "index", "uuid", "state", "attempt", "granted")} == {
        "node": "gpu-7", "index": 3, "uuid": "GPU-3", "state": "Retired", "attempt": 2, "granted": None,
    }  # fmt: skip
    told = yaml.safe_load((await shell.run("remediation", "list", "-o", "yaml")).stdout)
    assert told["repairs"][0]["next"] == "have the board looked at"
    assert (await shell.json("remediation", "list", "--node", "gpu-8"))["repairs"] == []


async def test_where_nothing_is_wrong_a_sentence_says_so(shell: Shell) -> None:
    assert (await shell.run("remediation", "list")).stdout == "No GPU is in repair.\n"
    assert (await shell.run("remediation", "plan")).stdout == "No GPU has failed, is suspect or in repair.\n"


async def test_a_plan_says_what_is_done_and_writes_nothing(shell: Shell, agent: Agent) -> None:
    text = (await shell.run("remediation", "plan")).stdout
    assert "nothing is done: it is retired" in text
    (row,) = (await shell.json("remediation", "plan"))["gpus"]
    assert (row["action"], row["isDue"], row["state"]) == ("nothing", False, "Retired")
    assert {one.method for one in agent.server.requests} == {"GET"}


async def test_a_plan_names_the_breaker_of_the_nodes_flavor_and_the_label_by_which_nobody_repairs(
    shell: Shell, agent: Agent
) -> None:
    waiting = {"gpu": "GPU-3", "state": "Draining", "generation": 1, "asks": "reset"}
    agent.server.merge(GPU_NODES, "gpu-7", {"status": {"repairs": [waiting]}})
    agent.server.create(NODES, "gpu-7", {"metadata": {"labels": {"pool": "h100"}}})
    tripped = {"metadata": {"annotations": {REMEDIATION_TRIPPED: "2026-01-01T00:00:00Z"}}}
    agent.server.create(FLAVORS, "h100", {**tripped, "spec": {"nodeLabels": {"pool": "h100"}}})
    assert "breaker of flavor h100" in " ".join((await shell.run("remediation", "plan")).stdout.split())
    agent.server.merge(NODES, "gpu-7", {"metadata": {"labels": {NVSENTINEL_MANAGED: "false"}}})
    (row,) = (await shell.json("remediation", "plan"))["gpus"]
    assert (row["action"], row["isDue"]) == ("nothing", False)
    assert f"{NVSENTINEL_MANAGED}=false" in row["says"]
    (row,) = (await shell.json("remediation", "list"))["repairs"]
    assert f"{NVSENTINEL_MANAGED}=false" in row["next"]


async def test_a_disruption_budget_that_refuses_a_drain_now_is_named_with_what_it_allows(
    shell: Shell, agent: Agent
) -> None:
    waiting = {"gpu": "GPU-3", "state": "Draining", "generation": 1, "asks": "drain", "note": "pods have it"}
    held = {"device": "GPU-3", "namespace": "team", "pod": "bert-0", "container": "c"}
    agent.server.merge(GPU_NODES, "gpu-7", {"status": {"repairs": [waiting], "holders": [held]}})
    spec, labels = {"containers": [], "nodeName": "gpu-7"}, {"labels": {"app": "bert"}}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    agent.server.create(PODS, "bert-0", {"metadata": labels, "spec": spec, "status": status}, namespace="team")
    counts = {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}
    guard = {"spec": {"selector": {"matchLabels": {"app": "bert"}}}, "status": {"observedGeneration": 1, **counts}}
    agent.server.create(BUDGETS, "bert", guard, namespace="team")
    for command in ("plan", "list"):
        said = " ".join((await shell.run("remediation", command)).stdout.split())
        assert "PodDisruptionBudget team/bert refuses evictions now: it allows 0 of 1 (team/bert-0)" in said
    (row,) = (await shell.json("remediation", "plan"))["gpus"]
    (told,) = row["refusedBy"]
    assert (told["budget"], told["disruptionsAllowed"], told["pods"]) == ("team/bert", 0, ["team/bert-0"])
    agent.server.merge(BUDGETS, "bert", {"status": {"disruptionsAllowed": 1}}, namespace="team")
    (row,) = (await shell.json("remediation", "list"))["repairs"]
    assert row["refusedBy"] == []


async def test_what_budgets_say_is_not_known_without_the_right_to_read_them(shell: Shell, agent: Agent) -> None:
    waiting = {"gpu": "GPU-3", "state": "Draining", "generation": 1, "asks": "drain"}
    held = {"device": "GPU-3", "namespace": "team", "pod": "bert-0", "container": "c"}
    agent.server.merge(GPU_NODES, "gpu-7", {"status": {"repairs": [waiting], "holders": [held]}})
    shell.door.forbidden = "poddisruptionbudgets"
    told = await shell.json("remediation", "plan")
    assert [row["refusedBy"] for row in told["gpus"]] == [[]]
    assert [
        note for note in told["notes"] if "whether a disruption budget of team refuses a drain is not known" in note
    ]


async def test_the_breaker_of_nodes_of_no_flavor_is_listed_planned_and_lifted(shell: Shell, agent: Agent) -> None:
    waiting = {"gpu": "GPU-3", "state": "Draining", "generation": 1, "asks": "reset"}
    agent.server.merge(GPU_NODES, "gpu-7", {"status": {"repairs": [waiting]}})
    agent.server.create(NODES, "gpu-7", {"metadata": {"labels": {"pool": "a100"}}})
    agent.server.create(FLAVORS, "h100", {"spec": {"nodeLabels": {"pool": "h100"}}})
    done = await shell.run("remediation", "resume", "no-flavor.tessera.dev", code=1)
    assert "no repair on a node of no flavor waits for it" in done.stderr
    shown = {REPAIR_BREAKER_TRIPPED: "2026-01-01T00:00:00Z"}
    agent.server.merge(GPU_NODES, "gpu-8", {"metadata": {"annotations": shown}})
    text = (await shell.run("remediation", "list")).stdout
    assert "The breaker of flavor no-flavor.tessera.dev has tripped" in text
    (row,) = (await shell.json("remediation", "list"))["breakers"]
    assert row == {"flavor": "no-flavor.tessera.dev", "since": "2026-01-01T00:00:00Z"}
    (plan,) = (await shell.json("remediation", "plan"))["gpus"]
    assert "tessera remediation resume no-flavor.tessera.dev" in plan["says"]
    await shell.run("remediation", "resume", "no-flavor.tessera.dev")
    annotations = agent.server.get(GPU_NODES, "gpu-8")["metadata"]["annotations"]
    assert annotations == {**shown, REPAIR_BREAKER: "resume"}


async def test_the_list_names_the_flavors_whose_breaker_has_tripped(shell: Shell, agent: Agent) -> None:
    tripped = {"metadata": {"annotations": {REMEDIATION_TRIPPED: "2026-01-01T00:00:00Z"}}}
    agent.server.create(FLAVORS, "h100", {**tripped, "spec": {}})
    agent.server.create(FLAVORS, "a100", {"spec": {}})
    breakers = (await shell.json("remediation", "list"))["breakers"]
    assert breakers == [{"flavor": "h100", "since": "2026-01-01T00:00:00Z"}]
    agent.server.refuse = lambda _method, path: 403 if "resourceflavors" in path else None
    done = await shell.run("remediation", "list")
    assert "whether a breaker of repairs has tripped is not known" in done.stderr


async def test_a_plan_without_the_right_to_read_nodes_says_what_is_not_known(shell: Shell, agent: Agent) -> None:
    agent.server.refuse = lambda _method, path: 403 if path.startswith("/api/v1/nodes") else None
    done = await shell.run("remediation", "plan", "-o", "json")
    assert [row["uuid"] for row in json.loads(done.stdout)["gpus"]] == ["GPU-3"]
    assert "what keeps repairs from being granted is not known" in done.stderr


async def test_a_gpunode_that_cannot_be_read_is_a_note_and_the_others_are_told(shell: Shell, agent: Agent) -> None:
    agent.server.create(GPU_NODES, "odd", {"status": {"summary": 3}})
    done = await shell.run("remediation", "list", "-o", "json")
    assert [row["node"] for row in json.loads(done.stdout)["repairs"]] == ["gpu-7"]
    assert done.stderr.startswith("note: passed over: GpuNode 'odd'")


async def test_an_order_is_written_and_the_agents_answer_is_told(shell: Shell, agent: Agent) -> None:
    asked = asyncio.create_task(shell.run("remediation", "return", "gpu-7", "3"))
    await answering(agent, "it is back in service")
    assert (await asked).stdout == "gpu-7: GPU 3: return: it is back in service\n"
    assert agent.obeyed == ["return"]


async def test_an_answer_from_before_is_not_taken_for_this_one(shell: Shell, agent: Agent) -> None:
    asked = asyncio.create_task(shell.json("remediation", "stop", "gpu-7", "GPU-3"))
    await answering(agent, "the first")
    assert (await asked)["answer"] == "the first"
    asked = asyncio.create_task(shell.json("remediation", "stop", "gpu-7", "gpu-3"))
    await answering(agent, "the second")
    assert await asked == {
        "node": "gpu-7",
        "index": 3,
        "uuid": "GPU-3",
        "order": "stop",
        "answer": "the second",
        "refused": False,
        "message": "gpu-7: GPU 3: stop: the second",
    }


async def test_an_order_that_the_agent_refuses_is_exit_1(shell: Shell, agent: Agent) -> None:
    asked = asyncio.create_task(shell.run("remediation", "start", "gpu-7", "3", code=1))
    await answering(agent, "it is Retired", refused=True)
    assert "gpu-7: GPU 3: start: it is Retired" in (await asked).stderr
    asked = asyncio.create_task(shell.run("remediation", "start", "gpu-7", "3", "-o", "json", code=1))
    await answering(agent, "it is Retired", refused=True)
    assert json.loads((await asked).stdout)["refused"] is True


async def test_without_a_wait_the_order_stands_for_the_agent(shell: Shell, agent: Agent) -> None:
    done = await shell.run("remediation", "retire", "gpu-7", "3", "--no-wait")
    assert done.stdout == "gpu-7: GPU 3: retire is ordered\n"
    assert agent.standing() == "retire"


async def test_an_agent_that_does_not_answer_is_exit_1_and_the_order_stays(shell: Shell, agent: Agent) -> None:
    done = await shell.run("remediation", "start", "gpu-7", "3", "--timeout", "0s", code=1)
    assert "after 0 s its agent has not answered the order start. It stays on the GpuNode" in done.stderr
    assert agent.standing() == "start"


async def test_an_order_that_is_gone_without_an_answer_is_told_as_that(shell: Shell, agent: Agent) -> None:
    asked = asyncio.create_task(shell.run("remediation", "start", "gpu-7", "3", "--timeout", "1s", code=1))
    await eventually(lambda: agent.standing() is not None)
    agent.server.merge(GPU_NODES, "gpu-7", {"metadata": {"annotations": {KEY: None}}})
    done = await asked
    assert "after 1 s the order start is gone from the GpuNode, and no answer is there" in done.stderr


async def test_who_waits_is_told_for_what(shell: Shell, agent: Agent) -> None:
    done = await shell.run("remediation", "start", "gpu-7", "3", "--timeout", "3s", code=1)
    assert done.stderr.splitlines()[0] == "waiting for the agent of gpu-7, 2 s"
    assert agent.standing() == "start"


async def test_somebodys_other_order_is_not_overwritten_unless_it_is_said(shell: Shell, agent: Agent) -> None:
    await shell.run("remediation", "retire", "gpu-7", "3", "--no-wait")
    refused = await shell.run("remediation", "start", "gpu-7", "3", "--no-wait", code=1)
    assert 'found the order "retire", which its agent has not answered' in refused.stderr
    assert agent.standing() == "retire"
    await shell.run("remediation", "start", "gpu-7", "3", "--no-wait", "--replace")
    assert agent.standing() == "start"


async def test_an_order_that_stands_already_is_waited_for_and_not_written_twice(shell: Shell, agent: Agent) -> None:
    await shell.run("remediation", "stop", "gpu-7", "3", "--no-wait")
    asked = asyncio.create_task(shell.run("remediation", "stop", "gpu-7", "3"))
    await eventually(lambda: agent.reads() >= 2)
    agent.obey("its repair ended")
    await asked
    assert len([one for one in agent.server.requests if one.method == "PATCH"]) == 1


async def test_an_order_that_somebody_replaces_while_it_is_waited_for_is_told(shell: Shell, agent: Agent) -> None:
    asked = asyncio.create_task(shell.run("remediation", "stop", "gpu-7", "3", code=1))
    await eventually(lambda: agent.standing() is not None)
    agent.server.merge(GPU_NODES, "gpu-7", {"metadata": {"annotations": {KEY: "retire"}}})
    assert 'the order stop was replaced by "retire"' in (await asked).stderr


async def test_an_order_written_between_the_look_and_the_patch_is_seen(
    shell: Shell, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = order_shell._ordered

    def meanwhile(*given: Any) -> order_shell.Ordered:
        if agent.standing() is None:
            agent.server.merge(GPU_NODES, "gpu-7", {"metadata": {"annotations": {KEY: "retire"}}})
        return real(*given)

    monkeypatch.setattr(order_shell, "_ordered", meanwhile)
    refused = await shell.run("remediation", "stop", "gpu-7", "3", code=1)
    assert 'found the order "retire"' in refused.stderr
    assert agent.standing() == "retire"


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("start gpu-77 3", 'NODE: found "gpu-77", expected a node whose agent has written a GpuNode. Did you m'),
        ("start gpu-7 9", 'GPU: found "9", expected an index or a UUID of gpu-7: 0, 3'),
        ("stop gpu-8 0", 'GPU: found "0", expected a node with GPUs: the GpuNode gpu-8 tells of none'),
        ("list --node gpu-9", 'NODE: found "gpu-9", expected a node whose agent has written a GpuNode. Did you mean'),
        ("resume h10", 'FLAVOR: found "h10", expected a ResourceFlavor that exists. Did you mean h100?'),
    ],
)  # fmt: skip
async def test_a_name_that_is_none_is_a_line_with_the_nearest_one(shell: Shell, words: str, said: str) -> None:
    shell.scene.server.create(FLAVORS, "h100", {})
    done = await shell.run("remediation", *words.split(), code=1)
    (line,) = done.stderr.splitlines()
    assert said in line


async def test_where_no_name_is_near_those_that_there_are_are_named(shell: Shell, agent: Agent) -> None:
    done = await shell.run("remediation", "stop", "zzz", "3", code=1)
    assert done.stderr.endswith("expected a node whose agent has written a GpuNode. There are: gpu-7, gpu-8\n")
    done = await shell.run("remediation", "resume", "zzz", code=1)
    assert done.stderr.endswith("expected a ResourceFlavor that exists. There is none\n")
    for number in range(9):
        agent.server.create(GPU_NODES, f"a{number}", {"status": full_status({"devices": []})})
    done = await shell.run("remediation", "list", "--node", "zzz", code=1)
    assert done.stderr.endswith("There are: a0, a1, a2, a3, a4, a5, a6, a7 and 3 more\n")


async def test_a_flavors_repairs_are_resumed_by_its_annotation(shell: Shell) -> None:
    shell.scene.server.create(FLAVORS, "h100", {})
    done = await shell.run("remediation", "resume", "h100")
    assert done.stdout == "ResourceFlavor h100: its repairs go on once the controller has read it\n"
    found = shell.scene.server.get(FLAVORS, "h100")
    assert found["metadata"]["annotations"] == {REMEDIATION_BREAKER: "resume"}
    assert (await shell.json("remediation", "resume", "h100"))["flavor"] == "h100"
