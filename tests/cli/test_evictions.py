"""Whatever evicts names first who would go, and asks: on a terminal, and not in a pipe."""

import io

import click
import pytest

from cli import evictions
from controller.watching.kinds import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from tests.support.cli.shell import Shell


@pytest.fixture
async def team(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """On a terminal; in ``cq``, ``runs`` is admitted by ``lq-cq`` and ``waits`` is not."""
    monkeypatch.setattr(evictions, "on_terminal", lambda: True)
    shell.scene.queue()
    shell.scene.queue("other")
    for name in ("runs", "waits"):
        shell.scene.workload(name, 1)
    at = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": at}
        for type_ in ("QuotaReserved", "Admitted")
    ]
    status = {"admission": {"clusterQueue": "cq"}, "conditions": conditions}
    shell.scene.server.merge(WORKLOADS, "runs", {"status": status}, namespace="team")
    return shell


def stopped(shell: Shell) -> tuple[str, str, bool]:
    server = shell.scene.server
    queues = (server.get(CLUSTER_QUEUES, "cq"), server.get(LOCAL_QUEUES, "lq-cq", namespace="team"))
    policies = [each["spec"].get("stopPolicy", "None") for each in queues]
    return policies[0], policies[1], server.get(WORKLOADS, "runs", namespace="team")["spec"].get("active", True)


NOTHING = ("None", "None", True)
EVICTING = [
    ("stop cq cq", ("HoldAndDrain", "None", True)),
    ("queue stop cq --drain", ("HoldAndDrain", "None", True)),
    ("stop lq lq-cq", ("None", "HoldAndDrain", True)),
    ("queue stop team/lq-cq --drain", ("None", "HoldAndDrain", True)),
    ("stop workload runs", ("None", "None", False)),
    ("workload stop runs", ("None", "None", False)),
]


@pytest.mark.parametrize(("words", "after"), EVICTING)
async def test_who_would_go_is_named_and_only_a_yes_lets_it_happen(
    team: Shell, words: str, after: tuple[str, str, bool]
) -> None:
    refused = await team.run(*words.split(), code=1, answer="n\n")
    assert refused.stderr.splitlines()[:2][0] == "1 workload would be evicted:"
    assert refused.stderr.splitlines()[1].startswith("  team/runs, 1 pod, for ")
    assert "team/waits" not in refused.stderr
    assert stopped(team) == NOTHING
    await team.run(*words.split(), "--yes")
    assert stopped(team) == after


@pytest.mark.parametrize(("words", "after"), EVICTING)
async def test_in_a_pipe_nothing_is_asked(
    team: Shell, words: str, after: tuple[str, str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evictions, "on_terminal", lambda: False)
    assert "evicted:" not in (await team.run(*words.split())).stderr
    assert stopped(team) == after


@pytest.mark.parametrize(
    "words", ["stop cq other", "stop cq cq --keep-already-running", "queue stop cq", "stop workload waits"]
)
async def test_what_evicts_nobody_is_not_asked(team: Shell, words: str) -> None:
    assert "evicted:" not in (await team.run(*words.split())).stderr


async def test_a_dry_run_is_not_asked_about(team: Shell) -> None:
    assert "Evict?" not in (await team.run("stop", "cq", "cq", "--dry-run", "server")).stderr
    assert stopped(team) == NOTHING


async def test_each_of_the_two_ways_to_stop_a_queue_names_the_other(team: Shell) -> None:
    assert "tessera queue stop cq evicts nobody." in (await team.run("stop", "cq", "cq", code=1, answer="n")).stderr
    told = (await team.run("queue", "stop", "cq")).stderr
    assert told == "note: what runs goes on; tessera stop cq cq evicts it, too\n"
    told = (await team.run("queue", "stop", "team/lq-cq")).stderr
    assert told == "note: what runs goes on; tessera stop lq lq-cq -n team evicts it, too\n"
    for words, other in (
        ("stop", "tessera queue stop"),
        ("stop clusterqueue", "tessera queue stop"),
        ("stop localqueue", "tessera queue stop"),
        ("queue stop", "tessera stop cq"),
    ):
        assert other in (await team.run(*words.split(), "--help")).stdout


async def test_where_workloads_may_not_be_read_it_says_so_and_asks(team: Shell) -> None:
    team.door.forbidden = "workloads"
    refused = await team.run("stop", "cq", "cq", code=1, answer="n")
    assert "those that run, which are not known: " in refused.stderr
    assert stopped(team) == NOTHING


def test_of_many_the_first_are_named_and_no_name_forges_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(click.Abort):
        evictions.confirm(["a\nEvict", *map(str, range(30))], what="pod")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["31 pods would be evicted:", "  a\\nEvict"]
    assert lines[21] == "  and 11 more"
