"""What claims count as: devices, counters, capacity, alternatives, and what is refused by which policy."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from controller.objects.decode import decode
from controller.objects.deviceclaims import CapacityPolicy, DeviceClass, ResourceSlice
from controller.objects.meta import KubernetesObject
from controller.objects.quantity import NANO, parse_quantity
from controller.objects.workload import Workload
from controller.scheduler.dra.claims.amounts import consumed_capacity
from controller.scheduler.dra.claims.book import ClaimBook
from controller.scheduler.model.deviceclaims import (
    ClaimRules,
    DeviceClassMapping,
    DeviceSource,
    Measure,
    WorkloadClaims,
)
from controller.scheduler.model.honestunits import HonestUnits
from controller.scheduler.model.podrequests import RequestRules, Transformation
from controller.scheduler.model.resources import ResourceName
from tests.support.engine.deviceclaims import (
    DRIVER,
    GPU_CLASS,
    GPUS,
    MIG_CLASS,
    asks,
    claim,
    claiming,
    device,
    device_class,
    rules,
    slice_of,
    template,
)
from tests.support.engine.world import requesting, workload

OTHER = DeviceClassMapping(resource=ResourceName("mig"), classes=(MIG_CLASS,))


def unpaid(_: str, __: str) -> bool:
    return False


def counter(name: str, resource: str = "", selector: str = "") -> DeviceClassMapping:
    source = DeviceSource(measure=Measure.COUNTER, name=name, driver=DRIVER, selector=selector)
    return DeviceClassMapping(resource=ResourceName(resource or name), classes=(MIG_CLASS,), sources=(source,))


def capacity(name: str) -> DeviceClassMapping:
    source = DeviceSource(measure=Measure.CAPACITY, name=name, driver=DRIVER)
    return DeviceClassMapping(resource=ResourceName(name), classes=(MIG_CLASS,), sources=(source,))


def counted(
    given: ClaimRules, *objects: KubernetesObject, of: Workload | None = None, requests: RequestRules | None = None
) -> WorkloadClaims | None:
    """Of a workload with the template ``t``."""
    book = ClaimBook(given, requests or RequestRules())
    for each in objects:
        book.put(each)
    return book.count(of or claiming("w", templates=["t"]), {"main": 1}, unpaid)


def each(given: ClaimRules, *objects: KubernetesObject, **more: Any) -> Mapping[ResourceName, int]:
    found = counted(given, *objects, **more)
    assert found is not None
    assert found.problem == ""
    return found.pod_sets[0].each


def problem(given: ClaimRules, *objects: KubernetesObject, **more: Any) -> str:
    found = counted(given, *objects, **more)
    assert found is not None
    return found.problem


MIGS = (
    device_class(MIG_CLASS, "device.attributes['gpu.example.com'].kind == 'mig'"),
    slice_of(
        "slice",
        device("small", kind="mig", counters={"memory": "10Gi", "slices": "1"}, capacity={"memory": "9Gi"}),
        device("large", kind="mig", counters={"memory": "20Gi", "slices": "2500m"}, capacity={"memory": "19Gi"}),
        device("whole", kind="gpu", counters={"memory": "80Gi", "slices": "7"}),
    ),
)
SMALL = "device.capacity['gpu.example.com'].memory.compareTo(quantity('10Gi')) < 0"


def test_requests_of_a_claim_are_summed_and_admin_access_is_free() -> None:
    every = template("t", asks(count=2), asks(count=0), asks(count=9, adminAccess=True))
    assert each(rules(), every) == {"gpu": 3}


def test_a_class_that_is_not_mapped_is_named() -> None:
    found = problem(rules(), template("t", asks("other.example.com")))
    assert found == (
        "pod set main: claim t0: ResourceClaimTemplate t: request r0: "
        "DeviceClass other.example.com is not mapped: resources.deviceClassMappings does not name it"
    )


def test_counters_count_as_much_as_the_largest_device_that_it_may_get() -> None:
    both = rules(counter("memory"), counter("slices"))
    assert each(both, *MIGS, template("t", asks(MIG_CLASS, 2))) == {"memory": 40 << 30, "slices": 6}
    assert each(both, *MIGS, template("t", asks(MIG_CLASS, 2, SMALL))) == {"memory": 20 << 30, "slices": 2}
    selected = rules(counter("memory", selector=SMALL))
    assert each(selected, *MIGS, template("t", asks(MIG_CLASS))) == {"memory": 10 << 30}


def test_two_sources_of_one_mapping_count_what_a_device_takes_of_both() -> None:
    first, second = counter("memory").sources + counter("slices").sources
    both = DeviceClassMapping(resource=ResourceName("sum"), classes=(MIG_CLASS,), sources=(first, second))
    assert each(rules(both), *MIGS, template("t", asks(MIG_CLASS))) == {"sum": (20 << 30) + 3}


def test_capacity_counts_what_the_device_has() -> None:
    assert each(rules(capacity("memory")), *MIGS, template("t", asks(MIG_CLASS))) == {"memory": 19 << 30}
    assert problem(rules(capacity("cores")), *MIGS, template("t", asks(MIG_CLASS))).endswith(
        f"request r0: no device of DeviceClass {MIG_CLASS} that it may get is published with capacity cores"
    )


@pytest.mark.parametrize(("multiple", "every_kind", "taken"), [(True, True, 4), (False, False, 4), (False, True, 8)])
def test_a_part_of_a_device_counts_as_the_part_where_others_get_the_rest(
    multiple: bool, every_kind: bool, taken: int
) -> None:
    policy = {"default": "2", "validRange": {"min": "2", "step": "2"}}
    shared = device("d", capacity={"memory": {"value": "8", "requestPolicy": policy}})
    objects = (device_class(MIG_CLASS), slice_of("s", {**shared, "allowMultipleAllocations": multiple}))
    asked = template("t", asks(MIG_CLASS, capacity={"requests": {"memory": "3"}}))
    given = rules(capacity("memory"), every_kind=every_kind)
    assert each(given, *objects, asked) == {"memory": taken}
    too_much = template("t", asks(MIG_CLASS, capacity={"requests": {"memory": "9"}}))
    assert "no device" in problem(given, *objects, too_much)


@pytest.mark.parametrize(
    ("request_", "policy", "taken"),
    [
        (None, None, 8),
        (None, {"default": "2"}, 2),
        ("3", None, 3),
        ("8", None, 8),
        ("9", None, None),
        ("3", {"validValues": ["2", "4", "8"]}, 4),
        ("4", {"validValues": ["2", "4", "8"]}, 4),
        ("9", {"validValues": ["2", "4", "8"]}, None),
        ("1", {"validRange": {"min": "2"}}, 2),
        ("3", {"validRange": {"min": "2", "step": "2"}}, 4),
        ("4", {"validRange": {"min": "2", "step": "2", "max": "4"}}, 4),
        ("5", {"validRange": {"min": "2", "step": "2", "max": "4"}}, None),
        ("5", {"validRange": {}}, 5),
    ],
)
def test_requests_of_capacity_are_raised_to_what_the_policy_knows(
    request_: str | None, policy: dict[str, Any] | None, taken: int | None
) -> None:
    asked = None if request_ is None else parse_quantity(request_)
    found = consumed_capacity(asked, parse_quantity("8"), None if policy is None else decode(policy, CapacityPolicy))
    assert found == (None if taken is None else taken * NANO)


def test_slices_count_once_the_pool_is_whole_and_of_its_newest_generation() -> None:
    given, asked = rules(counter("memory")), template("t", asks(MIG_CLASS))
    known = device_class(MIG_CLASS)
    old = slice_of("a", device("d", counters={"memory": "4"}), count=1)
    assert each(given, known, asked, old) == {"memory": 4}
    half = slice_of("b", device("d", counters={"memory": "5"}), generation=2, count=2)
    assert "no device" in problem(given, known, asked, old, half)
    rest = slice_of("c", device("e", counters={"memory": "6"}), generation=2, count=2)
    assert each(given, known, asked, old, half, rest) == {"memory": 6}
    twice = slice_of("c", device("d", counters={"memory": "6"}), generation=2, count=2)
    assert "no device" in problem(given, known, asked, old, half, twice)
    other = slice_of("o", device("d", counters={"memory": "9"}), driver="other.example.com")
    assert each(given, known, asked, old, other) == {"memory": 4}
    assert "there is no DeviceClass" in problem(given, asked, old)


def test_costly_selectors_of_a_fleet_of_devices_end_soon() -> None:
    many = [device(f"d{at}", kind="gpu") for at in range(50)]
    costly = "[" + ",".join(["1"] * 400) + "].all(n, [" + ",".join(["1"] * 400) + "].all(m, n != m))"
    book = ClaimBook(rules(every_kind=False), RequestRules())
    for each in (slice_of("s", *many), template("t", asks(GPU_CLASS, 40, costly))):
        book.put(each)
    found = book.count(claiming("w", templates=["t"]), {"main": 1}, unpaid)
    assert found is not None
    assert found.pod_sets[0].each == {"gpu": 40}, "what was not asked any more may match"


def test_objects_that_go_are_forgotten() -> None:
    book = ClaimBook(rules(counter("memory")), RequestRules())
    every = (
        device_class(MIG_CLASS),
        slice_of("a", device("d", counters={"memory": "4"})),
        template("t", asks(MIG_CLASS)),
    )
    assert [book.put(each) for each in every] == [True] * 3
    assert [book.put(each) for each in every] == [False] * 3
    assert book.drop(ResourceSlice, "", "a")
    assert not book.drop(ResourceSlice, "", "a")
    found = book.count(claiming("w", templates=["t"]), {"main": 1}, unpaid)
    assert found is not None
    assert "no device" in found.problem


def test_kueues_policy_refuses_what_kueue_does() -> None:
    kueue = rules(every_kind=False)
    said = {
        "resourceClaimName": problem(kueue, claim("c", asks()), of=claiming("w", claims=["c"])),
        "firstAvailable": problem(kueue, template("t", {"firstAvailable": [{"name": "a", **asks()}]})),
        "All": problem(kueue, template("t", asks(allocationMode="All"))),
    }
    assert said["resourceClaimName"] == (
        "pod set main: claim c0: a claim by name (resourceClaimName) is not supported, a template is"
    )
    assert said["firstAvailable"].endswith("request r0: firstAvailable is not supported")
    assert said["All"].endswith("allocationMode All is not supported, because its number of devices is not known")


def test_under_kueues_policy_enough_devices_match_the_selectors() -> None:
    kueue, selector = rules(every_kind=False), "device.attributes['gpu.example.com'].kind == 'gpu'"
    asked = template("t", asks(GPU_CLASS, 1, selector))
    assert problem(kueue, asked).endswith("request r0: 0 devices match its selectors, 1 is asked for")
    assert each(kueue, asked, *MIGS) == {"gpu": 1}
    assert problem(kueue, template("t", asks(GPU_CLASS, 2, selector)), *MIGS).endswith(
        "1 device matches its selectors, 2 are asked for"
    )
    assert "a selector is no CEL: " in problem(kueue, template("t", asks(GPU_CLASS, 1, "device.")))
    assert each(rules(), asked) == {"gpu": 1}, "under ours devices may come when they are needed"


def test_alternatives_cost_the_most_of_each_resource() -> None:
    listed = {
        "firstAvailable": [{"name": "a", **asks(count=2)}, {"name": "b", **asks(MIG_CLASS, 3)}, {"name": "c", **asks()}]
    }
    assert each(rules(GPUS, OTHER), template("t", listed)) == {"gpu": 2, "mig": 3}


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (["r0/b", "r0/b"], {"mig": 2}),
        (["r0/a"], {"gpu": 1}),
        (["r0"], {"gpu": 2, "mig": 3}),
        (["r9/a"], {"gpu": 2, "mig": 3}),
    ],
)
def test_a_claim_that_was_given_devices_counts_as_these(given: list[str], taken: dict[str, int]) -> None:
    listed = {"firstAvailable": [{"name": "a", **asks(count=2)}, {"name": "b", **asks(MIG_CLASS, 3)}]}
    found = counted(rules(GPUS, OTHER), claim("c", listed, given=given), of=claiming("w", claims=["c"]))
    assert found is not None
    assert (found.pod_sets[0].once, found.named) == (taken, {"ns/c": "main"})


def test_a_claim_of_all_devices_counts_once_it_has_them() -> None:
    every, of = asks(allocationMode="All"), claiming("w", claims=["c"])
    assert "allocationMode All" in problem(rules(), claim("c", every), of=of)
    found = counted(rules(), claim("c", every, given=["r0", "r0", "r0"]), of=of)
    assert found is not None
    assert found.pod_sets[0].once == {"gpu": 3}


def test_claims_that_were_made_for_one_pod_are_not_kept() -> None:
    made = claim("c", asks(), annotations={"resource.kubernetes.io/pod-claim-name": "x"})
    assert not ClaimBook(rules(), RequestRules()).put(made)
    assert "there is no ResourceClaim ns/c" in problem(rules(), made, of=claiming("w", claims=["c"]))


def test_under_our_policy_mapped_resources_count_in_honest_units_too() -> None:
    mapped = DeviceClassMapping(resource=ResourceName("nvidia.com/mig-3g.40gb"), classes=(GPU_CLASS,))
    units = RequestRules(units=HonestUnits(memory_gib=Fraction(80)), exclude_prefixes=["nvidia.com/gpu"])
    found = each(rules(mapped), template("t", asks(count=2)), requests=units)
    assert found == {"nvidia.com/mig-3g.40gb": 2, "tessera.dev/gpu-memory-gib": 80, "tessera.dev/gpu-compute-slices": 6}
    assert each(rules(mapped, every_kind=False), template("t", asks(count=2)), requests=units) == {
        "nvidia.com/mig-3g.40gb": 2
    }


def test_transformations_are_not_kueues_for_claims() -> None:
    halved = RequestRules(
        transformations=[Transformation(input="gpu", strategy="Replace", outputs={"half": parse_quantity("2")})]
    )
    assert each(rules(), template("t", asks()), requests=halved) == {"half": 2}
    assert each(rules(every_kind=False), template("t", asks()), requests=halved) == {"gpu": 1}


@pytest.mark.parametrize("reject", [True, False])
def test_without_the_gate_claims_are_refused_or_count_nothing(reject: bool) -> None:
    off = ClaimRules(mappings=(GPUS,), on=False, reject=reject)
    found = counted(off, template("t", asks()))
    assert found == (
        WorkloadClaims(problem="Its pods ask for devices by claim, and the feature gate KueueDRAIntegration is off")
        if reject
        else None
    )
    assert counted(off, template("t", asks()), of=workload("plain", "q")) is None


def extended(name: str = "example.com/gpu", amount: int | str = 2) -> Workload:
    return requesting(workload("w", "q"), {name: str(amount)})


def test_an_extended_resource_counts_as_what_its_class_is_mapped_to() -> None:
    known = device_class(GPU_CLASS, extended="example.com/gpu")
    found = counted(rules(), known, of=extended())
    assert found is not None
    assert (found.pod_sets[0].each, found.pod_sets[0].instead) == ({"gpu": 2}, ("example.com/gpu",))
    assert counted(rules(extended_resources=False), known, of=extended()) is None
    assert counted(rules(), device_class("other", extended="example.com/gpu"), of=extended()) is None
    assert counted(rules(), known, of=extended("example.com/other")) is None


def test_an_extended_resource_of_a_class_is_asked_for_in_whole_numbers() -> None:
    for known in (device_class(GPU_CLASS, extended="example.com/gpu"), device_class("x", extended="example.com/gpu")):
        found = counted(rules(), known, of=requesting(workload("w", "q"), {"cpu": "1500m", "example.com/gpu": "1500m"}))
        assert found is not None
        assert "expected a whole number of example.com/gpu" in found.problem
        assert counted(rules(extended_resources=False), known, of=extended(amount="1500m")) is None


def test_a_resource_that_is_mapped_to_itself_is_left_as_it_is() -> None:
    same = DeviceClassMapping(resource=ResourceName("example.com/gpu"), classes=(GPU_CLASS,))
    assert counted(rules(same), device_class(GPU_CLASS, extended="example.com/gpu"), of=extended()) is None


def test_of_two_classes_behind_one_resource_the_newest_counts_then_the_smaller_name() -> None:
    first = DeviceClassMapping(resource=ResourceName("first"), classes=("a",))
    second = DeviceClassMapping(resource=ResourceName("second"), classes=("ab", "b"))
    a, b = device_class("a", extended="example.com/gpu"), device_class("b", extended="example.com/gpu")
    assert each(rules(first, second), b, a, of=extended()) == {"first": 2}
    assert each(rules(first, second), a, device_class("ab", extended="example.com/gpu"), of=extended()) == {"first": 2}
    newer = device_class("b", extended="example.com/gpu", created="2025-01-02T00:00:00Z")
    assert each(rules(first, second), newer, a, of=extended()) == {"second": 2}


def test_every_class_has_a_resource_of_its_own_which_kueue_does_not_know() -> None:
    implicit = extended(f"deviceclass.resource.kubernetes.io/{GPU_CLASS}")
    assert each(rules(), device_class(GPU_CLASS), of=implicit) == {"gpu": 2}
    assert counted(rules(every_kind=False), device_class(GPU_CLASS), of=implicit) is None


def test_an_extended_resource_whose_class_counts_counters() -> None:
    known = (device_class(MIG_CLASS, extended="example.com/gpu"), MIGS[1])
    assert each(rules(counter("slices")), *known, of=extended()) == {"slices": 14}
    assert problem(rules(counter("slices"), every_kind=False), *known, of=extended()) == (
        "pod set main: example.com/gpu stands for DeviceClass mig.example.com, whose mapping has sources: not supported"
    )


def test_hostile_objects_count_as_something_or_are_refused() -> None:
    bare = template("t", {"firstAvailable": []})
    assert problem(rules(), bare).endswith("request r0: expected exactly or firstAvailable, found neither")
    assert each(rules(), template("t", asks(count=-5))) == {"gpu": 1}
    assert each(rules(), template("t", asks(count=2**63 - 1), asks(count=2**63 - 1))) == {"gpu": 2**63 - 1}
    below = slice_of("s", device("d", counters={"memory": "-4"}))
    assert each(rules(counter("memory")), device_class(MIG_CLASS), below, template("t", asks(MIG_CLASS))) == {
        "memory": 0
    }
    odd = {"attributes": {"v": {"version": "none"}, "n": {}, "b": {"bool": True}, "i": {"int": 3}}, "name": "d"}
    wanted = "!('v' in device.attributes['gpu.example.com']) && device.attributes['gpu.example.com'].i == 3"
    kueue = rules(every_kind=False)
    assert each(kueue, slice_of("s", odd), template("t", asks(GPU_CLASS, 1, wanted))) == {"gpu": 1}


def test_a_class_may_go() -> None:
    book = ClaimBook(rules(), RequestRules())
    book.put(device_class(GPU_CLASS, extended="example.com/gpu"))
    assert book.count(extended(), {"main": 1}, unpaid) is not None
    assert book.drop(DeviceClass, "", GPU_CLASS)
    assert book.count(extended(), {"main": 1}, unpaid) is None
