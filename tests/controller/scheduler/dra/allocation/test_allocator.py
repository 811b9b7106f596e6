"""The devices that pods would get, beside an oracle that tries every assignment."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.dra.allocation.allocator import STEPS, sets_of, with_sets
from controller.scheduler.dra.allocation.views import State, View
from tests.support.engine.claimsupply import asked, offered, sets_for
from tests.support.engine.deviceclaims import DRIVER, GPU_CLASS, asks, device, node_slice, slice_of, template

Json = dict[str, Any]
MEMORY = {"value": "10", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "2"}}}
TOLERATED = [{"key": "sick", "operator": "Exists"}]


def typed(kind: str) -> str:
    return f"device.attributes['{DRIVER}'].type == '{kind}'"


# -- the oracle --------------------------------------------------------------------------------------------------------

Model = Mapping[str, Any]
"""A device: type, pair, sick, shared, memory (free), counters; as the test made it."""


def possible(devices: Sequence[Model], limit: int, claims: Sequence[Json]) -> bool:
    """Whether one pod can be given devices for all of these claims, by trying everything."""
    return any(True for _ in _assignments(devices, limit, claims))


def _assignments(devices: Sequence[Model], limit: int, claims: Sequence[Json]) -> Iterator[list[tuple[int, int, int]]]:
    """Triples of claim, device and the memory that is taken."""
    options = []
    for number, claim in enumerate(claims):
        per_request = [list(_options(devices, number, request)) for request in claim["requests"]]
        options += per_request
    for chosen in itertools.product(*options):
        given_ = [taken for part in chosen for taken in part]
        if _valid(devices, limit, claims, given_):
            yield given_


def _options(devices: Sequence[Model], number: int, request: Json) -> Iterator[list[tuple[int, int, int]]]:
    for one in request["alternatives"]:
        fitting = [at for at, found in enumerate(devices) if one["type"] == found["type"]]
        good = [at for at in fitting if one["tolerates"] or not devices[at]["sick"]]
        if one["all"]:
            if fitting and fitting == good:
                yield [(number, at, _memory(devices[at], one)) for at in fitting]
            continue
        for chosen in itertools.combinations_with_replacement(good, one["count"]):
            yield [(number, at, _memory(devices[at], one)) for at in chosen]


def _memory(found: Model, one: Json) -> int:
    """Raised to an odd number, as MEMORY's steps say."""
    asked_ = one["memory"] or 1
    return 0 if not found["shared"] else asked_ + (asked_ + 1) % 2


def _valid(devices: Sequence[Model], limit: int, claims: Sequence[Json], given_: list[tuple[int, int, int]]) -> bool:
    users = Counter(at for _, at, _ in given_)
    if any(times > 1 and not devices[at]["shared"] for at, times in users.items()):
        return False
    for at in users:
        if sum(memory for _, other, memory in given_ if other == at) > 10 and devices[at]["shared"]:
            return False
    if sum(devices[at]["units"] for at in users) > limit:
        return False
    for number, claim in enumerate(claims):
        pairs = [devices[at]["pair"] for owner, at, _ in given_ if owner == number]
        if claim["match"] and (None in pairs or len(set(pairs)) > 1):
            return False
        if claim["distinct"] and (None in pairs or len(set(pairs)) < len(pairs)):
            return False
    return True


MODELS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["gpu", "gpu", "mig"]),
            "pair": st.sampled_from(["p", "q", None]),
            "sick": st.sampled_from([False, False, True]),
            "shared": st.sampled_from([False, False, True]),
            "units": st.integers(0, 2),
        }
    ),
    max_size=4,
)
REQUEST = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["gpu", "mig"]),
        "count": st.integers(1, 2),
        "all": st.sampled_from([False, False, False, True]),
        "tolerates": st.booleans(),
        "memory": st.sampled_from([0, 2, 5]),
    }
)
CLAIM = st.fixed_dictionaries(
    {
        "requests": st.lists(
            st.fixed_dictionaries({"alternatives": st.lists(REQUEST, min_size=1, max_size=2)}), min_size=1, max_size=2
        ),
        "match": st.booleans(),
        "distinct": st.sampled_from([False, False, True]),
    }
)


