"""Clusters of the end-to-end tests are recorded while they live, and a finding is the scene's in which it began."""

import ast
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.cluster.watching.kinds import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES, PODS, WORKLOADS
from hack.agents import plain_kubeconfig
from hack.cluster.cluster import FOLLOWERS, Cluster
from history.record import ApiFact, Fact, Note, read
from kube.testing import FakeApiServer, eventually
from tests.support.e2e import judged
from tests.support.e2e.judged import MARK, Records, Scene, Scenes, Verdicts, allowed
from tests.support.e2e.recording import _CRDS, Recording
from tests.support.history import told as objects

E2E = Path(__file__).parents[1] / "e2e"
Json = dict[str, Any]


def facts(*lines: tuple[float, Json]) -> list[Fact]:
    return [ApiFact(t, "ADDED", body) for t, body in lines]


def unadmitted(name: str) -> list[Json]:
    """A pod that runs while its Workload waits."""
    job = objects.job(name)
    return [job, objects.workload(job), objects.pod(f"{name}-0", job)]


def marked(**given: Any) -> pytest.Mark:
    made: pytest.Mark = getattr(pytest.mark, MARK)(**given).mark
    return made


class Played:
    """A record that begins at 100 on the process' clock."""

    def __init__(self) -> None:
        self.scenes = Scenes(100.0)
        self.verdicts = Verdicts(100.0)

    def wrongs(self, *given: Fact) -> list[str]:
        return self.verdicts.wrongs(given, self.scenes)


def test_a_finding_is_told_once_and_names_the_scene_in_which_it_began() -> None:
    played = Played()
    played.scenes.begin(Scene("first", 101.0))
    played.scenes.begin(Scene("second", 110.0))
    assert played.wrongs(*facts(*((5.0, each) for each in unadmitted("j")))) == []
    (line,) = played.wrongs(Note(20.0, "SIGHT", "the time"))
    assert line.startswith("ran-without-admission at 5.0 s, in first: Pod team/j-0, Workload team/job-j: ")
    assert played.wrongs(Note(30.0, "SIGHT", "the time")) == []


def test_a_scene_allows_what_began_in_it_and_nothing_else() -> None:
    played = Played()
    played.scenes.begin(Scene("allows", 101.0, frozenset({"ran-without-admission"})))
    played.scenes.begin(Scene("does not", 110.0))
    played.wrongs(*facts(*((5.0, each) for each in unadmitted("j"))))
    played.wrongs(*facts(*((15.0, each) for each in unadmitted("k"))))
    (line,) = played.wrongs(Note(40.0, "SIGHT", "the time"))
    assert "in does not: Pod team/k-0" in line


def test_what_was_wrong_before_all_scenes_is_told_too() -> None:
    played = Played()
    played.scenes.begin(Scene("first", 150.0))
    played.wrongs(*facts(*((5.0, each) for each in unadmitted("j"))))
    (line,) = played.wrongs(Note(40.0, "SIGHT", "the time"))
    assert "in before all scenes" in line


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ({}, "allow: found None"),
        ({"allow": {"nonsense"}, "why": "x"}, "allow: found {'nonsense'}"),
        ({"allow": {"forgotten"}}, "why: found None"),
    ],
)
def test_a_mark_names_rules_and_a_reason(mark: Json, said: str) -> None:
    with pytest.raises(ValueError, match="mark history") as wrong:
        allowed([marked(**mark)])
    assert said in str(wrong.value)


def test_marks_of_test_and_module_add_up() -> None:
    marks = [marked(allow={rule}, why="x") for rule in ("forgotten", "half-gang")]
    assert allowed(marks) == {"forgotten", "half-gang"}


def test_every_mark_of_the_tier_is_one() -> None:
    """A mark is read where its test runs, which takes a cluster."""
    for file in E2E.rglob("test_*.py"):
        for call in [each for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.Call)]:
            if ast.unparse(call.func) == f"pytest.mark.{MARK}":
                kwargs = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
                assert not call.args
                allowed([marked(**kwargs)])


# -- the recording ---------------------------------------------------------------------------------------------------

SERVED = {"conditions": [{"type": "Established", "status": "True"}]}


def crd(server: FakeApiServer, plural: str) -> None:
    server.create(_CRDS, f"{plural}.kueue.x-k8s.io", {"metadata": {}, "status": SERVED})


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as found:
        yield found


@contextmanager
def running(server: FakeApiServer, folder: Path) -> Iterator[tuple[Cluster, Records]]:
    """A cluster of that server alone, followed as those are that come up."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(plain_kubeconfig(server.config.server))
    found: Any = SimpleNamespace(name="c", kubeconfig=kubeconfig, nodes=(), paths=SimpleNamespace(home=folder / "home"))
    cluster = cast("Cluster", found)
    with Records(folder, folder / "kept").following() as records:
        (follow,) = FOLLOWERS
        end = follow(cluster)
        try:
            yield cluster, records
        finally:
            end()


class Told:
    """What a recording has told so far."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.all: list[Fact] = []

    def has(self, type_: str, name: str) -> bool:
        self.all += self._recording.take()
        return any(
            (isinstance(each, ApiFact) and (each.type, each.object["metadata"]["name"]) == (type_, name))
            or (isinstance(each, Note) and (each.type, each.what) == (type_, name))
            for each in self.all
        )


