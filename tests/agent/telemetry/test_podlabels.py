"""A pod's uid and labels on its series: those that are asked for, each name once, and never too many."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from agent.config.load import load
from agent.kubelet.containers import ContainerTable, PodIdentity
from agent.telemetry.podlabels import MOST_LABELS, RESERVED, PodLabelChoice
from agent.telemetry.reading.readings import GpuReading
from agent.telemetry.series import write
from inventory.devices import GpuUuid
from tests.agent.telemetry.test_series import UTIL, shared, whole_held
from yamlfile import ConfigError

POD = PodIdentity("0815", {"app.kubernetes.io/name": "train", "team": "a", "pod": "x", "job-id": "7"})
EVERY = PodLabelChoice(uid=True, labels=True)


def only(*patterns: str) -> PodLabelChoice:
    return PodLabelChoice(labels=True, allowed=tuple(map(re.compile, patterns)))


def test_names_are_written_as_the_peer_writes_them_and_none_that_series_have_already() -> None:
    assert EVERY.pairs(POD) == (
        ("pod_uid", "0815"),
        ("app_kubernetes_io_name", "train"),
        ("job_id", "7"),
        ("team", "a"),
    )


def test_what_is_not_asked_for_is_not_there() -> None:
    assert PodLabelChoice().pairs(POD) == ()
    assert PodLabelChoice(uid=True).pairs(POD) == (("pod_uid", "0815"),)


def test_a_pattern_is_found_anywhere_in_a_labels_name() -> None:
    assert only("^team$", "kubernetes").pairs(POD) == (("app_kubernetes_io_name", "train"), ("team", "a"))
    assert only("^tea$").pairs(POD) == ()


def test_of_two_labels_with_one_name_the_first_counts() -> None:
    assert EVERY.pairs(PodIdentity("u", {"a/b": "1", "a.b": "2"})) == (("pod_uid", "u"), ("a_b", "2"))


names = st.text("abz019./-_", min_size=1, max_size=6)


@given(labels=st.dictionaries(names, st.text(max_size=3), max_size=40))
def test_each_name_comes_once_is_one_of_prometheus_and_they_are_bounded(labels: dict[str, str]) -> None:
    found = EVERY.pairs(PodIdentity("u", {**labels, **dict.fromkeys(RESERVED, "x")}))
    taken = [name for name, _ in found]
    assert len(set(taken)) == len(taken) <= MOST_LABELS + 1
    assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) for name in taken)
    assert set(taken) & RESERVED == {"pod_uid"}


def test_they_stand_behind_the_pod_on_its_dcgm_series_and_on_nothing_else() -> None:
    scene = structs.replace(whole_held(), pod_pairs={("team", "train"): EVERY.pairs(POD)})
    for line in write(scene).text().decode().splitlines():
        named = 'pod="train"' in line
        assert ('pod_uid="0815"' in line) is (named and line.startswith("DCGM_")), line
    line = next(line for line in write(scene).text().decode().splitlines() if line.startswith(f"{UTIL}{{"))
    assert line.endswith('pod="train",pod_uid="0815",app_kubernetes_io_name="train",job_id="7",team="a"} 80')


def test_pods_that_share_a_gpu_have_each_its_own_and_the_rest_has_none() -> None:
    scene = structs.replace(shared(), pod_pairs={("team", "train"): (("pod_uid", "1"),)})
    lines = [line for line in write(scene).text().decode().splitlines() if line.startswith(f"{UTIL}{{")]
    assert ['pod_uid="1"' in line for line in lines] == ['pod="train"' in line for line in lines]
    assert len(lines) == 3


def test_series_do_not_become_more_by_it() -> None:
    plain = whole_held()
    more = structs.replace(plain, pod_pairs={("team", "train"): EVERY.pairs(POD)})
    assert write(plain).series == write(more).series
    assert plain.readings[GpuUuid("GPU-0")] == GpuReading(GpuUuid("GPU-0"), 1.0, dict(plain.usages[0].values))


def test_the_table_knows_a_pod_until_it_is_dropped_and_not_by_another_ones_end() -> None:
    table = ContainerTable()
    table.describe("old", "team", "train", PodIdentity("old"))
    table.describe("new", "team", "train", PodIdentity("new"))
    table.drop("old")
    assert table.identity("team", "train") == PodIdentity("new")
    table.drop("new")
    assert table.identity("team", "train") is None


def test_the_peers_flags_and_variables_ask_for_them() -> None:
    flags = {"--kubernetes-enable-pod-labels": "true", "--kubernetes-pod-label-allowlist-regex": "^team$,^app"}
    by_flag = load(None, {}, flags).settings.metrics
    prefix = "DCGM_EXPORTER_KUBERNETES_"
    names = {"ENABLE_POD_UID": "true", "ENABLE_POD_LABELS": "true", "POD_LABEL_ALLOWLIST_REGEX": "^team$"}
    by_variable = load(None, {prefix + name: value for name, value in names.items()}, {}).settings.metrics
    assert (by_flag.pod_uid, by_flag.pod_labels, by_flag.pod_label_allowlist) == (False, True, ("^team$", "^app"))
    assert PodLabelChoice.of(by_variable) == PodLabelChoice(uid=True, labels=True, allowed=(re.compile("^team$"),))


def test_what_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"--kubernetes-pod-label-allowlist-regex: found '\(x', expected regular expr"
    ):
        load(None, {}, {"--kubernetes-pod-label-allowlist-regex": "^a$,(x"})
