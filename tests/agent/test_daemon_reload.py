"""New settings in a running agent: only what they change is touched."""

from collections.abc import Callable, Iterator
from typing import cast

import pytest

from agent.kubelet import linkscores
from inventory.preference.linktable import LinkTable
from tests.support.agent.node import EAGER, GPU, Lab, fleet

MIXED = EAGER + "flags: {migStrategy: mixed}\n"
CUT = "  migEnabled: [0]\n  mig: {0: [3g.20gb, 3g.20gb]}\n"
SLICE = "nvidia.com/mig-3g.20gb"


def sockets(lab: Lab) -> dict[str, str]:
    return {name: endpoint.registration.endpoint for name, endpoint in lab.kubelet.endpoints.items()}


async def test_another_label_or_log_setting_touches_no_stream(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(2))
    before, lists = sockets(lab), endpoint.lists
    await lab.agent.reconfigure(lab.settings(EAGER + "labels: {enabled: false}\nlogging: {format: json}\n"))
    lab.sim(gpu=0, xid=79)  # whose list comes after whatever the reload would have sent
    await lab.until(lambda: lab.down() == {lab.uuid(0)})
    assert endpoint.lists == lists + 1
    assert sockets(lab) == before
    assert lab.kubelet.registrations == [GPU]
    assert lab.server().streams == 1


async def test_sharing_one_resource_leaves_the_other_alone(lab: Lab) -> None:
    await lab.serve(fleet(2, more=CUT), MIXED, resource=SLICE)
    await lab.listed()
    before, lists = sockets(lab), lab.endpoint().lists
    sharing = f"sharing: {{timeSlicing: {{resources: [{{name: {SLICE}, replicas: 3}}]}}}}\n"
    await lab.agent.reconfigure(lab.settings(MIXED + sharing))
    await lab.until(lambda: len(lab.endpoint(SLICE).healthy) == 6)
    assert sockets(lab) == before
    assert lab.endpoint().lists == lists


async def test_a_renamed_resource_is_withdrawn_under_the_old_name_and_served_under_the_new(lab: Lab) -> None:
    await lab.serve(fleet(2, more=CUT), MIXED, resource=SLICE)
    await lab.listed()
    old, kept = lab.endpoint(SLICE), lab.endpoint().registration.endpoint
    sharing = f"sharing: {{timeSlicing: {{renameByDefault: true, resources: [{{name: {SLICE}, replicas: 2}}]}}}}\n"
    await lab.agent.reconfigure(lab.settings(MIXED + sharing))
    await lab.listed(f"{SLICE}.shared")
    await lab.until(lambda: not old.healthy)
    assert lab.endpoint().registration.endpoint == kept
    assert {status.resource for status in lab.agent.manager.status()} == {GPU, f"{SLICE}.shared"}


async def test_a_new_xid_table_judges_what_is_already_open(lab: Lab) -> None:
    await lab.serve(fleet(2), EAGER.replace("health: {", "health: {xids: {13: {class: reset}}, "))
    lab.sim(gpu=0, xid=13)
    await lab.until(lambda: lab.down() == {lab.uuid(0)})
    await lab.agent.reconfigure(lab.settings(EAGER))
    await lab.restored(0)
    assert "Reconfigured" in [change.reason for change in lab.reporter.transitions]


async def test_the_probe_interval_is_taken_up(lab: Lab) -> None:
    await lab.serve(fleet(1), "version: v1\nhealth: {probeIntervalSeconds: 3600}\n")
    await lab.agent.reconfigure(lab.settings(EAGER))
    meter: set[int] = set()

    def read() -> int:
        meter.update(lab.agent._resets.energy_mj.values())
        return len(meter)

    await lab.until(lambda: read() > 3, "it is not probed again and again")


async def test_links_that_change_while_preferred_sets_are_worked_out_are_worked_out_too(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linkscores, "FILL_GAP_S", 0)
    await lab.serve(fleet(2))
    agent, filled = lab.agent, set[str]()

    class Links:
        def __init__(self, name: str, meanwhile: Callable[[], None] = lambda: None) -> None:
            self._name, self._meanwhile = name, meanwhile

        def fill(self) -> Iterator[None]:
            yield
            self._meanwhile()
            yield
            filled.add(self._name)

    def changed() -> None:
        agent.node_state.links = cast("LinkTable", Links("new"))
        agent._scores.changed()

    agent.node_state.links = cast("LinkTable", Links("old", changed))
    agent._scores.changed()
    await lab.until(lambda: filled == {"old", "new"})


async def test_another_device_list_strategy_answers_the_next_pod_on_the_same_socket(lab: Lab) -> None:
    await lab.serve(fleet(1))
    before = sockets(lab)
    await lab.agent.reconfigure(lab.settings(EAGER + "flags: {plugin: {deviceListStrategy: [cdi-cri]}}\n"))
    grant = await lab.kubelet.allocate(GPU, 1)
    assert [device.name for device in grant.response.cdi_devices]
    assert sockets(lab) == before
    assert list((lab.folder / "cdi").iterdir())


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
async def test_each_mig_strategy_can_be_reached_from_another(lab: Lab, strategy: str) -> None:
    other = {"none": "mixed", "single": "none", "mixed": "single"}[strategy]
    counts = {"none": {GPU: 1}, "single": {GPU: 2}, "mixed": {SLICE: 2}}
    await lab.serve(
        fleet(1, more=CUT),
        MIXED.replace("mixed", other),
        resource=next(iter(counts[other])),
    )
    await lab.agent.reconfigure(lab.settings(MIXED.replace("mixed", strategy)))

    def found() -> dict[str, int]:
        return {name: len(one.healthy) for name, one in lab.kubelet.endpoints.items() if one.healthy}

    await lab.until(lambda: found() == counts[strategy])
