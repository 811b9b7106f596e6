"""What a waiting gang is told of its claims, node by node."""

from controller.objects.meta import KubernetesObject
from controller.scheduler.dra.allocation.nofit import no_fit_sentence
from tests.support.engine.claimlab import Lab
from tests.support.engine.deviceclaims import DRIVER, GPU_CLASS, MIG_CLASS, asks, claim, device, node_slice, template

MIG = f"device.attributes['{DRIVER}'].type == 'mig'"


def told(lab: Lab, *nodes: str, templates: tuple[str, ...] = (), claims: tuple[str, ...] = ()) -> str:
    ask = lab.ask(*templates, claims=claims)
    told = no_fit_sentence(lab.supply, [(node, ask) for node in nodes], len(nodes) + 1, empty=False)
    return told.removeprefix("; their claims find ")


def nodes(*objects: KubernetesObject, **numbers: int) -> Lab:
    offers = (node_slice(name, *(device(f"d{at}") for at in range(number))) for name, number in numbers.items())
    return Lab(*offers, *objects)


def test_nodes_with_room_are_not_told_of() -> None:
    lab = nodes(template("two", asks(count=2)), a=2, b=1)
    assert told(lab, "a", templates=("two",)) == ""
    assert told(lab, "a", "b", templates=("two",)) == (
        f"no devices on 1 of 3 open nodes: 1 with at most 1 of the 2 of class {GPU_CLASS} that a pod needs"
    )


def test_the_most_that_is_free_anywhere_is_told() -> None:
    lab = nodes(template("four", asks(count=4)), a=1, b=3, c=2)
    assert "3 with at most 3 of the 4 of" in told(lab, "a", "b", "c", templates=("four",))
    assert "1 with at most 0 of the 4 of" in told(nodes(template("four", asks(count=4)), a=0), "a", templates=("four",))


def test_what_is_given_away_is_not_free_but_what_is_shared_is() -> None:
    busy = claim("x", asks(), given=["r0"], at="a", devices=["d0"])
    lab = nodes(template("two", asks(count=2)), busy, a=2)
    assert "1 with at most 1 of the 2 of" in told(lab, "a", templates=("two",))
    shared = node_slice("a", device("d0", shared=True, capacity={"memory": "4"}), device("d1"))
    lab = Lab(shared, busy, template("three", asks(count=3)))
    assert "1 with at most 2 of the 3 of" in told(lab, "a", templates=("three",))


def test_all_is_one_at_least_admin_access_none_and_more_than_a_claim_has_is_not_counted() -> None:
    every = template("all", asks(allocationMode="All"))
    assert "1 with at most 0 of the 1 of" in told(nodes(every, a=0), "a", templates=("all",))
    watch = template("watch", asks(count=3, adminAccess=True), asks())
    assert told(nodes(watch, a=1), "a", templates=("watch",)).endswith(
        "on 1 those that are free do not go together as they ask"
    )
    huge = template("huge", asks(count=33), asks(count=2))
    assert "1 with at most 1 of the 2 of" in told(nodes(huge, a=1), "a", templates=("huge",))


def test_classes_are_told_apart() -> None:
    lab = nodes(template("mig", asks(MIG_CLASS, 1, MIG)), template("one", asks()), a=1)
    lab.classes(MIG_CLASS)
    lab.put(node_slice("a", device("d0", type="gpu"), device("d1", type="gpu")))
    assert f"1 with at most 0 of the 1 of class {MIG_CLASS}" in told(lab, "a", templates=("one", "mig"))


def test_requests_of_one_class_add_up() -> None:
    lab = nodes(template("t", asks(), asks()), template("u", asks()), a=2)
    assert "1 with at most 2 of the 3 of" in told(lab, "a", templates=("t", "u"))


def test_selectors_that_fail_are_told_with_their_class() -> None:
    lab = nodes(template("t", asks(GPU_CLASS, 1, MIG)), a=1)
    assert told(lab, "a", templates=("t",)).endswith(f": on 1 the selectors of class {GPU_CLASS} fail for a device")


def test_what_a_claim_by_name_lacks_is_told_while_it_has_no_node() -> None:
    lab = nodes(claim("c", asks(count=2)), claim("far", asks(), given=["r0"], at="b", devices=["d0"]), a=1, b=1)
    assert "1 with at most 1 of the 2 of" in told(lab, "a", claims=("c",))
    assert told(lab, "a", claims=("far",)).endswith("on 1 of 2 open nodes: ResourceClaim ns/far has its devices on b")
    assert told(lab, "b", claims=("far",)) == ""


def test_every_reason_counts_among_the_nodes() -> None:
    lab = nodes(claim("far", asks(), given=["r0"], at="b", devices=["d0"]), template("one", asks()), a=1, b=1, c=1)
    assert told(lab, "a", "b", "c", claims=("far",), templates=("one",)) == (
        f"no devices on 3 of 4 open nodes: 1 with at most 0 of the 1 of class {GPU_CLASS} that a pod needs,"
        " ResourceClaim ns/far has its devices on b"
    )
