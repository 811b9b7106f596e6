"""``tessera simulate`` on fleets whose nodes come and go: the examples do what their first lines say."""

import json
from pathlib import Path
from typing import Any

import click.testing
import pytest

from cli.main import tessera
from cli.simulate.reading import inputs

FOLDER = Path(__file__).parents[3] / "examples" / "capacity"


def call(*words: str | Path) -> click.testing.Result:
    return click.testing.CliRunner().invoke(tessera, ["simulate", *map(str, words)])


def simulated(name: str, fleet: str, *words: str) -> dict[str, Any]:
    result = call("--fleet", FOLDER / f"{fleet}.yaml", FOLDER / f"{name}.yaml", "-o", "json", *words)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def told(found: dict[str, Any]) -> list[str]:
    return [f"{entry['t']:g} {entry['event']} {entry['reason']}" for entry in found["timeline"]]


def test_a_gang_on_an_empty_fleet_starts_when_its_nodes_are_there() -> None:
    found = simulated("gang", "fleet-pool")
    assert told(found) == ["0 Pending WaitingForNodes", "300 Admitted Admitted", "3900 Finished Succeeded"]
    assert {place["node"] for place in found["timeline"][1]["placement"]} == {"gpu-1", "gpu-2"}
    assert all(len(place["devices"]) == 8 for place in found["timeline"][1]["placement"])
    assert found["final"]["nodeHours"] == {"gpu": pytest.approx(2.0667, abs=1e-4)}
    assert found["final"]["cost"] == pytest.approx(41.3333, abs=1e-3)
    assert found["final"]["lostGpuSeconds"] == 0
    assert "2.07 node-hours" in (FOLDER / "gang.yaml").read_text(), "as the file says"


def test_a_job_goes_to_the_machine_that_is_needed_longest_where_empty_ones_are_worth_something() -> None:
    packed = str(FOLDER.parent / "capacity/packing-config.yaml")
    for words, node, hours in (((), "gpu-2", 7.15), (("--config", packed), "gpu-1", 5.0667)):
        found = simulated("packing", "fleet-pool", *words)
        (starts,) = [entry for entry in found["timeline"] if (entry["t"], entry["event"]) == (600, "Admitted")]
        assert (starts["workload"], starts["placement"][0]["node"]) == ("ml/evaluates", node)
        assert found["final"]["nodeHours"] == {"gpu": pytest.approx(hours, abs=1e-3)}
        assert f"{hours:.2f}" in (FOLDER / "packing.yaml").read_text(), "as the file says"


def test_a_running_job_moves_so_that_its_machine_is_free_once_it_has_it_for_itself() -> None:
    found = simulated("packing", "fleet-pool", "--config", str(FOLDER.parent / "capacity/free-nodes-config.yaml"))
    mine = [entry for entry in found["timeline"] if entry["workload"] == "ml/evaluates"]
    assert [(entry["t"], entry["event"]) for entry in mine] == [
        (600, "Admitted"),
        (3900, "Preempted"),
        (3900, "Admitted"),
        (14700, "Finished"),
    ]
    said = "Moved so that node gpu-2 is free, from gpu-2 to gpu-1; 6600 GPU-seconds of its work are lost"
    assert (mine[1]["reason"], mine[1]["message"]) == ("Consolidation", said)
    assert mine[2]["placement"][0]["node"] == "gpu-1"
    assert found["final"]["nodeHours"] == {"gpu": pytest.approx(5.0667, abs=1e-3)}
    assert found["final"]["lostGpuSeconds"] == pytest.approx(6600)
    page = " ".join((FOLDER.parents[1] / "docs/packing.md").read_text().split())
    assert said in page


def test_jobs_that_end_before_a_drain_run_and_one_that_would_not_waits() -> None:
    found = simulated("drained", "fleet-drained")
    admitted = [(entry["t"], entry["workload"]) for entry in found["timeline"] if entry["event"] == "Admitted"]
    assert admitted == [(0, "ml/evaluates"), (3600, "ml/tests")]
    (waits,) = found["final"]["pending"]
    assert waits["workload"] == "ml/trains"
    (first,) = [entry for entry in found["timeline"] if (entry["t"], entry["event"]) == (0, "Pending")][:1]
    assert "1 of 1 node is closed to these pods: 1 drained at 2h, before they end" in first["message"]
    page = " ".join((FOLDER.parents[1] / "docs/drains.md").read_text().split())
    shown = call("--fleet", FOLDER / "fleet-drained.yaml", FOLDER / "drained.yaml").stdout.splitlines()
    assert all(" ".join(line.split()) in page for line in shown if "Admitted" in line)