def recording_of(cluster: Cluster) -> Recording:
    (found,) = judged._RECORDINGS[cluster.paths.home]
    return found


async def test_kinds_are_followed_as_their_definitions_come_and_go(server: FakeApiServer, tmp_path: Path) -> None:
    with running(server, tmp_path) as (cluster, _):
        told = Told(recording_of(cluster))
        server.create(PODS, "p", {"metadata": {}}, namespace="team")
        await eventually(lambda: told.has("ADDED", "p"))
        server.create(CLUSTER_QUEUES, "early", {"metadata": {}})
        crd(server, "clusterqueues")
        await eventually(lambda: told.has("ADDED", "early"))
        server.create(CLUSTER_QUEUES, "late", {"metadata": {}})
        await eventually(lambda: told.has("ADDED", "late"))
        server.delete(CLUSTER_QUEUES, "early")
        await eventually(lambda: told.has("DELETED", "early"))
        assert not [each for each in told.all if isinstance(each, Note) and each.type == "BLIND"]


async def test_while_the_server_is_away_it_is_blind(server: FakeApiServer, tmp_path: Path) -> None:
    with running(server, tmp_path) as (cluster, _):
        told = Told(recording_of(cluster))
        server.create(PODS, "p", {"metadata": {}}, namespace="team")
        await eventually(lambda: told.has("ADDED", "p"))
        server.cut()
        await eventually(lambda: told.has("BLIND", "pods"))
        server.down = False
        await eventually(lambda: told.has("SIGHT", "pods"))


async def test_what_a_configuration_promises_is_told_and_follows_the_namespaces(
    server: FakeApiServer, tmp_path: Path
) -> None:
    config = json.dumps(
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "integrations": {"frameworks": ["batch/job", "pod"]},
            "managedJobsNamespaceSelector": {"matchLabels": {"queues": "yes"}},
        }
    )
    with running(server, tmp_path) as (cluster, _):
        told = Told(recording_of(cluster))

        def settings() -> Any:
            told.has("", "")
            return [each.settings for each in told.all if isinstance(each, Note) and each.settings][-1]

        await eventually(lambda: bool(told.has("", "") or told.all))
        assert settings().queues_pods is False
        judged.promise(cluster, config)
        await eventually(lambda: settings().queues_pods is True)
        server.create(NAMESPACES, "bare", {"metadata": {"labels": {"kubernetes.io/metadata.name": "bare"}}})
        await eventually(lambda: "bare" in settings().unmanaged)


async def test_what_is_wrong_fails_the_scenes_and_keeps_the_record(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(server, tmp_path) as (cluster, records):
        told = recording_of(cluster)
        for plural in ("clusterqueues", "localqueues", "workloads"):
            crd(server, plural)
        records.begin("a scene", ())
        job = objects.job("j")
        server.create(CLUSTER_QUEUES, "cq", objects.cluster_queue())
        server.create(LOCAL_QUEUES, "lq", objects.local_queue(), namespace="team")
        server.create(WORKLOADS, "job-j", objects.workload(job), namespace="team")
        server.create(PODS, "j-0", objects.pod("j-0", job), namespace="team")
        await eventually(lambda: all(each in _known(told) for each in ("cq", "lq", "job-j", "j-0")))
        records.check()
        monkeypatch.setattr("tests.support.e2e.recording.now_s", lambda: told.began_s + 60)
        with pytest.raises(AssertionError, match=r"ran-without-admission at .* in a scene: Pod team/j-0"):
            records.check()
    records.check()
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.suffix == ".gz"


def _known(recording: Recording) -> set[str]:
    every = recording._recorder._known.values()
    return {name for known in every for _, name in known}


async def test_the_record_of_a_cluster_in_order_goes_with_it(server: FakeApiServer, tmp_path: Path) -> None:
    with running(server, tmp_path) as (cluster, records):
        path = recording_of(cluster).path
        records.check()
        assert path.exists()
    records.check()
    assert not path.exists()
    assert not (tmp_path / "kept").exists()


async def test_a_record_is_saved_while_it_goes_on(server: FakeApiServer, tmp_path: Path) -> None:
    with running(server, tmp_path) as (cluster, _):
        recording = recording_of(cluster)
        for name in ("p", "q"):
            server.create(PODS, name, {"metadata": {}}, namespace="team")
            await eventually(lambda: name in _known(recording))  # noqa: B023 - called before the next round
            recording.save(tmp_path / f"{name}.gz")
    saved = {
        name: [each.object["metadata"]["name"] for each in _read(tmp_path / f"{name}.gz") if isinstance(each, ApiFact)]
        for name in ("p", "q")
    }
    assert saved == {"p": ["p"], "q": ["p", "q"]}


def _read(path: Path) -> list[Fact]:
    with gzip.open(path) as file:
        return list(read(BytesIO(file.read())))


async def test_a_recording_that_broke_off_fails_whoever_asks(server: FakeApiServer, tmp_path: Path) -> None:
    with running(server, tmp_path) as (cluster, records):
        recording = recording_of(cluster)
        recording._failed = ValueError("told by a test")
        with pytest.raises(RuntimeError, match="the record of c broke off"):
            records.check()
