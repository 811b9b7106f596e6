"""What a pod's claims ask: of templates, claims and classes as they are now, and what of it is not counted."""

import re

import pytest

from controller.objects.deviceclaims import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from controller.objects.meta import KubernetesObject
from controller.scheduler.dra.allocation.requests import (
    MOST_DEVICES,
    Constraint,
    NotCountedError,
    PodClaimsRequest,
    claim_request,
)
from tests.support.engine.claimlab import Lab, claim_names
from tests.support.engine.claimsupply import CLASS, made_for
from tests.support.engine.deviceclaims import (
    DRIVER,
    GPU_CLASS,
    asks,
    claim,
    device,
    device_class,
    node_slice,
    slice_of,
    template,
)

TYPE = f"device.attributes['{DRIVER}'].type == 'gpu'"


def ask_of(made: KubernetesObject) -> PodClaimsRequest:
    assert isinstance(made, ResourceClaimTemplate)
    assert isinstance(CLASS, DeviceClass)
    return PodClaimsRequest((claim_request(made.spec.spec, {GPU_CLASS: CLASS}),))


def problem(lab: Lab, *templates: str, claims: tuple[str, ...] = ()) -> list[str]:
    return list(lab.supply.requests.problems(claim_names(*templates, claims=claims)).values())


# -- one claim ---------------------------------------------------------------------------------------------------------


def test_a_constraint_concerns_requests_by_name_and_their_alternatives() -> None:
    some = Constraint("a", distinct=False, requests=("r0", "r1/big"))
    assert [some.concerns(label) for label in ("r0", "r0/any", "r1/big", "r1/small", "r1", "r2", "any/r0")] == [
        *(True, True, True),
        *(False, False, False, False),
    ]
    assert Constraint("a", distinct=False, requests=()).concerns("r9")


def test_a_count_that_is_not_said_is_one_and_the_most_of_a_claim_can_be_asked_for() -> None:
    made = ask_of(
        template("t", asks(count=0), asks(count=MOST_DEVICES), asks(count=MOST_DEVICES + 1), asks(allocationMode="All"))
    )
    assert [[wanted.number for wanted in request] for request in made.each[0].requests] == [
        [1],
        [MOST_DEVICES],
        [],
        [0],
    ]


def test_capacity_admin_access_and_constraints_are_read() -> None:
    wanted = template(
        "t",
        asks(adminAccess=True, capacity={"requests": {"z": "2", "a": "1"}}),
        asks(),
        constraints=[{"matchAttribute": "x/m", "requests": ["r0"]}, {"distinctAttribute": "x/d"}],
    )
    made = ask_of(wanted)
    first, second = (request[0] for request in made.each[0].requests)
    assert (first.admin, first.capacity) == (True, (("a", 10**9), ("z", 2 * 10**9)))
    assert (second.admin, second.capacity) == (False, ())
    assert made.each[0].constraints == (Constraint("x/m", False, ("r0",)), Constraint("x/d", True, ()))
    assert made.constrained == {"x/m", "x/d"}


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (asks(allocationMode="Most"), "request r0: allocationMode Most is not known here"),
        (asks(GPU_CLASS, 1, "device.driver =="), "request r0: a selector is no CEL: "),
        (asks(GPU_CLASS, 1, "device.driver.matches('g.*')"), "request r0: matches() in a selector: not known here"),
    ],
)
def test_what_cannot_be_counted_says_why(request_: dict[str, object], said: str) -> None:
    with pytest.raises(NotCountedError, match=re.escape(said)):
        ask_of(template("t", request_))


def test_the_attributes_that_selectors_look_at_are_known_or_may_be_any() -> None:
    assert "type" in (ask_of(template("t", asks(GPU_CLASS, 1, TYPE), asks())).identifiers or ())
    assert "pair" in (ask_of(template("t", asks(GPU_CLASS, 1, TYPE, TYPE.replace("type", "pair")))).identifiers or ())


@pytest.mark.parametrize(
    "whole",
    [
        "device.attributes.size() > 1",
        f"device.attributes['{DRIVER}'].size() > 1",
        f"device.attributes['{DRIVER}'][device.driver] == 'a'",
    ],
)
def test_a_selector_that_may_look_at_any_attribute_names_none(whole: str) -> None:
    assert ask_of(template("t", asks(GPU_CLASS, 1, whole))).identifiers is None


# -- objects -----------------------------------------------------------------------------------------------------------


def lab() -> Lab:
    return Lab(node_slice("a", device("d0", type="gpu")), template("one", asks()), claim("c", asks()))