def test_a_drain_that_is_no_time_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    node = "apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n  annotations: {tessera.dev/drain-at: friday}\n"
    file.write_text(node)
    result = call(file, FOLDER / "drained.yaml")
    assert result.exit_code == 2
    assert (
        'Node n: metadata.annotations[tessera.dev/drain-at]: found "friday", expected a time such as' in result.stderr
    )
    assert "node.yaml:" in result.stderr


def test_after_its_second_interruption_a_flavor_is_tried_last() -> None:
    found = simulated("interrupted", "fleet-interrupted")
    got = [(entry["t"], entry["flavors"]["main"]) for entry in found["timeline"] if entry["event"] == "Admitted"]
    flavors = ("spot", "spot", "on-demand", "on-demand")
    assert got == [(t, {"nvidia.com/gpu": name}) for t, name in zip((120, 1920, 3900, 11100), flavors, strict=True)]


def test_an_interrupted_gang_goes_on_from_its_checkpoint_on_demand() -> None:
    found = simulated("spot", "fleet-spot")
    assert told(found) == [
        "0 Pending WaitingForNodes",
        "120 Admitted Admitted",
        "1800 Evicted NodeInterrupted",
        "1800 Pending WaitingForNodes",
        "2100 Admitted Admitted",
        "4560 Finished Succeeded",
    ]
    pools = [{place["node"].rpartition("-")[0] for place in entry["placement"]} for entry in found["timeline"]]
    assert pools == [{"spot"}, {"spot"}, {"spot"}, {"on-demand"}, {"on-demand"}, {"on-demand"}]
    assert found["final"]["nodeHours"] == {"spot": 1.0, "on-demand": pytest.approx(1.4333, abs=1e-4)}
    assert found["final"]["lostGpuSeconds"] == 16 * (1680 - 1200)
    gone = [change for change in found["nodes"] if (change["event"], change["pool"]) == ("Removed", "spot")]
    assert [change["t"] for change in gone] == [1920.0, 1920.0]


def test_spot_machines_and_others_of_one_flavor_get_the_jobs_that_are_for_them() -> None:
    found = simulated("spot-nodes", "fleet-spot-nodes")
    starts = [entry for entry in found["timeline"] if entry["event"] == "Admitted"]
    on = {entry["workload"]: {place["node"] for place in entry["placement"]} for entry in starts}
    assert on["ml/evaluate"] < {"safe-1", "safe-2"}
    assert on["ml/tune"] == {"spot-1", "spot-2"}


def test_a_floor_keeps_a_queues_first_job_on_demand_though_it_prefers_spot(tmp_path: Path) -> None:
    text = (FOLDER / "spot-nodes.yaml").read_text().replace("tessera.dev/spot: never", "tessera.dev/spot: preferred")
    (tmp_path / "jobs.yaml").write_text(text.replace("25%", "40%"))
    result = call("--fleet", FOLDER / "fleet-spot-nodes.yaml", tmp_path / "jobs.yaml", "-o", "json")
    starts = [entry for entry in json.loads(result.stdout)["timeline"] if entry["event"] == "Admitted"]
    assert [entry["workload"] for entry in starts] == ["ml/evaluate", "ml/tune"]
    assert {place["node"] for place in starts[0]["placement"]} < {"safe-1", "safe-2"}
    assert starts[1]["t"] == 3600, "8 of 24 GPUs are not 40 %, and of the others only one machine is free"
    assert {place["node"] for place in starts[1]["placement"]} == {"safe-1", "safe-2"}


