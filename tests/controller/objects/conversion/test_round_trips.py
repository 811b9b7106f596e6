"""There and back again, over random objects of the fields that differ."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.objects.conversion import HUB, OLD, convert
from controller.objects.decode import decode as read
from controller.objects.placeencoding import decode
from controller.objects.workload import TopologyAssignment

NAME = st.text("abc-1", min_size=1, max_size=6)
POSITIVE = st.integers(1, 2**31 - 1)


def fields(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these fields."""
    return st.fixed_dictionaries({}, optional=values)


def of(api_version: str, kind: str, **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    fixed = {"apiVersion": st.just(api_version), "kind": st.just(kind), "metadata": st.just({"name": "x"})}
    return st.fixed_dictionaries(fixed, optional=parts)


@st.composite
def domains(draw: st.DrawFn) -> dict[str, Any]:
    levels = draw(st.lists(st.sampled_from(["rack", "block", "kubernetes.io/hostname"]), min_size=1, unique=True))
    values = st.lists(NAME, min_size=len(levels), max_size=len(levels))
    one = st.fixed_dictionaries({"values": values, "count": POSITIVE})
    return {"levels": levels, "domains": draw(st.lists(one, max_size=6))}


CHECKS = st.lists(
    st.fixed_dictionaries({"name": NAME}, optional={"onFlavors": st.lists(NAME, max_size=2)}),
    min_size=1,
    unique_by=lambda check: str(check["name"]),
)

OBJECTS = st.one_of(
    of(
        OLD,
        "ClusterQueue",
        spec=fields(
            cohort=NAME,
            queueingStrategy=st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
            flavorFungibility=fields(whenCanBorrow=st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
            admissionChecksStrategy=st.fixed_dictionaries({"admissionChecks": CHECKS}),
        ),
        status=fields(fairSharing=fields(weightedShare=POSITIVE)),
    ),
    of(OLD, "LocalQueue", spec=fields(clusterQueue=NAME), status=fields(flavorUsage=st.lists(fields(name=NAME)))),
    of(
        OLD,
        "Workload",
        spec=st.one_of(
            fields(priority=POSITIVE),
            st.fixed_dictionaries(
                {
                    "priorityClassName": NAME,
                    "priorityClassSource": st.sampled_from(
                        ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass"]
                    ),
                },
                optional={"podSets": st.lists(fields(name=NAME, topologyRequest=fields(required=NAME)))},
            ),
        ),
        status=fields(
            accumulatedPastExexcutionTimeSeconds=POSITIVE,
            admission=fields(
                clusterQueue=NAME, podSetAssignments=st.lists(fields(name=NAME, topologyAssignment=domains()))
            ),
        ),
    ),
)


@given(OBJECTS)
def test_v1beta1_comes_back_as_it_was(before: dict[str, Any]) -> None:
    assert convert(convert(before, HUB), OLD) == before


@given(OBJECTS)
def test_the_hub_comes_back_as_it_was(before: dict[str, Any]) -> None:
    hub = convert(before, HUB)
    assert convert(convert(hub, OLD), HUB) == hub


@st.composite
def slices(draw: st.DrawFn) -> dict[str, Any]:
    """Slices as another writer may cut them, not as ours does."""
    levels = draw(st.lists(NAME, min_size=1, max_size=3, unique=True))

    def one() -> dict[str, Any]:
        count = draw(st.integers(1, 4))
        individual = st.fixed_dictionaries(
            {"roots": st.lists(NAME, min_size=count, max_size=count)}, optional={"prefix": NAME, "suffix": NAME}
        )
        level = NAME.map(lambda value: {"universal": value}) | individual.map(lambda value: {"individual": value})
        pods = st.lists(POSITIVE, min_size=count, max_size=count).map(lambda value: {"individual": value})
        return {
            "domainCount": count,
            "valuesPerLevel": [draw(level) for _ in levels],
            "podCounts": draw(POSITIVE.map(lambda value: {"universal": value}) | pods),
        }

    return {"levels": levels, "slices": [one() for _ in range(draw(st.integers(0, 3)))]}


@given(slices())
def test_slices_of_another_writer_keep_their_domains_in_order(given: dict[str, Any]) -> None:
    status = {"admission": {"podSetAssignments": [{"topologyAssignment": given}]}}
    hub = {"apiVersion": HUB, "kind": "Workload", "status": status}
    back = convert(convert(hub, OLD), HUB)
    found = back["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    assert list(decode(read(found, TopologyAssignment))) == list(decode(read(given, TopologyAssignment)))
