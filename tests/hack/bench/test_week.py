"""The week that is simulated with and without what saves GPUs and money."""

from pathlib import Path

import pytest

from hack.bench.decisions import week
from hack.bench.decisions.week import BEGIN, END, PAGE, VARIANTS, Variant, figures, result, table, work

PLAIN, PRICED = VARIANTS[0], Variant("prices", prices=True)
_HOUR_S = 3600


def asked_gpu_hours(days: int) -> float:
    """What the jobs would hold if nobody were ever stopped."""
    found = 0.0
    for each in work(days):
        runs_s = float(each["metadata"]["annotations"]["tessera.dev/runtime"].removesuffix("s"))
        gpus = each["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        found += each["spec"]["parallelism"] * gpus * runs_s / _HOUR_S
    return found


def test_the_page_has_a_row_for_each_variant() -> None:
    lines = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]] == [each.name for each in VARIANTS]


def test_what_is_used_is_what_was_asked_and_what_was_lost() -> None:
    for variant in (PLAIN, Variant("spot", spot=True)):
        got = figures(result(variant, 1), 1)
        asked = asked_gpu_hours(1)
        assert asked <= got.gpu_hours + 0.01
        assert got.gpu_hours - asked >= got.lost_gpu_hours - 0.01, "the rest are restarts"
        assert got.node_hours * 8 >= got.gpu_hours


def test_the_same_table_is_made_twice_and_written_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(week, "PAGE", tmp_path / "week.md")
    monkeypatch.setattr(week, "table", lambda days: table(days, [PRICED]))
    (tmp_path / "week.md").write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    week.main(["--days", "1", "--write"])
    written = (tmp_path / "week.md").read_text()
    week.main(["--days", "1", "--write"])
    assert (tmp_path / "week.md").read_text() == written
    assert written.startswith(f"before\n\n{BEGIN}\n| with |")
    assert written.endswith(f"|\n{END}\n\nafter\n")
    assert "old" not in written
