"""Whatever evicts names first who would go, and asks: on a terminal, and not in a pipe."""

import asyncio
import io
from types import SimpleNamespace

import click
import pytest
from rich.console import Console

from cli import evictions
from cli.printing.console import patience
from controller.cluster.watching.kinds import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
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


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What kubectl is called with."""
    called: list[list[str]] = []

    def call(words: list[str]) -> int:
        called.append(words[1:])
        return 0

    monkeypatch.setattr("subprocess.call", call)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    return called


CQ, LQ = "clusterqueues.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io"
OF_CQ = [
    ("team/runs, 1 pod, for ", ": it goes on, and the queue stays until it has ended"),
    ("team/waits, 1 pod", ": it waits, and is not admitted any more"),
    ("LocalQueue team/lq-cq", ": it leads nowhere then"),
]
OF_LQ = [("team/runs, 1 pod, for ", ": it goes on"), OF_CQ[1]]
DELETING = [
    ("delete cq cq", OF_CQ, [CQ, "cq"]),
    ("delete cq cq other", [*OF_CQ, ("LocalQueue team/lq-other", "")], [CQ, "cq", "other"]),
    ("delete lq lq-cq", OF_LQ, [LQ, "lq-cq"]),
    ("delete lq -n team --all", OF_LQ, [LQ, "-n", "team", "--all"]),
    ("delete rf default", [("ClusterQueue cq: it uses", ""), ("ClusterQueue other: it uses", "")], None),
    ("delete cq -f q.yaml", [("what q.yaml names, which is not looked at", "")], [CQ, "-f", "q.yaml"]),
]


@pytest.mark.parametrize(("words", "lines", "passed"), DELETING)
async def test_who_would_be_affected_by_a_deletion_is_named_and_only_a_yes_hands_it_to_kubectl(
    team: Shell, handed: list[list[str]], words: str, lines: list[tuple[str, str]], passed: list[str] | None
) -> None:
    refused = (await team.run(*words.split(), code=1, answer="n\n")).stderr.splitlines()
    assert refused[0] == f"{len(lines)} object{'s' if len(lines) > 1 else ''} would be affected:"
    for line, (first, last) in zip(refused[1:], lines, strict=False):
        assert line.startswith(f"  {first}"), line
        assert line.endswith(last), line
    assert refused[-2].startswith("Delete? [y/N]")
    assert handed == []
    await team.run(*words.split(), answer="y\n")
    await team.run(*words.split(), "--yes")
    expected = ["delete", *(passed or ["resourceflavors.kueue.x-k8s.io", "default"])]
    assert handed == [expected, expected]


@pytest.mark.parametrize("words", ["delete cq none", "delete lq lq-other", "delete cq cq --dry-run=server"])
async def test_a_deletion_that_concerns_nobody_is_not_asked_about(
    team: Shell, handed: list[list[str]], words: str
) -> None:
    assert "affected" not in (await team.run(*words.split())).stderr
    assert len(handed) == 1


async def test_in_a_pipe_a_deletion_is_not_asked_about(
    team: Shell, handed: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evictions, "on_terminal", lambda: False)
    await team.run("delete", "cq", "cq")
    assert handed == [["delete", CQ, "cq"]]


async def test_a_deletion_whose_users_may_not_be_read_is_asked_about(team: Shell, handed: list[list[str]]) -> None:
    team.door.forbidden = "workloads"
    refused = await team.run("delete", "cq", "cq", code=1, answer="n")
    assert "those that run, which are not known: " in refused.stderr
    assert handed == []


@pytest.mark.parametrize(
    ("kind", "name", "patch", "asked"),
    [
        ("cq", "cq", '{"spec": {"stopPolicy": "HoldAndDrain"}}', True),
        ("lq", "lq-cq", "spec: {stopPolicy: HoldAndDrain}", True),
        ("wl", "runs", '{"spec": {"active": false}}', True),
        ("wl", "waits", '{"spec": {"active": false}}', False),
        ("cq", "cq", '{"spec": {"stopPolicy": "Hold"}}', False),
        ("cq", "other", '{"spec": {"stopPolicy": "HoldAndDrain"}}', False),
    ],
)
async def test_a_patch_that_evicts_is_asked_about(
    team: Shell, handed: list[list[str]], kind: str, name: str, patch: str, asked: bool
) -> None:
    words = ("patch", kind, name, "-p", patch, "--type", "merge")
    refused = await team.run(*words, code=1 if asked else 0, answer="n")
    assert ("team/runs, 1 pod" in refused.stderr) is asked
    assert len(handed) == (not asked)
    await team.run(*words, "-y")
    assert handed[-1][2:] == list(words[2:])


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


@pytest.mark.parametrize("quiet_s", [0.0, 1e-6])
async def test_the_time_of_who_is_asked_is_not_told_as_the_api_servers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quiet_s: float
) -> None:
    """The clock that is told by goes on while a person thinks, and at no other time."""
    now_s = [100.0]

    def thought(_question: str, **_: bool) -> bool:
        now_s[0] += 6.0
        return True

    monkeypatch.setattr("cli.printing.console.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr("click.confirm", thought)
    async with patience(lambda: "waiting", quiet_s=quiet_s):
        evictions.confirm(["one"])
        for _ in range(50):
            await asyncio.sleep(0)
    told = capsys.readouterr().err.splitlines()[2:]
    assert told == (["waiting, 0 s"] if quiet_s == 0.0 else [])


async def test_workloads_are_deleted_after_a_yes_and_in_a_pipe_without_a_question(
    team: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = (await team.run("delete", "wl", "runs", code=1, answer="n\n")).stderr.splitlines()
    assert refused[:2] == ["1 object would be deleted:", "  workload.kueue.x-k8s.io/runs in team"]
    assert refused[2].startswith("Delete? [y/N]")
    monkeypatch.setattr(evictions, "on_terminal", lambda: False)
    told = await team.run("delete", "wl", "runs")
    assert (told.stdout, told.stderr) == ("workload.kueue.x-k8s.io/runs in team deleted\n", "")
    assert [each["metadata"]["name"] for each in team.scene.server.list_all(WORKLOADS)] == ["waits"]


@pytest.mark.parametrize(("terminals", "asked"), [((1, 1), True), ((0, 1), False), ((1, 0), False)])
def test_a_standard_input_that_is_no_terminal_is_a_pipe(
    monkeypatch: pytest.MonkeyPatch, terminals: tuple[int, int], asked: bool
) -> None:
    for name, terminal in zip(("stdin", "stdout"), terminals, strict=True):
        monkeypatch.setattr(f"sys.{name}", SimpleNamespace(isatty=lambda said=terminal: bool(said)))
    assert evictions.asks(yes=False) is asked


def test_of_many_the_first_are_named_and_no_name_forges_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(click.Abort):
        evictions.confirm(["a\nEvict", *map(str, range(30))], what="pod")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["31 pods would be evicted:", "  a\\nEvict"]
    assert lines[21] == "  and 11 more"


def test_who_would_go_is_folded_on_a_terminal_of_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    monkeypatch.setattr(evictions, "console", lambda: Console(width=80))
    said = "it goes on, and the queue stays until it has ended"
    line = f"research/job-evaluation-665e1 (Job evaluation), 2 pods, for 2h05m: {said}"
    evictions.confirm([line], "tessera queue stop research lets them run, and admits nothing more from then on")
    shown = capsys.readouterr().err
    assert " ".join(shown.split()).count(said) == 1
    assert max(map(len, shown.splitlines())) <= 80
