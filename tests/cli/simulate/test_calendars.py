"""``tessera simulate`` with quota calendars: the example, the wall time at which it begins, and what is refused."""

import json
from pathlib import Path

import click.testing
import pytest

from cli.main import tessera

EXAMPLE = Path(__file__).parents[3] / "examples" / "queues" / "quota-calendar.yaml"


def call(*words: str | Path) -> click.testing.Result:
    return click.testing.CliRunner().invoke(tessera, ["simulate", *map(str, words)])


@pytest.mark.parametrize(
    ("start", "admitted"),
    [
        ("2026-01-05T18:00:00Z", "2026-01-05T19:00:00Z"),  # a Monday in winter
        ("2026-07-06T17:00:00Z", "2026-07-06T18:00:00Z"),  # in summer the clocks of Berlin are two hours ahead
        ("2026-01-10T12:00:00Z", "2026-01-10T12:00:00Z"),  # the window of the weekend is open
        ("2026-01-12T05:00:00Z", "2026-01-12T19:00:00Z"),  # the weekend's window ended at 5:00 UTC
    ],
)
def test_a_large_job_starts_when_a_window_begins(start: str, admitted: str) -> None:
    result = call("--start", start, "-o", "json", EXAMPLE)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [entry["time"] for entry in found["timeline"] if entry["event"] == "Admitted"] == [admitted]
    assert found["final"]["pending"] == []


@pytest.mark.parametrize("start", ["9999-12-30T18:00:00Z", "9000-01-01T00:00:00Z", "0001-01-01T00:00:00Z"])
def test_a_start_near_an_end_of_the_calendar_is_refused_in_one_line(start: str) -> None:
    result = call("--start", start, EXAMPLE)
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].endswith(f'found "{start}", expected a time of the years 1971 to 8999')


def test_a_run_in_the_last_year_in_which_one_may_start_comes_to_its_end() -> None:
    result = call("--start", "8999-12-30T18:00:00Z", "-o", "json", EXAMPLE)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["final"]["pending"] == []


def test_a_run_ends_though_windows_begin_for_ever(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_text(EXAMPLE.read_text().replace("limits: {nvidia.com/gpu: 8}", "limits: {nvidia.com/gpu: 9}"))
    result = call("--start", "2026-01-05T18:00:00Z", "-o", "json", large)
    assert result.exit_code == 0, result.output
    (waits,) = json.loads(result.stdout)["final"]["pending"]
    assert waits["reason"] == "ExceedsMaxQuota"


def test_a_run_that_is_cut_off_by_day_forecasts_the_evening() -> None:
    result = call("--start", "2026-01-05T18:00:00Z", "--until", "30m", "-o", "json", EXAMPLE)
    (waits,) = json.loads(result.stdout)["final"]["pending"]
    assert waits["forecast"]["likelySeconds"] == 1800


@pytest.mark.parametrize(
    ("was", "written", "told"),
    [
        ('"0 20 * * mon-thu"', '"0 25 * * mon-thu"', 'entry 1, {"from":"0 25 * * mon-thu"'),
        ("for: 58h", "for: soon", 'for: found "soon", expected a duration'),
        ("nominal: {any-gpu: ", "nominal: {h100: ", 'found "h100/nvidia.com/gpu", expected any-gpu/nvidia.com/gpu'),
    ],
)
def test_a_wrong_entry_is_refused_with_file_line_and_entry(was: str, written: str, told: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    text = EXAMPLE.read_text()
    assert was in text
    wrong.write_text(text.replace(was, written))
    result = call(wrong)
    assert result.exit_code == 2
    assert (
        f"{wrong}:13: ClusterQueue by-night: metadata.annotations[tessera.dev/quota-calendar]: entry" in result.output
    )
    assert told in result.output


def events(folder: Path, calendar: str, jobs: dict[str, tuple[str, str]], *words: str | Path) -> list[str]:
    """The timeline of jobs of one GPU, by name with arrival and run time, in a queue of 4 GPUs with this calendar."""
    queues, _, job = EXAMPLE.read_text().rpartition("---\n")
    queues = queues.replace("nominalQuota: 2", "nominalQuota: 4")
    head, _, rest = queues.partition("    tessera.dev/quota-calendar: |\n")
    spec = rest.partition("spec:\n")[2]
    text = f"{head}    tessera.dev/quota-calendar: '{calendar}'\nspec:\n{spec}"
    for name, (arrival, runtime) in jobs.items():
        one = job.replace("big-sweep", name).replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 1")
        text += "---\n" + one.replace("runtime: 1h", f'runtime: {runtime}, tessera.dev/arrival: "{arrival}"')
    path = folder / "timed.yaml"
    path.write_text(text)
    result = call("--start", "2026-01-05T18:00:00Z", "-o", "json", path, *words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["timeline"]
    return [f"{entry['t']:g} {entry['event']} {entry['workload'].rpartition('/')[2]}" for entry in found]


def test_what_falls_on_the_second_of_a_change_is_not_lost_while_nothing_waits(tmp_path: Path) -> None:
    calendar = '[{"from":"0 20 * * *","for":"1h","nominal":{"any-gpu":{"nvidia.com/gpu":8}}}]'
    jobs = {"ends": ("0s", "2h"), "comes": ("2h", "1h"), "late": ("5h", "1h")}
    assert events(tmp_path, calendar, jobs) == [
        "0 Admitted ends",
        "7200 Finished ends",
        "7200 Admitted comes",
        "10800 Finished comes",
        "18000 Admitted late",
        "21600 Finished late",
    ]


def test_a_rare_window_is_reached_past_many_that_change_nothing(tmp_path: Path) -> None:
    often = '{"from":"*/2 * * * *","for":"1m","nominal":{"any-gpu":{"nvidia.com/gpu":0}}}'
    noon = '{"from":"0 12 * * *","for":"1h","nominal":{"any-gpu":{"nvidia.com/gpu":4}}}'
    always = '{"from":"* * * * *","for":"2m","nominal":{"any-gpu":{"nvidia.com/gpu":0}}}'
    assert events(tmp_path, f"[{always},{often},{noon}]", {"waits": ("0s", "1h")}) == [
        "0 Pending waits",
        "64800 Admitted waits",
        "68400 Finished waits",
    ]
