"""Any layout to any layout, by real NVML calls on simulated hardware, whoever holds what: one of four clean ends."""

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.hardware.migchange import take
from agent.mig.outcomes import MigState, Wish
from hack.bench.node.migplan import Placed, profiles_of, stands
from inventory.layout.entries import WhenBusy
from inventory.mig.parts import Part
from inventory.mig.plan import CreateCompute, CreateInstance
from simulator.boards.products import PRODUCTS
from tests.support.agent.gpuchange import A30, A100, H100, Bench, bench

STANDS = {name: sorted(set(stands(profiles_of(PRODUCTS[name])))) for name in (A100, A30, H100)}


def cut(b: Bench, product: str, placed: Placed) -> None:
    by_name = {profile.name: profile for profile in profiles_of(PRODUCTS[product])}
    for name, start in placed:
        take(b.handle, CreateInstance(start, name, by_name[name].size))
        take(b.handle, CreateCompute(start, name, Part(0, by_name[name].slices)))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_change_ends_as_planned_or_as_it_was(data: st.DataObject) -> None:
    product = data.draw(st.sampled_from([A100, A30, H100]))
    there, wanted = (data.draw(st.sampled_from(STANDS[product])) for _ in range(2))
    when_busy = data.draw(st.sampled_from(list(WhenBusy)))
    with tempfile.TemporaryDirectory() as folder, bench(Path(folder), product) as b:
        cut(b, product, there)
        before = b.mig()
        holders = data.draw(st.lists(st.booleans(), min_size=len(there), max_size=len(there)))
        devices = [before.devices(one)[0] for one in before.instances]
        b.pods = {device: [f"ml/{i}"] for i, device in enumerate(devices) if holders[i]}
        outcome = asyncio.run(b.change().bring(Wish(tuple(name for name, _ in wanted), when_busy)))
        after, entry = b.mig(), b.journal.read(b.uuid)
        profiles = Counter(one.profile for one in after.instances)
        assert b.pods.keys() <= set(after.uuids.values()), "something that a pod holds is gone"
        assert all(len(one.computes) == 1 for one in after.instances), "an instance is half-made"
        assert entry is None or entry.done
        needed = Counter(name for name, _ in wanted)
        if outcome.state is MigState.APPLIED:
            assert profiles == needed
        elif outcome.state is MigState.REFUSED:
            assert when_busy is WhenBusy.REFUSE
            assert after == before
        else:
            assert outcome.state is MigState.WAITING
            assert when_busy is not WhenBusy.REFUSE
            surplus = Counter(one.profile for one in after.instances if set(after.devices(one)) & b.pods.keys())
            assert after == before or not (needed - profiles or profiles - needed - surplus)
        assert set(outcome.pods) <= {pod for pods in b.pods.values() for pod in pods}
