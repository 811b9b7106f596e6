"""The parts of a GPU as a scheduler sees them: what its counters let stand side by side, the driver can cut."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from agent.dra.publishing.devices import DraDevice, Offer, offered
from agent.dra.publishing.partitions import CounterSet, counter_set, divisible, partition_name, partitions
from hack.bench.node.migplan import profiles_of
from inventory.mig.plan import Slot, validate
from simulator.boards.products import PRODUCTS
from tests.support.agent.claims import A100, divided
from tests.support.inventory.builders import gpu, node, uuid

MIG_PRODUCTS = sorted(name for name, product in PRODUCTS.items() if profiles_of(product))
UNITS = {"Mi": 1, "Gi": 1 << 10, "Ti": 1 << 20}


def amount(text: str) -> Fraction:
    number, unit = (text[:-2], text[-2:]) if text[-1].isalpha() else (text, "")
    return Fraction(number) * UNITS.get(unit, 1)


class Scheduler:
    """Allocates devices of one counter set as Kubernetes does: used and wanted together are at most what there is."""

    def __init__(self, offer: Offer) -> None:
        (self.left,) = ({name: amount(value) for name, value in each.counters.items()} for each in offer.counters)

    def take(self, device: DraDevice) -> bool:
        assert device.consumes is not None
        wanted = {name: amount(value) for name, value in device.consumes.counters.items()}
        if any(value > self.left[name] for name, value in wanted.items()):
            return False
        self.left |= {name: self.left[name] - value for name, value in wanted.items()}
        return True


def of(product: str) -> Offer:
    return offered(node([divided(0, product)]), [uuid(0)])


OFFERS = {product: of(product) for product in MIG_PRODUCTS}


@settings(max_examples=60)
@given(st.data())
def test_whatever_the_counters_allow_can_be_cut_and_the_whole_gpu_excludes_its_parts(data: st.DataObject) -> None:
    product = data.draw(st.sampled_from(MIG_PRODUCTS))
    offer = OFFERS[product]
    order = data.draw(st.permutations(range(len(offer.devices))))
    scheduler = Scheduler(offer)
    taken = [device for device in (offer.devices[number] for number in order) if scheduler.take(device)]
    slots: list[Slot] = [device.slot for device in taken if device.slot is not None]
    assert taken
    assert slots if len(taken) > 1 else True
    assert not slots or len(slots) == len(taken), "the whole GPU beside a part of it"
    profiles = divided(0, product).mig_profiles
    validate(profiles, slots)
    assert sum(profile.slices for slot in slots for profile in profiles if profile.name == slot.profile) <= max(
        profile.slices for profile in profiles
    )


@pytest.mark.parametrize("product", MIG_PRODUCTS)
def test_every_profile_is_offered_at_every_place_and_as_often_as_the_gpu_holds_it(product: str) -> None:
    profiles, devices = divided(0, product).mig_profiles, OFFERS[product].devices
    slots = [device.slot for device in devices if device.slot is not None]
    assert sorted((slot.profile, slot.start) for slot in slots) == sorted(
        (profile.name, start) for profile in profiles for start in profile.starts
    )
    assert len({device.name for device in devices}) == len(devices)
    for profile in profiles:
        scheduler = Scheduler(OFFERS[product])
        mine = [device for device in devices if device.slot is not None and device.slot.profile == profile.name]
        assert sum(scheduler.take(device) for device in sorted(mine, key=lambda each: each.name)) == profile.max_count


def test_a_part_says_what_nvidias_driver_says_of_it() -> None:
    here = structs.replace(divided(3), minor=5, brand="nvidia", pcie_root="pci0000:17")
    offer = offered(node([here]), [uuid(3)])
    whole, *parts = offer.devices
    assert (whole.name, len(parts)) == ("gpu-5", 25)
    assert [each.name for each in offer.counters] == ["gpu-5-counter-set"]
    assert whole.consumes == offer.counters[0]
    (part,) = [each for each in parts if each.name == "gpu-5-mig-3g20gb-9-4"]
    assert part.content() == {
        "name": "gpu-5-mig-3g20gb-9-4",
        "attributes": {
            "type": {"string": "mig"},
            "parentUUID": {"string": uuid(3)},
            "profile": {"string": "3g.20gb"},
            "tessera.dev/part": {"string": f"{uuid(3)}-mig-3g20gb-9-4"},
            "productName": {"string": A100},
            "brand": {"string": "Nvidia"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:03:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:17"},
            "resource.kubernetes.io/numaNode": {"int": 0},
        },
        "capacity": {
            "multiprocessors": {"value": "42"},
            "copyEngines": {"value": "3"},
            "decoders": {"value": "2"},
            "encoders": {"value": "0"},
            "jpegEngines": {"value": "0"},
            "ofaEngines": {"value": "0"},
            "memory": {"value": "19968Mi"},
        },
        "consumesCounters": [
            {
                "counterSet": "gpu-5-counter-set",
                "counters": {
                    "multiprocessors": {"value": "42"},
                    "copy-engines": {"value": "3"},
                    "decoders": {"value": "2"},
                    "encoders": {"value": "0"},
                    "jpeg-engines": {"value": "0"},
                    "ofa-engines": {"value": "0"},
                    "memory": {"value": "19968Mi"},
                    **{f"memory-slice-{number}": {"value": "1"} for number in (4, 5, 6, 7)},
                },
            }
        ],
    }
    assert whole.capacity == {
        "memory": "40Gi",
        "multiprocessors": "98",
        "copyEngines": "7",
        "decoders": "5",
        "encoders": "0",
        "jpegEngines": "1",
        "ofaEngines": "1",
    }


def test_a_set_has_nvidias_counters_and_more_only_where_the_gpu_holds_fewer() -> None:
    slices = [f"memory-slice-{number}" for number in range(8)]
    engines = ["multiprocessors", "copy-engines", "decoders", "encoders", "jpeg-engines", "ofa-engines", "memory"]
    assert list(counter_set(divided(0)).counters) == [*engines, *slices]
    fewer = structs.replace(
        divided(0),
        mig_profiles=tuple(
            structs.replace(each, max_count=2) if each.name == "1g.5gb" else each for each in divided(0).mig_profiles
        ),
    )
    assert counter_set(fewer).counters["profile-19"] == "2"
    of_it = [part for part in partitions(fewer) if "profile-19" in part.consumes]
    assert {part.slot.profile for part in of_it} == {"1g.5gb"}


def test_small_parts_come_first_where_they_leave_the_most_to_others() -> None:
    names = [part.name for part in partitions(divided(0))]
    assert names[0] == "gpu-0-mig-1g5gb-19-6"
    assert names[-1] == "gpu-0-mig-7g40gb-0-0"
    scheduler, devices = Scheduler(OFFERS[A100]), {device.name: device for device in OFFERS[A100].devices}
    first = [name for name in names if "-1g5gb-19-" in name][:3]
    assert all(scheduler.take(devices[name]) for name in first)
    assert scheduler.take(devices["gpu-0-mig-4g20gb-5-0"])


def test_names_are_dns_labels_whatever_a_profile_is_called() -> None:
    (plus, *_) = [each for each in divided(0).mig_profiles if each.name == "1g.5gb+me"]
    assert partition_name(gpu(0), plus, 3) == "gpu-0-mig-1g5gb-me-20-3"
    assert partition_name(gpu(0), structs.replace(plus, name="1G.24gb+me.all"), 0) == "gpu-0-mig-1g24gb-meall-20-0"


def test_a_gpu_is_whole_alone_without_profiles_or_with_more_counters_than_the_api_takes() -> None:
    assert not divisible(gpu(0))
    assert not divisible(structs.replace(divided(0), mig_capable=False))
    wide = tuple(structs.replace(each, starts=tuple(range(30))) for each in divided(0).mig_profiles)
    assert not divisible(structs.replace(divided(0), mig_profiles=wide))
    nowhere = tuple(structs.replace(each, starts=()) for each in divided(0).mig_profiles)
    assert not divisible(structs.replace(divided(0), mig_profiles=nowhere))
    found = offered(node([gpu(0), divided(1)]), [uuid(0), uuid(1)])
    assert Counter(device.consumes is None for device in found.devices) == {True: 1, False: 26}
    assert [(each.name, each.consumes) for each in found.undivided().devices] == [("gpu-0", None), ("gpu-1", None)]
    assert found.undivided().counters == ()
    assert isinstance(found.counters[0], CounterSet)