def published(models: Sequence[Model], limit: int) -> tuple[object, ...]:
    devices = []
    for at, model in enumerate(models):
        more = {} if model["pair"] is None else {"pair": model["pair"]}
        devices.append(
            device(
                f"d{at}",
                type=model["type"],
                taint="sick" if model["sick"] else "",
                shared=model["shared"],
                capacity={"memory": MEMORY if model["shared"] else "10"},
                counters={"units": str(model["units"])} if model["units"] else None,
                **more,
            )
        )
    counters = slice_of("a-counters", pool="n", node="n", count=2, counters={"units": limit})
    return counters, slice_of("b-devices", *devices, pool="n", node="n", count=2)


def manifest(number: int, claim: Json) -> object:
    requests = []
    for request in claim["requests"]:
        alternatives = [_asked(one) for one in request["alternatives"]]
        if len(alternatives) == 1:
            requests.append(alternatives[0])
        else:
            requests.append({"firstAvailable": [{"name": f"a{at}", **one} for at, one in enumerate(alternatives)]})
    constraints = [{"matchAttribute": f"{DRIVER}/pair"}] if claim["match"] else []
    constraints += [{"distinctAttribute": f"{DRIVER}/pair"}] if claim["distinct"] else []
    return template(f"t{number}", *requests, constraints=constraints)


def _asked(one: Json) -> Json:
    made = asks(GPU_CLASS, one["count"], typed(one["type"]), tolerations=TOLERATED if one["tolerates"] else [])
    made["allocationMode"] = "All" if one["all"] else "ExactCount"
    return made | ({"capacity": {"requests": {"memory": str(one["memory"])}}} if one["memory"] else {})


@settings(max_examples=60)
@given(MODELS, st.integers(0, 3), st.lists(CLAIM, min_size=1, max_size=2))
def test_a_pod_finds_devices_where_any_assignment_would_do_and_only_there(
    models: list[Model], limit: int, claims: list[Json]
) -> None:
    offer = offered(*published(models, limit))
    ask = asked(*(manifest(number, claim) for number, claim in enumerate(claims)))
    found = sets_of(View(ask, offer), State())
    assert bool(found) is possible(models, limit, claims)
    units = sum(models[at]["units"] for at in {given_.device for one in found for given_ in one})
    assert units <= limit
    users = Counter(given_.device for one in found for given_ in one)
    assert all(times == 1 or models[at]["shared"] for at, times in users.items())
    parts = Counter[tuple[int, str]]()
    for one in found:
        for given_ in one:
            parts.update(dict(given_.parts))
    assert all(nanos <= 10 * 10**9 for nanos in parts.values())
    assert with_sets(State(), found).devices == sum(1 << at for at in users)


# -- single rules ------------------------------------------------------------------------------------------------------


def test_the_first_devices_that_fit_are_chosen_in_the_order_of_the_slices() -> None:
    second = slice_of("z", device("x", type="gpu"), pool="n", node="n", count=2)
    first = slice_of("a", device("y", type="gpu"), device("w", type="mig"), pool="n", node="n", count=2)
    assert sets_for(asked(template("t", asks())), offered(second, first)) == [["y"], ["w"], ["x"]]


def test_a_step_back_finds_the_pair() -> None:
    devices = [device(name, pair=pair) for name, pair in (("a", "1"), ("b", "2"), ("c", "2"), ("d", "1"), ("e", "3"))]
    pair = template("t", asks(count=2), constraints=[{"matchAttribute": f"{DRIVER}/pair"}])
    assert sets_for(asked(pair), offered(node_slice("n", *devices))) == [["a", "d"], ["b", "c"]]


def test_a_constraint_on_one_request_leaves_the_other_free() -> None:
    devices = [device("a", pair="1"), device("b", pair="2"), device("c", pair="2")]
    two = template("t", asks(), asks(count=2), constraints=[{"matchAttribute": f"{DRIVER}/pair", "requests": ["r1"]}])
    assert sets_for(asked(two), offered(node_slice("n", *devices))) == [["a", "b", "c"]]


