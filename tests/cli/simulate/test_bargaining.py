"""``tessera simulate`` with CapacityRequests: the examples say what their pages say, and what is wrong is told."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from cli.main import tessera
from tests.support.controller.manifests import Json, capacity_request, cluster_queue, flavor, inside, job, local_queue

ROOT = Path(__file__).parents[3]
AGENTS = ROOT / "examples" / "bargaining" / "two-agents.yaml"


def simulated(*arguments: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(tessera, ["simulate", *map(str, arguments)])
    return found.exit_code, found.stdout, found.stderr


def written(folder: Path, *objects: Json) -> Path:
    path = folder / "f.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return path


def test_two_agents_share_a_nights_gpus() -> None:
    code, out, _ = simulated("--start", "2026-01-05T22:00:00Z", "-o", "json", AGENTS)
    assert code == 0
    found = json.loads(out)
    events = [(each["t"], each["event"], each["workload"].partition("/")[2]) for each in found["timeline"]]
    assert (60, "Granted", "first-agent") in events
    assert (120, "Admitted", "first-burst") in events
    assert (10800, "Granted", "second-agent") in events
    assert found["final"]["capacityRequests"]["default/second-agent"]["units"] == 4


def test_the_page_shows_what_the_example_prints() -> None:
    _, out, _ = simulated("--start", "2026-01-05T22:00:00Z", AGENTS)
    page = (ROOT / "docs" / "bargaining.md").read_text()
    shown = page.partition("Timeline\n")[2].partition("...\n")[0].splitlines()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert len(shown) == 5
    for line in shown:
        assert " ".join(line.split()) in lines


def test_requests_need_no_job_beside_them(tmp_path: Path) -> None:
    file = written(tmp_path, flavor(), cluster_queue(), local_queue(), capacity_request("ask", 2, 4))
    code, out, _ = simulated("--until", "1m", file)
    assert code == 0
    assert "ns/ask" in out.partition("Capacity requests")[2]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"min": "4"}, 'spec.min: found "4" (a string), expected 4'),
        ({"max": 1, "min": 2}, "spec.max: found 1, expected at least min, 2"),
        ({"unit": {}}, "spec.unit: found nothing, expected what one unit requests"),
        ({"unit": {"nvidia.com/gpu": "0.5"}}, "spec.unit[nvidia.com/gpu]: found 500m, expected a whole number"),
        ({"duration": "soon"}, 'spec.duration: found "soon", expected a duration'),
        ({"priorityClassName": "none"}, 'spec.priorityClassName: found "none", expected a WorkloadPriorityClass'),
        ({"units": 4}, "spec.units: found an unknown field, expected unit"),
        ({"notBefore": "2h", "notAfter": "1h"}, 'spec.notAfter: found "1h", expected a time after notBefore, 2h'),
    ],
)
def test_what_is_wrong_with_a_request_is_told_with_its_line(tmp_path: Path, spec: Json, said: str) -> None:
    asked = capacity_request("ask", 1)
    asked["spec"] |= spec
    file = written(tmp_path, flavor(), cluster_queue(), local_queue(), asked)
    code, _, err = simulated(file)
    assert code == 2
    assert f"CapacityRequest ask: {said}" in err
    number = err.partition("f.yaml:")[2].partition(":")[0]
    assert number.isdecimal()


def test_a_name_that_pods_cannot_have_in_a_label_is_told_with_its_line(tmp_path: Path) -> None:
    for length, code in ((63, 0), (64, 2)):
        file = written(tmp_path, flavor(), cluster_queue(), local_queue(), capacity_request("n" * length, 1))
        found, _, err = simulated("--until", "1m", file)
        assert found == code
        told = f"metadata.name: found {length} characters, expected at most 63 characters: its pods name it in a label"
        assert (told in err) == (code == 2)


def test_who_waits_for_requests_is_told_of_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_QUIET_S", "_EVERY_S"):
        monkeypatch.setattr(f"cli.simulate.command.{name}", -1.0)
    objects = flavor(), cluster_queue(), local_queue(), capacity_request("ask", 1, useWithin="1m")
    for jobs, said in (((), "0 of 1 request has ended"), ((job("one"),), "0 of 2 jobs and requests have ended")):
        assert f"at 0 s: {said}" in simulated(written(tmp_path, *objects, *jobs))[2]


def test_two_requests_of_one_name_are_an_error_as_two_jobs_are(tmp_path: Path) -> None:
    asks = capacity_request("ask", 1), capacity_request("ask", 8)
    file = written(tmp_path, flavor(), cluster_queue(), local_queue(), *asks)
    code, _, err = simulated(file)
    assert code == 2
    lines = [number for number, line in enumerate(file.read_text().splitlines(), 1) if line == "  name: ask"]
    assert f"f.yaml:{lines[1]}: CapacityRequest ask: metadata.name: found the name ns/ask, expected another: " in err
    assert "CapacityRequest in " in err


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("notBefore", "a duration such as 2h, or --start beside it"),
        ("notAfter", "a duration such as 2h, or --start beside it"),
        ("renew", "no time without --start"),
    ],
)
def test_a_time_of_the_calendar_needs_a_start(tmp_path: Path, field: str, expected: str) -> None:
    asked = capacity_request("ask", 1, duration="1h")
    asked["spec"][field] = "2026-01-05T23:00:00Z"
    file = written(tmp_path, flavor(), cluster_queue(), local_queue(), asked)
    code, _, err = simulated("--until", "1m", file)
    assert code == 2
    assert f'CapacityRequest ask: spec.{field}: found "2026-01-05T23:00:00Z", expected {expected}' in err
    assert err.partition("f.yaml:")[2].partition(":")[0].isdecimal()
    assert simulated("--until", "1m", "--start", "2026-01-05T22:00:00Z", file)[0] == 0


def test_a_job_that_names_no_request_of_the_files_is_a_warning(tmp_path: Path) -> None:
    objects = flavor(), cluster_queue(), local_queue(), capacity_request("ask", 1), inside("mine", "aks")
    code, _, err = simulated("--until", "1m", written(tmp_path, *objects))
    assert code == 0
    assert (
        'found "aks", expected a CapacityRequest of ns: ask. Create it, or correct the label. Did you mean ask?' in err
    )
