"""The validators of devices see one given twice, to nobody, or remembered otherwise than it was chosen."""

from collections.abc import Callable
from typing import Any

import pytest

from controller.scheduler.devices.cache import DeviceCache
from controller.scheduler.devices.grants import NodeDevices
from controller.scheduler.devices.pods import _MOST_OVER
from tests.support.engine.boards import device_cache, gpu_node, job, pod_of, settled, world_of
from tests.support.engine.world import World


def used() -> World:
    """Two pods of one GPU each on node ``a``, which has four; the first pod is known."""
    world = world_of([gpu_node("a", 4)])
    world.put(job("w", 1, 2))
    settled(world)
    world.put(pod_of("p", "w", "a"))
    device_cache(world).validate()
    return world


def state(one: DeviceCache) -> NodeDevices:
    return one.nodes["a"]


def grant(one: DeviceCache, **changes: Any) -> None:
    (held,) = state(one).grants
    state(one).put((held._replace(**changes),))


def given_to_nobody(one: DeviceCache) -> None:
    state(one).put(())


def miscounted(one: DeviceCache) -> None:
    granted = one.nodes["a"]
    granted.taken[False] = granted.taken.get(False, {"a-0": 0}).copy()  # type: ignore[assignment]
    granted.taken[False]["a-3"] = 7


def given_twice(one: DeviceCache) -> None:
    (held,) = state(one).grants
    grant(one, sets=(held.sets[0], held.sets[0]))


def assumed(one: DeviceCache) -> None:
    grant(one, assumed=True)


def too_many_sets(one: DeviceCache) -> None:
    grant(one, sets=(("a-0",), ("a-1",), ("a-2",)))


def remembered_otherwise(one: DeviceCache) -> None:
    (held,) = state(one).grants
    state(one).chosen = (state(one).grants, (1, held.single_pod, held.ask), (("a-0",),))


def misfiled(one: DeviceCache) -> None:
    one.pods._where = dict.fromkeys(one.pods._where, "elsewhere")


def on_no_node(one: DeviceCache) -> None:
    one.pods._on_node.clear()


def known_and_over(one: DeviceCache) -> None:
    one.pods._over[next(iter(one.pods._facts))] = None


def too_many_over(one: DeviceCache) -> None:
    one.pods._over.update({f"ns/{number}": None for number in range(_MOST_OVER + 1)})


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (given_to_nobody, "devices are granted to"),
        (miscounted, "given away"),
        (given_twice, "is given 2 times"),
        (assumed, "were assumed for"),
        (too_many_sets, "3 sets for 2 pods"),
        (remembered_otherwise, "remembered"),
        (misfiled, "pods are filed under"),
        (on_no_node, "pods are on"),
        (known_and_over, "a pod is known and over"),
        (too_many_over, "too many are remembered"),
    ],
)
def test_devices_that_drift_are_seen(plant: Callable[[DeviceCache], None], said: str) -> None:
    one = device_cache(used())
    plant(one)
    with pytest.raises(AssertionError, match=said):
        one.validate()