def test_the_first_alternative_is_taken_while_there_is_one() -> None:
    best = {"name": "big", **asks(GPU_CLASS, 1, typed("gpu"))}
    less = {"name": "small", **asks(GPU_CLASS, 2, typed("mig"))}
    devices = [device("m0", type="mig"), device("g", type="gpu"), device("m1", type="mig"), device("m2", type="mig")]
    found = sets_for(asked(template("t", {"firstAvailable": [best, less]})), offered(node_slice("n", *devices)))
    assert found == [["g"], ["m0", "m1"]]


def test_admin_access_takes_nothing_and_sees_what_others_have() -> None:
    watch = template("t", asks(adminAccess=True))
    offer = offered(node_slice("n", device("a"), device("b", taint="sick")))
    assert len(sets_for(asked(watch), offer, State(devices=1))) == 256
    assert sets_for(asked(template("t", asks(count=2, adminAccess=True))), offer) == []


def test_an_incomplete_pool_offers_nothing() -> None:
    assert offered(slice_of("s", device("a"), pool="n", node="n", count=2)).devices == ()
    twice = offered(slice_of("s", device("a"), device("a"), pool="n", node="n"))
    assert (twice.devices, twice.incomplete) == ((), True)


def test_all_devices_of_a_node_with_an_incomplete_pool_cannot_be_had() -> None:
    every = asked(template("t", asks(allocationMode="All")))
    whole, half = node_slice("n", device("a")), slice_of("s", device("b"), pool="m", node="n", count=2)
    assert sets_for(every, offered(whole)) == [["a"]]
    assert sets_for(every, offered(whole, half)) == []
    assert sets_for(asked(template("t", asks())), offered(whole, half)) == [["a"]]


def test_only_the_newest_generation_counts() -> None:
    old = slice_of("old", device("a"), pool="n", node="n", generation=1)
    new = slice_of("new", device("b"), pool="n", node="n", generation=2)
    assert sets_for(asked(template("t", asks())), offered(old, new)) == [["b"]]


def test_a_pool_that_consumes_what_is_not_there_offers_nothing() -> None:
    broken = offered(node_slice("n", device("a", counters={"units": "1"})))
    assert (broken.devices, broken.incomplete) == ((), True)


def test_a_selector_that_fails_for_a_device_closes_the_node() -> None:
    loose = asked(template("t", asks(GPU_CLASS, 1, f"device.attributes['{DRIVER}'].model == 'x'")))
    assert sets_for(loose, offered(node_slice("n", device("a", model="x")))) == [["a"]]
    assert sets_for(loose, offered(node_slice("n", device("a", model="x"), device("b")))) == []


@pytest.mark.parametrize(("request_", "fits"), [("10", True), ("11", False)])
def test_a_device_that_is_not_shared_must_have_the_capacity_that_is_asked_for(request_: str, *, fits: bool) -> None:
    wanted = asked(template("t", asks(capacity={"requests": {"memory": request_}})))
    assert bool(sets_for(wanted, offered(node_slice("n", device("a", capacity={"memory": "10"}))))) is fits
    assert sets_for(wanted, offered(node_slice("n", device("a")))) == []


def test_a_shared_device_is_charged_its_counters_once() -> None:
    shared = device("a", shared=True, capacity={"memory": MEMORY}, counters={"units": "1"})
    counters = slice_of("c", pool="n", node="n", count=2, counters={"units": 1})
    wanted = asked(template("t", asks(capacity={"requests": {"memory": "4"}})))
    assert sets_for(wanted, offered(counters, slice_of("d", shared, pool="n", node="n", count=2))) == [["a"], ["a"]]


def test_a_search_without_end_is_given_up_and_finds_nothing() -> None:
    """More ways to choose six pairs of eleven than are tried, and none of them leaves 20 devices."""
    devices = [device(f"d{at:02}", pair=str(at // 2)) for at in range(22)]
    never = template(
        "t",
        *(asks(count=2) for _ in range(6)),
        asks(count=20),
        constraints=[{"matchAttribute": f"{DRIVER}/pair", "requests": [f"r{at}"]} for at in range(6)],
    )
    assert STEPS < 10_000
    assert sets_for(asked(never), offered(node_slice("n", *devices))) == []