def test_what_a_gang_has_above_its_minimum_runs_only_beside_it(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    template = "{gpus: 2, product: NVIDIA A100-SXM4-80GB}"
    fleet.write_text(
        f"nodes: [{{name: fixed, gpus: 1, product: NVIDIA A100-SXM4-80GB}}]\nnodePools:\n"
        f"- {{name: gpu, template: {template}, max: 4, delay: 5, removeAfter: 0}}\n"
        "events: [{at: 30, node: gpu-1, interrupt: 10}]\n"
    )
    result = call("--fleet", fleet, FOLDER.parent / "simulate/elastic-gang.yaml", "-o", "json")
    running: set[str] = set()
    told_of: dict[str, str] = {}
    for entry in json.loads(result.stdout)["timeline"]:
        name = entry["workload"].partition("/")[2]
        if entry["event"] == "Admitted":
            running.add(name)
            assert {"urgent", "sweep"} & {name, *running}, f"{name} starts before its minimum"
        elif entry["event"] == "Evicted":
            running.discard(name)
            assert (entry["t"], entry["reason"]) == (30, "NodeInterrupted")
            told_of[name] = entry["message"].rpartition(": ")[2]
    assert told_of["sweep"] == "the workload has pods on gpu-1"
    assert told_of["sweep-5"] == "its gang has pods on gpu-1"


def test_of_a_gang_whose_nodes_come_a_pod_without_quota_waits_for_quota(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    text = (FOLDER.parent / "simulate/elastic-gang.yaml").read_text()
    assert "nominalQuota: 8" in text
    jobs.write_text(text.replace("nominalQuota: 8", "nominalQuota: 3"))
    found = json.loads(call("--fleet", FOLDER / "fleet-pool.yaml", jobs, "--until", "5s", "-o", "json").stdout)
    reasons = {one["workload"]: one["reason"] for one in found["final"]["pending"]}
    assert [reasons[f"ml/sweep{part}"] for part in ("", "-2", "-3")] == [
        "WaitingForNodes",
        "WaitingForNodes",
        "WaitingForQuota",
    ]


def test_people_see_what_nodes_cost_and_what_work_was_lost() -> None:
    shown = call("--fleet", FOLDER / "fleet-spot.yaml", FOLDER / "spot.yaml").stdout
    table = [line.split() for line in shown[shown.index("Node pools") :].splitlines()]
    assert table[2:5] == [["spot", "2", "2", "1.00"], ["on-demand", "2", "2", "1.43"], ["cost", "36.67"]]
    assert "Work lost by stops: 2.13 GPU-hours" in shown
    wide = call("--fleet", FOLDER / "fleet-spot.yaml", FOLDER / "spot.yaml", "-o", "wide").stdout
    assert "Nodes\n" not in shown
    assert ["1800s", "Interrupted", "spot-1", "spot"] in [
        line.replace("30m00s", "1800s").split() for line in wide.splitlines()
    ]
    assert "Node pools" not in call(FOLDER.parent / "simulate/fleet-8.yaml").stdout


def test_the_page_shows_what_is_printed() -> None:
    page = (FOLDER.parents[1] / "docs/capacity.md").read_text()
    first, _, last = page.split("```\n")[3].partition("...\n")
    printed = [
        line.rstrip() for line in call("--fleet", FOLDER / "fleet-pool.yaml", FOLDER / "gang.yaml").stdout.splitlines()
    ]
    for block in (first, last):
        lines = block.splitlines()
        at = printed.index(lines[0])
        assert printed[at : at + len(lines)] == lines


def test_a_told_start_is_what_times_are_shown_from() -> None:
    words = ("--start", "2026-01-05T18:00:00Z")
    found = simulated("gang", "fleet-pool", *words)
    assert found["start"] == "2026-01-05T18:00:00Z"
    assert [entry["time"] for entry in found["timeline"]] == [
        "2026-01-05T18:00:00Z",
        "2026-01-05T18:05:00Z",
        "2026-01-05T19:05:00Z",
    ]
    shown = call("--fleet", FOLDER / "fleet-pool.yaml", FOLDER / "gang.yaml", *words).stdout
    assert "2026-01-05 18:05:00Z  Admitted" in shown
    assert "ClusterQueues at 2026-01-05 19:05:00Z" in shown
    bare = simulated("gang", "fleet-pool")
    assert (bare["start"], {entry["time"] for entry in bare["timeline"]}) == (None, {None})


@pytest.mark.parametrize("given", ["tomorrow", "2026-01-05", "2026-01-05T18:00:00", "2026-01-05T18:00:00.5Z", "18:00Z"])
def test_a_start_that_is_no_time_is_refused(given: str) -> None:
    result = call("--start", given, "--fleet", FOLDER / "fleet-pool.yaml", FOLDER / "gang.yaml")
    assert result.exit_code == 2
    assert f'found "{given}", expected a time such as 2026-01-05T18:00:00Z' in result.output


def test_a_start_before_usage_was_written_is_refused() -> None:
    files = ("--fleet", FOLDER.parent / "simulate/fleet-8.yaml", FOLDER.parent / "simulate/heavy-user.yaml")
    result = call("--start", "1999-01-05T18:00:00Z", *files)
    assert result.exit_code == 2
    assert "--start: found 1999-01-05T18:00:00Z, expected " in result.output


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("tessera.dev/spot", "sometimes", "expected never, allowed or preferred"),
        ("tessera.dev/checkpoint-interval", "often", "expected a duration"),
        ("tessera.dev/checkpoint-grace", "-5s", "expected a duration"),
        ("tessera.dev/restart-cost", "90", "expected a duration"),
        ("tessera.dev/provision-timeout", "soon", "expected a duration"),
        ("tessera.dev/yield", "maybe", "expected when-checkpointed"),
    ],
)
def test_a_wrong_annotation_is_one_line(tmp_path: Path, key: str, value: str, expected: str) -> None:
    file = tmp_path / "job.yaml"
    text = (FOLDER / "gang.yaml").read_text()
    file.write_text(text.replace("{tessera.dev/runtime: 1h}", f'{{{key}: "{value}"}}'))
    result = call("--fleet", FOLDER / "fleet-pool.yaml", file)
    assert result.exit_code == 2
    (line,) = result.stderr.strip().splitlines()
    assert f"Job pretrain: metadata.annotations[{key}]: found " in line
    assert expected in line


