"""Which claims have devices, filed by pool and by pod."""

import pytest

from controller.objects.deviceclaims import ResourceClaim
from controller.objects.meta import ObjectMeta, OwnerReference
from controller.scheduler.dra.allocation.held import HeldClaims, HeldDevice, held_claim, pod_of
from tests.support.engine.claimsupply import made_for
from tests.support.engine.deviceclaims import DRIVER, asks, claim


def given_to(name: str, pod: str = "", *, at: str = "n", devices: tuple[str, ...] = ("a",)) -> ResourceClaim:
    metadata = made_for(pod) if pod else {}
    made = claim(name, asks(), given=["r0"] * len(devices), at=at, devices=devices, **metadata)
    assert isinstance(made, ResourceClaim)
    return made


def without(name: str) -> ResourceClaim:
    made = claim(name, asks())
    assert isinstance(made, ResourceClaim)
    return made


def test_a_claim_is_filed_while_it_has_devices() -> None:
    held = HeldClaims()
    assert held.put(without("c")) == ()
    assert held.get("ns/c") is None
    assert held.put(given_to("c", "p")) == ((DRIVER, "n"),)
    assert held.put(given_to("c", "p")) == ()
    assert held.put(given_to("c", "p", at="m")) == ((DRIVER, "n"), (DRIVER, "m"))
    held.validate()
    assert held.within([(DRIVER, "n")]) == []
    assert held.within([(DRIVER, "m"), (DRIVER, "m")]) == [held.get("ns/c")]
    assert held.of_pod("ns/p") == [held.get("ns/c")]
    assert held.put(without("c")) == ((DRIVER, "m"),)
    assert held.drop("ns/c") == ()
    assert (held.within([(DRIVER, "m")]), held.of_pod("ns/p")) == ([], [])
    held.validate()


def test_claims_of_one_pod_and_pool_are_filed_beside_each_other() -> None:
    held = HeldClaims()
    held.put(given_to("c", "p"))
    held.put(given_to("d", "p", devices=("b", "e")))
    held.put(given_to("named", devices=("f",)))
    assert len(list(held.of_pod("ns/p"))) == 2
    assert len(list(held.within([(DRIVER, "n")]))) == 3
    assert held.of_pod("") == []
    assert held.drop("ns/c") == ((DRIVER, "n"),)
    assert [device.key[2] for each in held.of_pod("ns/p") for device in each.devices] == ["b", "e"]
    assert held.drop("ns/named") == ((DRIVER, "n"),)
    held.validate()


def test_drift_of_held_claims_is_found() -> None:
    for index in ("_in_pool", "_of_pod"):
        held = HeldClaims()
        held.put(given_to("c", "p"))
        getattr(held, index).clear()
        with pytest.raises(AssertionError, match="filed elsewhere"):
            held.validate()


def test_what_a_claim_was_given_is_read_whole() -> None:
    given = given_to("c", "p", devices=("a", "b"))
    assert held_claim(given) == (
        "ns/p",
        (
            HeldDevice((DRIVER, "n", "a"), admin=False, consumed=()),
            HeldDevice((DRIVER, "n", "b"), admin=False, consumed=()),
        ),
    )
    assert held_claim(without("c")) is None
    nothing = claim("c", asks(), given=[])
    assert isinstance(nothing, ResourceClaim)
    assert held_claim(nothing) is None


def owner(kind: str, name: str, *, controller: bool) -> OwnerReference:
    return OwnerReference(kind=kind, name=name, controller=controller)


def test_the_pod_of_a_claim_is_its_controller() -> None:
    def pod(*owners: OwnerReference) -> str:
        return pod_of(ObjectMeta(name="c", namespace="ns", owner_references=owners))

    assert pod(owner("Job", "j", controller=True), owner("Pod", "p", controller=True)) == "ns/p"
    assert pod(owner("Pod", "p", controller=False), owner("Job", "j", controller=True)) == ""
    assert pod() == ""