def test_an_ask_is_one_while_nothing_changes() -> None:
    known = lab()
    ask = known.ask("one", claims=["c"])
    assert known.ask("one", claims=["c"]) is ask
    before = known.supply.requests.version
    known.put(template("one", asks()))
    known.put(claim("c", asks()))
    known.classes(GPU_CLASS)
    assert known.supply.requests.version == before
    known.put(template("other", asks()))
    assert known.supply.requests.version > before
    assert known.ask("one", claims=["c"]) is ask


def test_a_template_a_claim_and_a_class_that_change_change_what_is_asked() -> None:
    known = lab()
    assert (known.fitting_pods("a", "one"), known.fitting_pods("a", claims=["c"])) == (1, 1 << 30)
    known.put(template("one", asks(count=2)))
    assert known.fitting_pods("a", "one") == 0
    known.put(claim("c", asks(count=2)))
    assert known.fitting_pods("a", claims=["c"]) == 0
    known.put(template("one", asks()))
    assert known.fitting_pods("a", "one") == 1
    known.put(device_class(GPU_CLASS, "false"))
    assert known.fitting_pods("a", "one") == 0
    known.put(device_class(GPU_CLASS, TYPE))
    assert known.fitting_pods("a", "one") == 1
    known.drop(DeviceClass, "", GPU_CLASS)
    assert known.fitting_pods("a", "one") == 0
    known.classes(GPU_CLASS)
    assert known.fitting_pods("a", "one") == 1


def test_templates_and_claims_that_are_missing_are_told_and_left_out() -> None:
    known = lab()
    assert problem(known, "one", claims=("c",)) == []
    assert problem(known, "no", claims=("none",)) == [
        "there is no ResourceClaimTemplate ns/no",
        "there is no ResourceClaim ns/none",
    ]
    assert known.supply.requests.by_name
    known.drop(ResourceClaimTemplate, "ns", "one")
    known.drop(ResourceClaim, "ns", "c")
    assert problem(known, "one", claims=("c",)) == [
        "there is no ResourceClaimTemplate ns/one",
        "there is no ResourceClaim ns/c",
    ]
    assert not known.supply.requests.by_name
    assert known.supply.ask(claim_names("one", claims=["c"])) is None
    assert known.supply.ask(None) is None
    known.put(template("one", asks()))
    known.put(claim("c", asks()))
    assert problem(known, "one", claims=("c",)) == []


def test_objects_that_were_not_known_change_nothing_when_they_go() -> None:
    known = lab()
    before = known.supply.requests.version
    for kind, namespace in (
        (DeviceClass, ""),
        (ResourceClaimTemplate, "ns"),
        (ResourceClaim, "ns"),
        (ResourceSlice, ""),
    ):
        assert known.drop(kind, namespace, "unknown") == ()
    assert known.supply.requests.version == before
    assert not known.supply.requests.drop(KubernetesObject, "ns/one")
    known.put(claim("made", asks(), **made_for("p")))
    assert problem(known, claims=("made",)) == ["there is no ResourceClaim ns/made"]


def test_the_claims_that_are_counted_are_named_in_their_order() -> None:
    known = lab()
    known.put(template("odd", asks(allocationMode="Most")))
    assert known.supply.requests.claims_of(claim_names("odd", "one", "no", "one")) == ("t1", "t3")
    assert len(known.ask("odd", "one", "no", "one").each) == 2


def test_a_claim_by_name_that_two_names_of_the_pod_mean_is_one() -> None:
    known = lab()
    ask = known.ask(claims=["c", "c"])
    assert len(ask.shared) == 1
    assert ask.is_together(2, None)
    assert ask.is_together(1, ask)
    assert not ask.is_together(1, None)
    assert not ask.is_together(1, known.ask("one"))
    assert not known.ask("one").is_together(2, ask)
    assert known.ask("one", claims=["c"]).shared == ask.shared


def test_devices_of_no_single_node_are_not_counted_while_they_are_there() -> None:
    known = lab()
    known.put(template("gpu", asks(GPU_CLASS, 1, TYPE)))
    known.put(slice_of("net", device("x", type="nic"), pool="net"))
    assert problem(known, "one", "gpu") == [f"request r0: {DRIVER} has such devices that are of no single node"]
    known.put(slice_of("net", device("x"), pool="net"))
    assert len(problem(known, "one", "gpu")) == 2
    known.drop(ResourceSlice, "", "net")
    assert problem(known, "one", "gpu") == []
    assert known.fitting_pods("a", "one") == 1
