import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.core import Node, PodTemplateSpec
from controller.objects.decode import KINDS, KUEUE, DecodeError, UnknownKindError, decode, decode_object
from controller.objects.meta import (
    ZERO_TIME_S,
    Condition,
    LabelSelector,
    LabelSelectorRequirement,
    epoch_s,
    find_condition,
    is_true,
    to_json,
    with_condition,
)
from controller.objects.queues import ClusterQueue
from controller.objects.workload import Workload

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


def cluster_queue(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec}


def test_an_object_reads_as_its_kind_and_fields_unknown_here_are_skipped() -> None:
    read = decode_object(cluster_queue(cohortName="team", somethingNew={"a": [1]}))
    assert isinstance(read, ClusterQueue)
    assert read.spec.cohort_name == "team"
    assert read.spec.preemption is None


def test_bytes_and_data_read_alike() -> None:
    assert decode_object(b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}') == decode_object(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    )


def test_null_means_absent() -> None:
    read = decode(
        '{"metadata":{"creationTimestamp":null,"labels":null},"spec":{"initContainers":null,"containers":[]}}',
        PodTemplateSpec,
    )
    assert read == PodTemplateSpec()


def test_what_was_read_is_written_as_it_was() -> None:
    data = cluster_queue(
        cohortName="team",
        namespaceSelector={"matchLabels": {"a": "b"}},
        resourceGroups=[
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1500m"}]}],
            }
        ],
    )
    assert to_json(decode_object(data)) == data


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"a":' * 500 + "1" + "}" * 500, "deeper than 100"),
        (b"[]", "expected a JSON object"),
        ({"apiVersion": 1, "kind": []}, "must be strings"),
        (
            cluster_queue(resourceGroups=[{"flavors": [{"name": "f", "resources": [{"name": "cpu"}]}]}]),
            "spec.resourceGroups[0].flavors[0].resources[0]",
        ),
        (
            cluster_queue(fairSharing={"weight": "much"}),
            "ClusterQueue 'cq': expected a quantity such as 500m or 1Gi, found 'much' - at `spec.fairSharing.weight`",
        ),
        (cluster_queue(queueingStrategy="LIFO"), "spec.queueingStrategy"),
        ({"apiVersion": KUEUE, "kind": "Workload", "spec": {"podSets": [{"count": -1}]}}, "spec.podSets[0].count"),
        ({"apiVersion": KUEUE, "kind": "Workload", "spec": {"priority": 2**40}}, "spec.priority"),
        (
            {"apiVersion": "v1", "kind": "Node", "metadata": {"creationTimestamp": "yesterday"}},
            "metadata.creationTimestamp",
        ),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line_with_its_path(given_: Any, told: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_object(given_)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_kind_that_is_not_read_here_can_be_told_apart() -> None:
    with pytest.raises(UnknownKindError):
        decode_object({"apiVersion": "v1", "kind": "ConfigMap"})


@given(kind=st.sampled_from(sorted(KINDS)), body=st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JSON))
def test_no_object_does_worse_than_be_refused(kind: tuple[str, str], body: dict[str, Any]) -> None:
    with contextlib.suppress(DecodeError):
        decode_object({"apiVersion": kind[0], "kind": kind[1], **body})


def test_times_are_seconds_and_an_absent_one_is_older_than_all() -> None:
    node = decode(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"creationTimestamp": "2025-01-01T01:00:00+01:00"}}, Node
    )
    assert epoch_s(node.metadata.creation_timestamp) == 1735689600.0
    assert epoch_s(None) == ZERO_TIME_S == datetime(1, 1, 1, tzinfo=UTC).timestamp()


def condition(status: str, hour: int, type_: str = "Admitted") -> Condition:
    return Condition(type=type_, status=status, last_transition_time=datetime(2025, 1, 1, hour, tzinfo=UTC))


def test_a_conditions_transition_time_moves_only_with_its_status() -> None:
    conditions = with_condition((condition("False", 1), condition("True", 1, "Other")), condition("False", 2))
    assert conditions[0] == condition("False", 1)
    conditions = with_condition(conditions, condition("True", 3))
    assert conditions[0] == condition("True", 3)
    assert [one.type for one in conditions] == ["Admitted", "Other"]
    assert is_true(conditions, "Admitted")
    assert not is_true(conditions, "Absent")
    assert find_condition(conditions, "Absent") is None
    assert len(with_condition(conditions, condition("True", 4, "New"))) == 3


@pytest.mark.parametrize(
    ("operator", "values", "labels", "matches"),
    [
        ("In", ("a",), {"k": "a"}, True),
        ("In", ("a",), {}, False),
        ("NotIn", ("a",), {}, True),
        ("NotIn", ("a",), {"k": "a"}, False),
        ("Exists", (), {"k": ""}, True),
        ("Exists", (), {}, False),
        ("DoesNotExist", (), {}, True),
        ("DoesNotExist", (), {"k": ""}, False),
        ("Resembles", (), {"k": ""}, False),
    ],
)
def test_selector_operators(operator: str, values: tuple[str, ...], labels: dict[str, str], matches: bool) -> None:
    requirement = LabelSelectorRequirement(key="k", operator=operator, values=values)
    assert LabelSelector(match_expressions=(requirement,)).matches(labels) is matches


def test_an_empty_selector_matches_everything_and_all_parts_must_match() -> None:
    assert LabelSelector().matches({})
    selector = LabelSelector(
        match_labels={"a": "1"}, match_expressions=(LabelSelectorRequirement(key="b", operator="Exists"),)
    )
    assert selector.matches({"a": "1", "b": ""})
    assert not selector.matches({"a": "1"})
    assert not selector.matches({"b": "1"})


def test_a_workload_keeps_its_namespace_in_its_key() -> None:
    assert decode({"metadata": {"name": "a"}}, Workload).key == "/a"
