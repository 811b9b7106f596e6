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
