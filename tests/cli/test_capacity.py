"""``tessera capacity`` and the example agent, beside a whole controller and an API server in this process."""

import asyncio
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cli.access.cluster import Where
from cli.access.kubeapi import opened
from controller.cluster.watching.kinds import JOBS, WORKLOADS
from kube.resources import Resource
from tests.cli.test_submit import busy
from tests.support.cli.shell import Shell
from tests.support.hang import HANG_S

ROOT = Path(__file__).parents[2]


async def test_what_is_free_now_is_said_to_be_granted_and_nothing_is_created(shell: Shell) -> None:
    async with busy(shell):
        found = await shell.json("capacity", "lq-cq", "--unit", "cpu=1", "--max", "4", "--for", "1h")
        assert (found["state"], found["units"], found["flavor"]) == ("Granted", 1, "default")
        text = (await shell.run("capacity", "lq-cq", "--unit", "cpu=1", "--for", "1h")).stdout
        assert text.startswith("Granted 1 unit of 1 cpu of flavor default now until ")


async def test_offers_come_with_their_arithmetic(shell: Shell) -> None:
    async with busy(shell):
        found = await shell.json("capacity", "lq-cq", "--unit", "cpu=1", "--min", "2")
        assert [(each["id"], each["units"]) for each in found["offers"]] == [("offer-1", 1), ("offer-2", 2)]
        text = (await shell.run("capacity", "lq-cq", "--unit", "cpu=1", "--min", "2")).stdout
        assert "1 of at most 2 cpu of flavor default free in ClusterQueue cq; 1 cpu of team/holds end by" in text


async def test_what_can_never_be_is_refused_and_what_is_wrong_is_an_error(shell: Shell) -> None:
    async with busy(shell):
        text = (await shell.run("capacity", "lq-cq", "--unit", "cpu=1", "--min", "3")).stdout
        assert text.startswith("No offer can be made of 3 units or more, unless")
        wrong = await shell.run("capacity", "lq-cq", "--unit", "cpu=1", "--for", "soon", code=1)
        assert 'spec.duration: found "soon", expected a duration' in wrong.stderr
        bad = await shell.run("capacity", "lq-cq", "--unit", "cpu", code=2)
        assert "expected RESOURCE=AMOUNT" in bad.stderr
        bad = await shell.run("capacity", "lq-cq", "--unit", "cpu=x", code=2)
        assert "--unit" in bad.stderr
        assert 'found "cpu=x", expected a quantity for AMOUNT, such as nvidia.com/gpu=1' in bad.stderr
        bad = await shell.run("capacity", "lq-cq", "--unit", "cpu=1", "--unit", "cpu=4", code=2)
        assert "--unit" in bad.stderr
        assert "found cpu 2 times, expected each resource once" in bad.stderr


@pytest.fixture
def agent() -> ModuleType:
    path = ROOT / "examples" / "bargaining" / "agent.py"
    spec = importlib.util.spec_from_file_location("agent", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_example_agent_takes_what_it_can_have_and_submits_a_job_of_that_size(
    shell: Shell, agent: ModuleType
) -> None:
    """What the agent would post goes to the API server of the test; a pause of it lets the holder end."""
    async with busy(shell):
        loop = asyncio.get_running_loop()
        where = Where(
            kubeconfigs=(shell.kubeconfig,), context=None, server=None, controller="n/s", config=None, offline=False
        )
        pauses: list[float] = []

        def create(group: str, body: dict[str, Any]) -> dict[str, Any]:
            async def sent() -> dict[str, Any]:
                version, plural = group.rsplit("/", 1)
                api, number = version.split("/")
                resource = Resource(api, number, plural, body["kind"], namespaced=True)
                async with opened(where) as client:
                    return dict(await client.create(resource, body, dict, namespace="team"))

            return asyncio.run_coroutine_threadsafe(sent(), loop).result(HANG_S)

        def ended(seconds: float) -> None:
            pauses.append(seconds)
            asyncio.run_coroutine_threadsafe(_gone(shell), loop).result(HANG_S)

        spec = {"queueName": "lq-cq", "unit": {"cpu": 1}, "min": 2, "max": 2, "duration": "1h"}
        assert await asyncio.to_thread(agent.bargain, create, spec, 60.0, ended) == 1, "fewer, now"
        assert pauses == []
        assert await asyncio.to_thread(agent.bargain, create, spec, 36_000.0, ended) == 2
        assert 3000.0 < pauses[0] <= 3600.0
        name = await asyncio.to_thread(agent.submit, create, "lq-cq", 2, "1h", ["true"])
        (job,) = shell.scene.server.list_all(JOBS)
        assert job["metadata"]["name"] == name
        assert job["spec"]["parallelism"] == 2
        assert json.dumps(job["metadata"]["labels"]) == '{"kueue.x-k8s.io/queue-name": "lq-cq"}'
        assert len((ROOT / "examples/bargaining/agent.py").read_text().splitlines()) <= 100


async def _gone(shell: Shell) -> None:
    shell.scene.server.delete(WORKLOADS, "holds", namespace="team")
    await asyncio.sleep(0.5)
