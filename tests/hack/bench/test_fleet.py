"""The fleet benchmark's pure parts: its shape, its objects, the fit of a cost, figures read from text."""

import base64
import math
from collections import Counter

import msgspec
import pytest

from hack.bench.fleet import main, objects, readings, seeding
from hack.bench.fleet.shape import GPUS, PENDING, fleet


def test_the_whole_fleet_is_as_large_as_it_is_said_to_be() -> None:
    whole = fleet(1)
    assert (whole.nodes, whole.queues, whole.local_queues) == (10_000, 100, 1_000)
    assert (whole.running, whole.pending, whole.pods) == (20_000, 100_000, 50_000)
    quarter = fleet(0.25)
    assert (quarter.nodes, quarter.running, quarter.pending) == (2_500, 5_000, 25_000)


def test_no_node_runs_more_than_it_has_and_a_fortieth_of_all_gpus_is_free() -> None:
    small = fleet(0.01)
    used = Counter[int]()
    for run in small.runs():
        for place, pods in run.places:
            used[place] += pods * run.gpus
    assert max(used.values()) == GPUS
    assert sum(used.values()) == pytest.approx(small.nodes * GPUS * 39 / 40)
    assert sum(run.pods for run in small.runs()) == small.pods


def test_every_queues_quota_holds_what_runs_in_it_and_a_little_more() -> None:
    small = fleet(0.05)
    held = Counter[int]()
    for run in small.runs():
        held[run.queue] += run.pods * run.gpus
    for queue in range(small.queues):
        assert held[queue] < small.quota(queue) <= held[queue] * 1.05


def test_pending_workloads_come_in_their_shares() -> None:
    waiting = [each.kind.name for each in fleet(0.01).waits()]
    assert Counter(waiting[:100]) == {kind.name: kind.share for kind in PENDING}


def test_objects_go_where_the_api_server_looks_for_them_and_are_named_once() -> None:
    made = list(objects.everything(fleet(0.0004)))
    keys = [seeding.key(each) for each in made]
    assert len(set(keys)) == len(keys) == fleet(0.0004).objects + 2, "with a topology and a flavor"
    for kind in (
        "/registry/minions/node-00000",
        "/registry/pods/team-0000/running-000000-0",
        "/registry/tessera.dev/gpunodes/node-00000",
        "/registry/kueue.x-k8s.io/clusterqueues/cq-0000",
        "/registry/kueue.x-k8s.io/topologies/fleet",
        "/registry/kueue.x-k8s.io/workloads/team-0000/pending-000000",
    ):
        assert kind in keys
    assert len({each["metadata"]["uid"] for each in made}) == len(made)


def test_a_transaction_has_at_most_a_hundred_objects_as_json() -> None:
    made = list(objects.everything(fleet(0.0004)))
    bodies = [msgspec.json.decode(body)["success"] for body in seeding.transactions(made)]
    assert [len(body) for body in bodies[:-1]] == [seeding.BATCH] * (len(bodies) - 1)
    puts = [put["requestPut"] for body in bodies for put in body]
    assert [msgspec.json.decode(base64.b64decode(put["value"])) for put in puts] == made


@pytest.mark.parametrize("power", [0.5, 1.0, 1.3])
def test_the_exponent_is_that_of_the_power_law(power: float) -> None:
    sizes = [1.0, 4.0, 16.0]
    assert main.exponent(sizes, [3 * size**power for size in sizes]) == pytest.approx(power)
    assert ("DEFECT" in main.grown(sizes, [size**power for size in sizes], "s")) == (power > 1.1)


@pytest.mark.parametrize(("sizes", "costs"), [([1.0], [1.0]), ([1.0, 1.0], [1.0, 2.0]), ([1.0, 4.0], [0.0, 1.0])])
def test_without_two_sizes_and_costs_there_is_no_exponent(sizes: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        main.exponent(sizes, costs)


METRICS = """\
# HELP seconds what took how long
seconds_bucket{le="0.01",result="a"} 50
seconds_bucket{le="0.1",result="a"} 90
seconds_bucket{le="+Inf",result="a"} 100
seconds_bucket{le="0.01",result="b"} 50
seconds_bucket{le="0.1",result="b"} 110
seconds_bucket{le="+Inf",result="b"} 100
seconds_count 200
"""


def test_quantiles_are_interpolated_in_their_bucket() -> None:
    found = readings.buckets(METRICS, "seconds")
    assert found == {0.01: 100, 0.1: 200, math.inf: 200}
    assert readings.quantile(found, 0.5) == pytest.approx(0.01)
    assert readings.quantile(found, 0.99) == pytest.approx(0.1 - 0.09 * 2 / 100)
    assert readings.quantile({0.01: 0, math.inf: 5}, 0.99) == 0.01, "above the last bound nothing is known"
    assert readings.between(found, {bound: count + 7 for bound, count in found.items()}) == dict.fromkeys(found, 7)
    with pytest.raises(ValueError, match="no observations"):
        readings.quantile({}, 0.5)


def test_samples_are_summed_by_name_and_labels() -> None:
    assert readings.total(METRICS, "seconds_count") == 200
    assert readings.total(METRICS, "seconds_bucket", 'result="a"', 'le="0.1"') == 90


def test_a_line_of_the_log_has_its_time() -> None:
    log = 'ts=1970-01-01T00:00:01.500Z level=info logger=a msg="deciding: 3"\nts=1970-01-01T00:00:02.000Z level=info\n'
    assert readings.logged_at(log, "deciding:") == 1.5
    assert readings.logged_at(log, "leading") is None


def test_bytes_are_those_of_the_processs_own_sockets() -> None:
    listed = (
        'ESTAB 0 0 127.0.0.1:1 127.0.0.1:2 users:(("python",pid=17,fd=3)) bytes_received:100 rest\n'
        'ESTAB 0 0 127.0.0.1:1 127.0.0.1:3 users:(("python",pid=17,fd=4)) bytes_sent:9\n'
        'ESTAB 0 0 127.0.0.1:1 127.0.0.1:4 users:(("python",pid=171,fd=3)) bytes_received:7\n'
    )
    assert readings.socket_bytes(listed, 17) == 100


def test_factors_must_be_positive(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["--factor", "0"])
    assert "expected more than 0" in capsys.readouterr().err
