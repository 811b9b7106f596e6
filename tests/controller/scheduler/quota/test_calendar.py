"""Windows of calendars: which quota holds when, and what is refused."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.decode import decode
from controller.objects.queues import ClusterQueue
from controller.scheduler.quota.calendar import Calendar, calendar_of, in_force, next_change_s, overlaid

NIGHTS = '[{from: "0 20 * * *", for: 10h, nominal: {a100: {nvidia.com/gpu: 8}}}]'


def queue(calendar: str, cohort: str = "", **quota: Any) -> ClusterQueue:
    resources = [{"name": "nvidia.com/gpu", "nominalQuota": "2", **quota}]
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "a100", "resources": resources}]}]
    metadata = {"name": "cq", "annotations": {"tessera.dev/quota-calendar": calendar}}
    return decode({"metadata": metadata, "spec": {"resourceGroups": groups, "cohortName": cohort}}, ClusterQueue)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def nominal(owner: ClusterQueue, now_s: float) -> str:
    quota = overlaid(owner, calendar_of(owner).entries, now_s).spec.resource_groups[0].flavors[0].resources[0]
    return str(quota.nominal_quota)


@pytest.mark.parametrize(
    ("now", "quota"),
    [
        ("2026-01-05T19:59:59Z", "2"),
        ("2026-01-05T20:00:00Z", "8"),
        ("2026-01-06T05:59:59.5Z", "8"),
        ("2026-01-06T06:00:00Z", "2"),
    ],
)
def test_a_window_holds_from_its_begin_to_its_end(now: str, quota: str) -> None:
    assert nominal(queue(NIGHTS), at(now)) == quota


def test_the_next_change_is_the_end_of_a_window_or_the_begin_of_the_next() -> None:
    entries = calendar_of(queue(NIGHTS)).entries
    assert next_change_s(entries, at("2026-01-05T18:00:00Z")) == at("2026-01-05T20:00:00Z")
    assert next_change_s(entries, at("2026-01-05T20:00:00Z")) == at("2026-01-06T06:00:00Z")
    assert next_change_s((), 0.0) is None


def test_a_window_follows_the_clocks_of_its_zone() -> None:
    berlin = queue('[{from: "0 20 * * *", for: 1h, zone: Europe/Berlin, nominal: {a100: {nvidia.com/gpu: 8}}}]')
    assert nominal(berlin, at("2026-01-05T19:30:00Z")) == "8"
    assert nominal(berlin, at("2026-07-05T18:30:00Z")) == "8"
    assert nominal(berlin, at("2026-07-05T19:30:00Z")) == "2"


def test_a_begin_that_the_change_of_clocks_leaves_out_is_not_lost() -> None:
    spring = queue('[{from: "30 2 * * *", for: 1h, zone: Europe/Berlin, nominal: {a100: {nvidia.com/gpu: 8}}}]')
    day = at("2026-03-29T00:00:00Z")
    assert any(nominal(spring, day + minute * 60) == "8" for minute in range(240))


def test_of_two_open_windows_the_later_entry_counts_for_what_it_names() -> None:
    both = queue(
        '[{from: "0 20 * * *", for: 10h, nominal: {a100: {nvidia.com/gpu: 8}}},'
        ' {from: "0 22 * * sat", for: 2h, nominal: {a100: {nvidia.com/gpu: 0}}},'
        ' {from: "0 0 * * *", for: 24h, borrowing: {a100: {nvidia.com/gpu: 1}}}]',
        cohort="pool",
    )
    saturday = overlaid(both, calendar_of(both).entries, at("2026-01-10T22:30:00Z"))
    quota = saturday.spec.resource_groups[0].flavors[0].resources[0]
    assert (str(quota.nominal_quota), str(quota.borrowing_limit), quota.lending_limit) == ("0", "1", None)


def test_json_is_read_too_and_no_annotation_is_no_calendar() -> None:
    text = '[{"from":"0 20 * * *","for":"10h","nominal":{"a100":{"nvidia.com/gpu":"8"}}}]'
    assert calendar_of(queue(text)).entries == calendar_of(queue(NIGHTS)).entries
    assert calendar_of(decode({"metadata": {"name": "cq"}}, ClusterQueue)) == Calendar()


GOOD = {"from": '"0 20 * * *"', "for": "10h", "nominal": "{a100: {nvidia.com/gpu: 8}}"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"from": '"0 25 * * *"'}, 'from: found "0 25 * * *", expected a cron line'),
        ({"from": "5"}, "from: found 5, expected a cron line"),
        ({"from": '"0 0 30 feb *"'}, "from: found"),
        ({"for": "0s"}, 'for: found "0s", expected a duration'),
        ({"for": "36"}, "for: found 36, expected a duration"),
        ({"for": "10000h"}, "for: found"),
        ({"zone": "Mars/Base"}, 'zone: found "Mars/Base", expected a time zone'),
        ({"zone": "../../etc/passwd"}, "zone: found"),
        ({"zone": "[1]"}, "zone: found"),
        ({"nominal": "{h100: {nvidia.com/gpu: 8}}"}, 'nominal: found "h100/nvidia.com/gpu", expected a100/'),
        ({"nominal": "{a100: {cpu: 8}}"}, 'nominal: found "a100/cpu", expected a100/nvidia.com/gpu'),
        ({"nominal": "{a100: {nvidia.com/gpu: -1}}"}, "nominal: a100/nvidia.com/gpu: found -1, expected a quantity"),
        ({"nominal": "{a100: {nvidia.com/gpu: true}}"}, "expected a quantity from 0"),
        ({"nominal": "[8]"}, "nominal: found [8], expected {FLAVOR"),
        ({"nominal": "{}"}, "expected nominal, borrowing or lending"),
        ({"until": "5"}, 'found the field "until", expected from, for'),
        ({"lending": "{a100: {nvidia.com/gpu: 1}}"}, "expected neither without a cohort"),
        (
            {"nominal": "{a100: {nvidia.com/gpu: 0.5}}"},
            "nominal: a100/nvidia.com/gpu: found 0.5, expected a whole number",
        ),
        ({"zone": 'UTC, from: "0 21 * * *"'}, 'found the field "from" a second time, expected it once'),
        (
            {"nominal": "{a100: {nvidia.com/gpu: 1, nvidia.com/gpu: 8}}"},
            'found the field "nvidia.com/gpu" a second time',
        ),
    ],
)
def test_a_wrong_entry_is_quoted_and_the_others_hold(changed: dict[str, str], said: str) -> None:
    wrong = ", ".join(f"{key}: {value}" for key, value in {**GOOD, **changed}.items())
    found = calendar_of(queue(f"[{{{wrong}}}, {NIGHTS[1:]}"))
    (problem,) = found.problems
    assert problem.startswith("tessera.dev/quota-calendar: entry 1, {")
    assert said in problem
    assert "\n" not in problem
    assert [entry.number for entry in found.entries] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "a: b",
        "- &a [*a",
        "7",
        "[" * 5000,
        "x" * 20_000,
        "[1, 2]",
        "[{? [1] : 2}]",
        "- !!python/object:os.x {}",
        "\x00",
    ],
)
def test_what_is_no_calendar_is_told_in_one_line(text: str) -> None:
    found = calendar_of(queue(text))
    assert found.entries == ()
    assert found.problems
    assert all("\n" not in problem and len(problem) < 1_000 for problem in found.problems)


@given(
    st.sampled_from(["0 20 * * *", "*/7 * * * *", "0 0 1 * *", "30 2 * * sun", "0 12 29 2 *"]),
    st.integers(1, 3000),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia"]),
    st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_nothing_changes_before_the_next_change(line: str, minutes: int, zone: str, now: datetime) -> None:
    text = f'[{{from: "{line}", for: {minutes}m, zone: {zone}, nominal: {{a100: {{nvidia.com/gpu: 8}}}}}}]'
    entries, now_s = calendar_of(queue(text)).entries, now.timestamp()
    change_s = next_change_s(entries, now_s)
    assert change_s is not None
    assert change_s > now_s
    is_open = bool(in_force(entries, now_s))
    for part in (0.25, 0.5, 0.999):
        assert bool(in_force(entries, now_s + part * (change_s - now_s))) == is_open


def test_an_open_window_ends_as_long_after_its_begin_as_it_says() -> None:
    ((_, end_s),) = in_force(calendar_of(queue(NIGHTS)).entries, at("2026-01-05T23:00:00Z"))
    assert datetime.fromtimestamp(end_s, UTC) == datetime(2026, 1, 6, 6, tzinfo=UTC)
    assert end_s - at("2026-01-05T20:00:00Z") == timedelta(hours=10).total_seconds()


ALIASES: Final = "\n".join(["- &a0 [x]", *(f"- &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 30))])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ALIASES, "an alias"),
        ("[" * 16_384, "more than 16 levels"),
        ("- " * 8_000, "more than 16 levels"),
    ],
    ids=["aliases of aliases", "brackets", "lists"],
)
def test_a_text_that_stands_for_more_than_it_says_is_refused_before_it_is_read(text: str, said: str) -> None:
    found = calendar_of(queue(text))
    assert found.entries == ()
    (problem,) = found.problems
    assert f"found {said} in line" in problem


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ("lending: {a100: {nvidia.com/gpu: 2}}", ""),
        ("lending: {a100: {nvidia.com/gpu: 8}}", 'found "8", expected at most its nominal quota, 2'),
        ("lending: {a100: {nvidia.com/gpu: 8}}, nominal: {a100: {nvidia.com/gpu: 8}}", ""),
        ("lending: {a100: {nvidia.com/gpu: 2}}, nominal: {a100: {nvidia.com/gpu: 1}}", 'found "2", expected at most'),
    ],
)
def test_a_window_lends_at_most_its_nominal_quota_as_a_spec_does(limits: str, problem: str) -> None:
    found = calendar_of(queue(f'[{{from: "0 20 * * *", for: 10h, {limits}}}]', cohort="all"))
    assert len(found.entries) == (not problem)
    assert all(problem in said for said in found.problems)


def test_a_part_of_a_cpu_is_a_quota_and_a_share_of_the_fleet_is_not_compared() -> None:
    parts = decode(
        {
            "metadata": {
                "name": "cq",
                "annotations": {
                    "tessera.dev/quota-calendar": '[{from: "0 20 * * *", for: 10h, lending: {a100: {cpu: 500m}}}]',
                    "tessera.dev/quota-shares": "{a100: {cpu: 50%}}",
                },
            },
            "spec": {
                "cohortName": "all",
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [{"name": "a100", "resources": [{"name": "cpu", "nominalQuota": "0"}]}],
                    }
                ],
            },
        },
        ClusterQueue,
    )
    assert not calendar_of(parts).problems
