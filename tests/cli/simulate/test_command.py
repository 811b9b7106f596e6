"""``tessera simulate``: every example does what its first lines say, and mistakes are one line."""

import json
import re
from pathlib import Path
from typing import Any

import click.testing
import pytest

from cli.main import tessera
from cli.simulate.command import patience

EXAMPLES = Path(__file__).parents[3] / "examples"
FOLDER = EXAMPLES / "simulate"
GPU = "nvidia.com/gpu"


def call(*words: str | Path, given: str | None = None) -> click.testing.Result:
    return click.testing.CliRunner().invoke(tessera, ["simulate", *map(str, words)], input=given)


def simulated(name: str, fleet: str, *words: str | Path) -> dict[str, Any]:
    result = call("--fleet", FOLDER / f"{fleet}.yaml", FOLDER / f"{name}.yaml", "-o", "json", *words)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def told(found: dict[str, Any], *events: str) -> list[str]:
    return [
        f"{entry['t']:g} {entry['event']} {entry['workload'].partition('/')[2]}"
        for entry in found["timeline"]
        if not events or entry["event"] in events
    ]


# -- the examples ------------------------------------------------------------------------------------------------------


def test_cohort_borrowing() -> None:
    """Research uses 8 of its own and 4 of production's: 12 of 16, against 8 of 16."""
    found = simulated("cohort-borrowing", "fleet-24")
    assert told(found) == ["0 Admitted llm-ft", "0 Admitted embed", "10 Admitted serve", "20 Admitted rlhf"]
    queues = found["final"]["clusterQueues"]
    assert (queues["cq-research"]["usage"], queues["cq-research"]["borrowed"]) == ({GPU: 12}, {GPU: 4})
    assert (queues["cq-prod"]["usage"], queues["cq-prod"]["borrowed"]) == ({GPU: 8}, {GPU: 0})
    assert (queues["cq-research"]["share"], queues["cq-prod"]["share"]) == (0.75, 0.5)
    assert found["timeline"][3]["flavors"] == {"main": {GPU: "a100"}}