@pytest.mark.parametrize(
    ("kind", "key", "value", "expected"),
    [
        ("ClusterQueue", "spot", "yes", "never, allowed or preferred"),
        ("LocalQueue", "spot", "yes", "never, allowed or preferred"),
        ("ClusterQueue", "flavor-order", "hourly-prize", "hourly-price"),
        ("ResourceFlavor", "provision-timeout", "20 min", "a duration such as 90s or 15m, at most 24h"),
        ("ResourceFlavor", "hourly-price", "cheap", "a number such as"),
    ],
)
def test_a_wrong_annotation_of_a_queue_or_a_flavor_is_one_line(
    tmp_path: Path, kind: str, key: str, value: str, expected: str
) -> None:
    file = tmp_path / "queues.yaml"
    names = {
        "ClusterQueue": "{name: training",
        "LocalQueue": "{name: jobs, namespace: ml",
        "ResourceFlavor": "{name: a100",
    }
    named = names[kind]
    text = (FOLDER / "gang.yaml").read_text()
    assert f"{named}}}" in text
    file.write_text(text.replace(f"{named}}}", f"{named}, annotations: {{tessera.dev/{key}: '{value}'}}}}"))
    result = call("--fleet", FOLDER / "fleet-pool.yaml", file)
    assert result.exit_code == 2
    assert f'metadata.annotations[tessera.dev/{key}]: found "{value}", expected {expected}' in result.stderr


def test_who_plays_hardware_is_told_that_pools_are_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    inputs([FOLDER / "gang.yaml"], FOLDER / "fleet-pool.yaml", events_count=True)
    assert "nodePools, interrupt: nodes come and go in tessera simulate alone, passed over" in capsys.readouterr().err


def test_a_wrong_pool_is_one_line_and_exit_2(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text((FOLDER / "fleet-pool.yaml").read_text().replace("delay: 300", "delay: 5m"))
    result = call("--fleet", fleet, FOLDER / "gang.yaml")
    assert result.exit_code == 2
    (line,) = result.stderr.strip().splitlines()
    assert line.endswith("nodePools[0].delay: found '5m', expected a number from 0 to 1e+09")
