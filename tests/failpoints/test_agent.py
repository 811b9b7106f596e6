"""The agent is killed before and after every file, every step on the hardware and every write: what was to happen
happens all the same, and no device is in two hands or destroyed in one.
"""

import pytest

from agent.cluster import publisher
from agent.dra import node as dra_node
from agent.dra.publishing import slices_shell
from agent.kubelet import podwatch
from agent.mig import reconciler
from agent.mps import core
from agent.repair import node_shell
from kube.testing import FakeApiServer
from tests.support.agent.node import Lab, fleet
from tests.support.failpoints.deaths import Deaths
from tests.support.failpoints.mpsdaemons import Daemons
from tests.support.failpoints.node import Act, KilledNode
from tests.support.failpoints.nodeacts import ACTS, H100, MIG, cut


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "WAIT_POLL_S", 0.02)
    monkeypatch.setattr(core, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(node_shell, "POLL_S", 0.05)
    monkeypatch.setattr(dra_node, "POLL_S", 0.02)
    monkeypatch.setattr(podwatch, "NEWS_S", 0.02)
    monkeypatch.setattr(slices_shell, "INTERVAL_S", 0.02)
    monkeypatch.setattr(publisher, "GPUNODE_INTERVAL_S", 0.02)
    monkeypatch.setattr(publisher, "LABELS_INTERVAL_S", 0.02)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the dead close nothing
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name.replace(" ", "-"))
async def test_wherever_the_agent_is_killed_the_next_one_goes_on(
    act: Act, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    Daemons(monkeypatch)
    async with FakeApiServer() as server:
        here = KilledNode(lab, server, Deaths(monkeypatch), act.config)
        lab.power_on(act.fleet)
        await lab.kubelet.start()
        await here.start()
        for number, point in enumerate(act.points):
            await here.play(act, number, point)
            assert here.deaths_so_far == number + 1
        await here.stop()
        assert here.findings() == ()


async def test_an_instance_that_is_gone_while_a_pod_has_it_is_found(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge speaks where hardware goes that a pod has."""
    async with FakeApiServer() as server:
        here = KilledNode(lab, server, Deaths(monkeypatch), cut("1g.10gb"))
        lab.power_on(fleet(1, H100))
        await lab.kubelet.start()
        await here.start()
        await lab.listed(f"{MIG}1g.10gb")
        await lab.kubelet.allocate(f"{MIG}1g.10gb", 1, pod="pod")
        here._look()
        here._tell("hardware", {"gpus": [{"uuid": lab.uuid(0)}]})
        await here.stop()
        assert {found.rule for found in here.findings()} == {"destroyed-while-held"}