def test_linked_gpus_are_kept_for_those_who_need_them() -> None:
    found = simulated("linked-gpus", "fleet-racks")
    admitted = {entry["workload"]: entry["placement"] for entry in found["timeline"] if entry["event"] == "Admitted"}
    assert {one["node"] for one in admitted["ml/notebooks"]} == {"paired-1"}
    assert [(one["node"], one["domains"]) for one in admitted["ml/pretrain"]] == [
        ("switched-1", {"topology.example/rack": "r1"}),
        ("switched-2", {"topology.example/rack": "r2"}),
    ]
    (pairs,) = admitted["ml/finetune"]
    assert (pairs["node"], pairs["pods"]) == ("paired-1", 2)
    indexes = [int(device[-2:]) for device in pairs["devices"]]
    assert [one // 2 for one in indexes] == [1, 1, 2, 2]
    given = [device for places in admitted.values() for place in places for device in place["devices"]]
    assert len(set(given)) == len(given) == 22
    (waits,) = found["final"]["pending"]
    assert waits["workload"] == "ml/one-more"
    assert "a pod's GPUs must be joined by NVLink; full nodes are taken by ml/pretrain on 2" in waits["message"]
    (spread,) = found["fragmentation"]
    assert (spread["flavor"], spread["before"]["free"], spread["after"]["free"]) == ("a100", 32, 10)
    assert 0 < spread["before"]["ratio"] < spread["after"]["ratio"]
    assert spread["after"]["largest"] == {"topology.example/rack": 8, "kubernetes.io/hostname": 8}
    shown = call("--fleet", FOLDER / "fleet-racks.yaml", FOLDER / "linked-gpus.yaml").output
    table = shown[shown.index("Placement") :]
    rows = [line for line in table.splitlines() if "switched-1" in line]
    assert any("r1" in line and "ml/pretrain" in line for line in rows), "racks and nodes"
    assert all(device in "".join(table.split()) for device in pairs["devices"]), "GPUs"
    assert re.search(r"a100\s+before\s+32\b", table)
    assert re.search(r"a100\s+after\s+10\b", table)
    assert "ten GPUs are free" in (FOLDER / "linked-gpus.yaml").read_text(), "as the file says"


def test_preemption_on_three_nodes_of_four() -> None:
    """The four development jobs make room for the inference job; the trainings never move."""
    found = simulated("preemption", "fleet-3x4")
    assert told(found, "Preempted") == [f"60 Preempted dev-{number}" for number in range(1, 5)]
    assert {entry["reason"] for entry in found["timeline"] if entry["event"] == "Preempted"} == {"InClusterQueue"}
    assert {entry["preemptedBy"] for entry in found["timeline"]} == {None, "ml/inference"}
    assert "60 Admitted inference" in told(found)
    assert [one for one in told(found, "Admitted") if one.startswith("660 ")] == [
        f"660 Admitted dev-{number}" for number in range(1, 5)
    ]
    assert told(found, "Finished")[1:3] == ["3600 Finished train-1", "3600 Finished train-2"]


def test_of_two_equal_victims_the_one_that_saved_its_work_gives_way() -> None:
    found = simulated("price-of-preemption", "fleet-8")
    assert told(found, "Preempted", "Finished") == [
        "3900 Preempted saves",
        "4500 Finished urgent",
        "8160 Finished saves",
        "9000 Finished silent",
    ]
    (preempted,) = (one["message"] for one in found["timeline"] if one["event"] == "Preempted")
    assert preempted.endswith(". It loses 1200 GPU-seconds of work and 240 by its restart")
    assert found["final"]["lostGpuSeconds"] == 1200 == 4 * 5 * 60
    kueue = simulated("price-of-preemption", "fleet-8", "--config", EXAMPLES / "configs/controller/kueue.yaml")
    assert told(kueue, "Preempted") == ["3900 Preempted silent"]
    assert kueue["final"]["lostGpuSeconds"] == 4 * 35 * 60


def test_a_preemption_waits_for_the_checkpoint_that_is_due() -> None:
    found = simulated("checkpoint-wait", "fleet-8")
    assert told(found, "Preempted") == ["4200 Preempted saves"]
    assert found["final"]["lostGpuSeconds"] == 0
    (waits,) = (one["message"] for one in found["timeline"] if (one["t"], one["event"]) == (3900, "Pending"))
    assert waits.endswith("until 1h10m it waits for checkpoints of 1 workload that it would preempt")


def test_a_wait_that_is_no_duration_is_refused_with_its_place(tmp_path: Path) -> None:
    text = (EXAMPLES / "simulate/checkpoint-wait.yaml").read_text()
    (tmp_path / "queue.yaml").write_text(text.replace("checkpoint-wait: 5m", "checkpoint-wait: soon"))
    result = click.testing.CliRunner().invoke(tessera, ["simulate", str(tmp_path / "queue.yaml")])
    assert result.exit_code == 2
    assert 'gpus: metadata.annotations[tessera.dev/checkpoint-wait]: found "soon", expected a' in result.stderr


def test_four_and_five_gpus_on_a_node_of_eight() -> None:
    found = simulated("four-and-five", "fleet-8")
    assert told(found) == [
        "0 Admitted four",
        "0 Pending five",
        "60 Finished four",
        "60 Admitted five",
        "90 Finished five",
    ]
    assert "4 free, 1 more needed" in found["timeline"][1]["message"]


def test_a_heavy_user_comes_after_a_light_one() -> None:
    config = EXAMPLES / "configs/controller/tessera.yaml"
    assert told(simulated("heavy-user", "fleet-8", "--config", config), "Admitted") == [
        "0 Admitted probe",
        "3600 Admitted sweep-1",
        "7200 Admitted sweep-2",
    ]
    assert told(simulated("heavy-user", "fleet-8"), "Admitted")[0] == "0 Admitted sweep-1"


def test_backfill_passes_a_blocked_head_and_does_not_delay_it() -> None:
    found = simulated("backfill", "fleet-8")
    assert told(found, "Admitted") == ["0 Admitted busy", "3 Admitted short", "60 Admitted head", "120 Admitted long"]
    (waits,) = [one for one in found["timeline"] if one["event"] == "Pending" and one["workload"] == "ml/long"]
    assert waits["message"] == "Fits, but would delay workload ml/head, which is to start by 1m"
    kueue = simulated("backfill", "fleet-8", "--config", EXAMPLES / "configs/controller/kueue.yaml")
    assert "2 Admitted long" in told(kueue)


def test_what_was_evicted_for_somebody_is_kept_for_him() -> None:
    found = simulated("reserve-for-preemptor", "fleet-8")
    assert told(found, "Preempted", "Admitted") == ["0 Admitted old", "20 Preempted old", "20 Admitted a-urgent"]
    kueue = simulated("reserve-for-preemptor", "fleet-8", "--config", EXAMPLES / "configs/controller/kueue.yaml")
    assert told(kueue, "Preempted", "Admitted") == ["0 Admitted old", "20 Preempted old", "20 Admitted rush"]


def test_quotas_follow_what_is_healthy() -> None:
    found = simulated("quota-shares", "fleet-one-gpu-lost")
    assert told(found, "Admitted") == ["0 Admitted eleven", "0 Admitted three", "60 Admitted one-more"]
    kueue = simulated("quota-shares", "fleet-one-gpu-lost", "--config", EXAMPLES / "configs/controller/kueue.yaml")
    assert {*told(kueue, "Admitted")} == {"0 Admitted eleven", "0 Admitted three", "0 Admitted one-more"}


def test_a_gang_grows_above_its_minimum_and_gives_back_pod_by_pod() -> None:
    found = simulated("elastic-gang", "fleet-8")
    said = told(found)
    assert said[:5] == ["0 Admitted sweep", *(f"0 Admitted sweep-{at}" for at in range(2, 6))]
    left = [line.split()[-1] for line in said if line.startswith("10 Preempted")]
    assert len(left) == 2
    assert "sweep" not in left
    assert {line for line in said if line.startswith("30 Admitted")} == {f"30 Admitted {name}" for name in left}
    assert "60 Finished sweep" in said


def test_subgroups_start_together_each_in_a_rack() -> None:
    found = simulated("subgroups", "fleet-racks")
    assert told(found) == ["0 Admitted notebook", "1 Pending serve", "10 Finished notebook", "10 Admitted serve"]
    waits, starts = found["timeline"][1], found["timeline"][3]
    assert "no domain of topology.example/rack has room for subgroup" in waits["message"]
    racks: dict[str, set[str]] = {}
    for place in starts["placement"]:
        racks.setdefault(place["podSet"], set()).add(place["node"][-1])
    assert sorted(map(sorted, racks.values())) == [["1"], ["2"]]


def test_every_example_has_its_test() -> None:
    used = Path(__file__).read_text()
    names = [path.stem for path in FOLDER.iterdir()]
    assert names
    assert [name for name in names if f'"{name}"' not in used] == []


# -- the command -------------------------------------------------------------------------------------------------------


def test_people_get_tables_and_programs_json() -> None:
    result = call("--fleet", FOLDER / "fleet-8.yaml", FOLDER / "four-and-five.yaml", "--until", "70s")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "Timeline"
    assert lines[3].split()[:5] == ["0s", "Pending", "ml/five", "node", "WaitingForQuota"]
    assert lines[-1] == "Still running: ml/five"
    assert lines[-3:-1][-1].split() == ["node", "5", "nvidia.com/gpu", "-", "62%", "0"]


def test_memory_is_written_as_in_manifests() -> None:
    queues = [EXAMPLES / "queues" / f"{name}.yaml" for name in ("flavors-by-product", "cluster-queue-in-cohort")]
    jobs = [EXAMPLES / "queues" / f"{name}.yaml" for name in ("local-queues-per-team", "job-four-workers")]
    assert "128 cpu, 512Gi memory, 32 nvidia.com/gpu" in call(*queues, *jobs).stdout


def test_somebody_who_waits_is_an_exit_code_for_who_asks() -> None:
    words = ("--fleet", FOLDER / "fleet-8.yaml", FOLDER / "four-and-five.yaml", "--until", "10s")
    assert call(*words).exit_code == 0
    assert call(*words, "--fail-pending").exit_code == 3
    assert call(*words[:3], "--fail-pending").exit_code == 0


def test_manifests_come_from_folders_and_standard_input(tmp_path: Path) -> None:
    text = (FOLDER / "four-and-five.yaml").read_text()
    *queues, four, five = text.split("\n---\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "queues.yml").write_text("\n---\n".join(queues))
    (tmp_path / "deep" / "jobs.yaml").write_text(four)
    (tmp_path / "notes.txt").write_text("no manifest: [")
    result = call("--fleet", FOLDER / "fleet-8.yaml", tmp_path, "-", "-o", "json", given=five)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == simulated("four-and-five", "fleet-8")


def test_what_is_passed_over_is_told_beside_the_result(tmp_path: Path) -> None:
    given = tmp_path / "m.yaml"
    given.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
    told = f"{given}:1: note: ConfigMap of v1 decides nothing here, passed over\n"
    alone = call(given, "--fleet", FOLDER / "fleet-8.yaml")
    assert (alone.exit_code, alone.stdout) == (2, "")
    assert alone.stderr == (
        f"{told}Error: {given}: found nothing that anything is decided by, expected queues, flavors, nodes or jobs."
        " Name their files\n"
    )
    given.write_text(f"{given.read_text()}\n---\n{{apiVersion: v1, kind: Node, metadata: {{name: n}}}}")
    result = call(given, "-o", "json")
    assert (result.exit_code, result.stderr) == (0, told)
    assert json.loads(result.stdout)["timeline"] == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "m.yaml",
            "{apiVersion: batch/v1, kind: Job, metadata: {name: 3}}",
            "m.yaml:1: Job 3: metadata.name: found 3, expected a name",
        ),
        ("m.yaml", "a: [", "column 5: not valid YAML: found the end of the text"),
        ("fleet.yaml", "nodes: 3", "nodes: found 3, expected a list of nodes"),
        ("config.yaml", "apiVersion: v1\nkind: Configuration\n", "apiVersion: found 'v1', expected"),
    ],
)
def test_a_mistake_is_one_line_with_its_file(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    option = {"fleet.yaml": "--fleet", "config.yaml": "--config"}.get(name)
    manifest = FOLDER / "four-and-five.yaml"
    result = call(tmp_path / name) if option is None else call(option, tmp_path / name, manifest)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {tmp_path}/{name}:")
    assert said in line
    assert result.stdout == ""


def test_a_field_that_no_api_server_knows_is_an_error_unless_it_may_be(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text((FOLDER / "cohort-borrowing.yaml").read_text().replace("cohortName:", "cohortname:"))
    words = ("--fleet", FOLDER / "fleet-24.yaml", path)
    refused = call(*words)
    assert refused.exit_code == 2
    assert re.fullmatch(
        rf"(Error: {path}:\d+: ClusterQueue cq-\w+: spec.cohortname: found an unknown field, expected cohortName\. "
        r"Correct it, or use --allow-unknown-fields to pass over it\n){2}",
        refused.stderr,
    )
    assert refused.stdout == ""
    passed = call(*words, "--allow-unknown-fields")
    assert passed.exit_code == 0
    assert passed.stderr.count("expected cohortName; passed over\n") == 2
    assert "borrows" not in passed.stdout


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    for words in ((tmp_path / "no.yaml",), (tmp_path,), ("--fleet", tmp_path / "no.yaml", tmp_path)):
        result = call(*words)
        assert result.exit_code == 2
        assert str(tmp_path) in result.stderr
    assert "expected a duration" in call("--until", "soon", tmp_path).stderr


def test_help_shows_how() -> None:
    text = call("--help").stdout
    assert "Examples:" in text
    assert "tessera simulate --fleet fleet.yaml queues.yaml jobs.yaml" in text
    assert "Exit codes" in text


def test_who_waits_for_long_is_told_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = [0.0]
    progress = patience(lambda: seconds[0])
    for now, done in ((1.9, 1), (2.1, 2), (2.3, 3), (2.7, 4)):
        seconds[0] = now
        progress(60.0 * done, done, 7)
    assert capsys.readouterr().err == "at 120 s: 2 of 7 jobs have ended\nat 240 s: 4 of 7 jobs have ended\n"


def test_in_a_pipe_a_row_is_one_line_without_colour() -> None:
    given = ("--fleet", FOLDER / "fleet-24.yaml", FOLDER / "cohort-borrowing.yaml")
    shown = call(*given).stdout
    told = (EXAMPLES.parent / "docs" / "simulate.md").read_text()
    assert f"```\n{shown}```" in told
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) > 200


def test_a_job_that_no_node_is_large_enough_for_is_a_warning_where_quota_alone_decides(tmp_path: Path) -> None:
    jobs = "".join(
        f"""apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: ml-research, labels: {{kueue.x-k8s.io/queue-name: team-a}}}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: c, image: i, resources: {{requests: {{{GPU}: {gpus}}}, limits: {{{GPU}: {gpus}}}}}}}]
---
"""
        for name, gpus in (("nine", 9), ("eight", 8))
    )
    (file := tmp_path / "jobs.yaml").write_text(jobs)
    words = ("--fleet", EXAMPLES / "fleets/h100-8.yaml", EXAMPLES / "queues/team-quotas.yaml", file)
    found = call(*words)
    (line,) = (line for line in found.stderr.splitlines() if "jobs.yaml" in line)
    assert "Job nine: in a cluster it would hold its quota and never run" in line
    assert line.endswith("it asks for 9 nvidia.com/gpu, and the largest node has 8")
    assert list(json.loads(call(*words, "-o", "json").stdout)["tooLarge"]) == ["ml-research/nine"]


def test_what_waits_in_a_stopped_queue_starts_not_before_it_is_resumed(tmp_path: Path) -> None:
    text = (FOLDER / "four-and-five.yaml").read_text()
    assert "namespaceSelector: {}" in text
    (file := tmp_path / "all.yaml").write_text(
        text.replace("namespaceSelector: {}", "namespaceSelector: {}\n  stopPolicy: Hold")
    )
    shown = call("--fleet", FOLDER / "fleet-8.yaml", file).stdout
    assert "not before the ClusterQueue is resumed" in shown
