"""Which MPS daemons claims ask for: one for the devices of each config, once they exist."""

from msgspec import structs

from agent.dra.claim import MpsClient
from agent.dra.daemons import daemon_of, daemon_specs, devices_of
from agent.dra.ledger import GivenDevice, Prepared
from inventory.mig.plan import Slot
from tests.support.inventory.builders import gpu, node, uuid

NODE = node([gpu(0), gpu(1), gpu(2)])
SLOT = Slot("3g.20gb", 0, 4, ())


def given(index: int, group: int | None = 0, *, admin: bool = False, slot: Slot | None = None) -> GivenDevice:
    client = None if group is None else MpsClient(group, 50, 1024 * (index + 1))
    return GivenDevice("gpu", "node-1", f"gpu-{index}", uuid(index), admin=admin, slot=slot, mps=client)


def claim(*devices: GivenDevice, name: str = "a") -> Prepared:
    return Prepared(f"uid-{name}", "team", name, devices)


def unit(device: GivenDevice) -> str | None:
    return device.gpu if device.slot is None else "MIG-1"


def test_devices_of_one_config_have_one_daemon_and_those_of_another_have_theirs() -> None:
    mine = claim(given(0), given(1), given(1), given(2, 1))
    both, own = daemon_specs([mine, claim(given(2, None), name="b")], NODE, unit)
    assert (both.device, both.devices, both.limits_mib) == (uuid(0), (uuid(0), uuid(1)), (1024, 2048))
    assert (both.name, both.threads_percent, both.exclusive) == ("claim team/a", 50, True)
    assert (own.device, own.devices, own.limits_mib) == (uuid(2), (uuid(2),), (3072,))
    assert [daemon_of(mine, device, unit) for device in mine.devices] == [uuid(0), uuid(0), uuid(0), uuid(2)]
    assert devices_of(mine, unit) == {uuid(0), uuid(1), uuid(2)}


def test_what_is_watched_or_does_not_exist_yet_has_no_daemon() -> None:
    watched = claim(given(0, admin=True))
    assert daemon_specs([watched], NODE, unit) == ()
    assert devices_of(watched, unit) == frozenset()
    assert daemon_of(watched, watched.devices[0], unit) is None
    cut = structs.replace(NODE, gpus=(structs.replace(gpu(0), mig_enabled=True),))
    assert daemon_specs([claim(given(0))], cut, unit) == (), "the whole GPU is there once MIG mode is off"
    assert daemon_specs([claim(given(1))], cut, unit) == (), "the GPU is gone"
    assert daemon_specs([claim(given(0, slot=SLOT))], cut, lambda _: None) == ()
    assert daemon_specs([claim(given(0), given(1))], cut, unit) == (), "the one that is there is cut"
    (part,) = daemon_specs([claim(given(0, slot=SLOT))], cut, unit)
    assert (part.device, part.gpu, part.exclusive, part.limits_mib) == ("MIG-1", uuid(0), False, (1024,))


def test_a_daemon_of_several_gpus_goes_on_as_it_is_while_one_of_them_is_left() -> None:
    mine = claim(given(0), given(1))
    before = daemon_specs([mine], NODE, unit)
    assert len(before) == 1
    for left in (0, 1):
        assert daemon_specs([mine], node([gpu(left), gpu(2)]), unit) == before
    assert daemon_specs([mine], node([gpu(2)]), unit) == ()
