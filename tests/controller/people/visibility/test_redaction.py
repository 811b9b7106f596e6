"""No name of a namespace that a user may not see is in the bytes of any answer."""

import uuid

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.insight.forecast.changes.changes import changes
from controller.insight.forecast.forecast import Forecaster, Forecasts
from controller.insight.forecast.shown import Foretold
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.people.visibility.answers import Answers, Json
from controller.people.visibility.documents import documents
from controller.people.visibility.redaction import UNKNOWN, namespaces, redacted, told
from controller.people.visibility.routes import Asked, parsed
from controller.scheduler.model.resources import WorkloadKey
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

VIEW, KUEUE = "/apis/view.tessera.dev/v1alpha1", "/apis/visibility.kueue.x-k8s.io"
SPACES = ("zulu-ns", "yankee-ns", "xray-ns")


def queue_of(key: str) -> str | None:
    return "q" if key.startswith("hers/job") else None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hers/job-1", "a workload of queue q"),
        ("Waits for hers/job-1, mine/job-2 and hers/job.3.", None),
        ("hers/lq", UNKNOWN),
        ("(hers/job-1)", "(a workload of queue q)"),
        ("x/hers/job-1", "x/a workload of queue q"),
        ("hers/job-1/hers/job-2", "a workload of queue q/a workload of queue q"),
        ("nvidia.hers/gpu", "nvidia.hers/gpu"),
        ("others/job-1", "others/job-1"),
        ("hers", "hers"),
        ("-hers/job", "-hers/job"),
        ("hers/", "hers/"),
        ("hers-/job", "hers-/job"),
        ("", ""),
    ],
)
def test_a_key_becomes_a_workload_of_a_queue(text: str, shown: str | None) -> None:
    wanted = "Waits for a workload of queue q, mine/job-2 and a workload of queue q." if shown is None else shown
    assert redacted(text, {"hers"}, queue_of) == wanted


def test_every_part_of_an_answer_is_looked_at() -> None:
    answer = {"hers/job-1": ["hers/job-2", ("mine/a", 1, None, True, {"x": "of hers/lq"})], "n": 2.5}
    assert namespaces(answer, {"hers", "mine", "other"}) == ["hers", "mine"]
    assert namespaces(answer, {"mine"}) == ["mine"]
    shown = redacted(answer, {"hers"}, queue_of)
    one = "a workload of queue q"
    assert shown == {one: [one, ["mine/a", 1, None, True, {"x": f"of {UNKNOWN}"}]], "n": 2.5}
    assert redacted(answer, set(), queue_of) is answer
    assert told("hers/job-1", queue_of) == one


def test_a_namespace_that_is_not_known_is_found_where_a_key_stands_for_itself() -> None:
    answer = {
        "workload": "new/job",
        "localQueue": "lq",
        "items": [{"workload": "mine/a", "localQueue": "newer/lq", "message": "CPU/memory of old/b"}],
    }
    assert namespaces(answer, {"mine", "old"}) == ["mine", "old", "new", "newer"]
    assert namespaces({"workload": ["x/y"], "name": "z/a"}, set()) == []


LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True)
GLUE = st.sampled_from(["", " ", "/", ", ", ".", ":", "(", '"', "\n", "é", "a "])


@settings(max_examples=60)
@given(st.lists(st.tuples(GLUE, LABEL, LABEL), max_size=6), st.sets(LABEL, max_size=3))
@example([("/", "a", "b"), ("/", "c", "d")], {"b"})
@example([(".", "a", "b"), (".", "a", "c")], {"a"})
def test_no_hidden_key_survives_in_any_text(parts: list[tuple[str, str, str]], hidden: set[str]) -> None:
    """However keys are glued together: what reads as a key of a hidden namespace is none any more."""
    text = "".join(f"{glue}{namespace}/{name}" for glue, namespace, name in parts)
    shown = redacted(text, hidden, lambda _: "Q")
    assert namespaces(shown, hidden) == []


def uid_of(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def moved(made: KubernetesObject, namespace: str) -> KubernetesObject:
    """In that namespace, with a UID that tells nothing of the name, as the API server's do: conditions have it."""
    metadata = msgspec.structs.replace(made.metadata, namespace=namespace, uid=uid_of(made.metadata.name))
    return msgspec.structs.replace(made, metadata=metadata)


def crowded(asks: list[tuple[str, int]]) -> World:
    """Workloads of three namespaces in one cohort: some hold quota, some wait, some for others that are preempted."""
    world = World()
    world.put(flavor())
    policies = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    for name in ("one", "two"):
        world.put(cluster_queue(name, 4, cohort="all", preemption=policies))
        world.put(*(moved(local_queue(f"door-of-{space}-{name}", name), space) for space in SPACES))
    for number, (space, priority) in enumerate(asks):
        queue = f"door-of-{space}-{'one' if number % 2 else 'two'}"
        world.put(moved(workload(f"job-of-{space}-{number}", queue, 2, priority=priority), space))
        world.cycle()
    return world


def paths(world: World) -> list[str]:
    """Everything that can be asked."""
    found = [f"{VIEW}/queueviews"]
    for queue in ("one", "two"):
        found += [f"{VIEW}/queueviews/{queue}", f"{VIEW}/queueviews/{queue}/pending"]
        found += [f"{KUEUE}/{version}/clusterqueues/{queue}/pendingworkloads" for version in ("v1beta1", "v1beta2")]
    for key in world.workloads:
        namespace, _, name = key.partition("/")
        found.append(f"{VIEW}/namespaces/{namespace}/workloadviews/{name}")
    for space in SPACES:
        at = f"{KUEUE}/v1beta2/namespaces/{space}/localqueues/door-of-{space}-one"
        found.append(f"{at}/pendingworkloads")
    return found


def asked_of(path: str) -> Asked:
    found = parsed(path, {}, frozenset(documents()))
    assert found is not None, path
    return found


def answer(answers: Answers, asked: Asked, hidden: set[str], foretold: Foretold | None = None) -> Json:
    """As the server has it: what the path names is granted."""
    gathered = answers.gathered(asked, foretold or Foretold())
    assert gathered is not None
    named = namespaces(gathered, set(SPACES))
    return answers.shown(asked, gathered, {space for space in named if space in hidden and space != asked.namespace})


def foretold(world: World, forecasts: Forecasts, asked: Asked) -> Foretold:
    """As the service has it: of one workload with what would let it start."""
    given = world.workloads.get(WorkloadKey(f"{asked.namespace}/{asked.name}"))
    if given is None:
        return Foretold(forecasts)
    ends = dict.fromkeys(world.engine.state.cluster.holders, world.now_s)
    return Foretold(forecasts, tuple(changes(world.engine, given, world.now_s, ends.__getitem__)))


ASKS = st.lists(st.tuples(st.sampled_from(SPACES), st.integers(0, 3)), min_size=3, max_size=8)


@settings(max_examples=30)
@given(ASKS, st.sets(st.sampled_from(SPACES)))
@example([(SPACES[0], 0)] * 4 + [(SPACES[1], 3)] * 4, {SPACES[0]})
@example([(SPACES[1], 0), *[(SPACES[0], 0)] * 3, (SPACES[0], 1)], {SPACES[0]})
def test_no_name_of_a_hidden_namespace_is_in_the_bytes(asks: list[tuple[str, int]], hidden: set[str]) -> None:
    """Every object of a namespace has the namespace's name in its own."""
    world = crowded(asks)
    answers = Answers(world.engine, world.workloads.get, world.now_s)
    forecasts = Forecaster().all(world.engine, world.now_s)
    for path in paths(world):
        asked = asked_of(path)
        if asked.namespace in hidden:
            continue
        raw = msgspec.json.encode(answer(answers, asked, hidden, foretold(world, forecasts, asked)))
        for space in hidden:
            assert space.encode() not in raw, path


def preempting() -> World:
    """Two of the first namespace hold everything; two of the second wait for them, and one of the third behind."""
    world = crowded([(SPACES[0], 0)] * 4)
    for number, (space, priority) in enumerate([(SPACES[1], 3), (SPACES[1], 3), (SPACES[2], 1)]):
        made = workload(f"late-of-{space}-{number}", f"door-of-{space}-one", 2, priority=priority, created_s=9)
        world.put(moved(made, space))
    world.settle()
    return world


def test_what_is_shown_of_a_hidden_workload_is_its_queue_and_its_amounts() -> None:
    world = preempting()
    answers = Answers(world.engine, world.workloads.get, world.now_s)
    asked = asked_of(f"{VIEW}/namespaces/{SPACES[2]}/workloadviews/late-of-{SPACES[2]}-2")
    whole, shown = answer(answers, asked, set()), answer(answers, asked, {SPACES[0], SPACES[1]})
    (row,) = shown["status"]["decision"]["wouldAdmit"]["resources"]
    (before,) = whole["status"]["decision"]["wouldAdmit"]["resources"]
    assert [each["workload"] for each in before["heldBy"]] == [f"{SPACES[0]}/job-of-{SPACES[0]}-{n}" for n in range(4)]
    assert {each["workload"] for each in row["heldBy"]} <= {"a workload of queue one", "a workload of queue two"}
    assert [each["amount"] for each in row["heldBy"]] == ["2"] * 4
    assert (row["needed"], row["available"]) == (before["needed"], before["available"])
    assert shown["metadata"] == {"name": f"late-of-{SPACES[2]}-2", "namespace": SPACES[2]}


def test_a_forecast_names_what_stands_before_and_whose_end_would_do_only_to_those_who_may_see_it() -> None:
    world = preempting()
    answers, forecasts = Answers(world.engine, world.workloads.get, world.now_s), Forecaster()
    asked = asked_of(f"{VIEW}/namespaces/{SPACES[2]}/workloadviews/late-of-{SPACES[2]}-2")
    told = foretold(world, forecasts.all(world.engine, world.now_s), asked)
    whole = answer(answers, asked, set(), told)["status"]["forecast"]
    assert [row["workload"] for row in whole["before"]] == [f"{SPACES[1]}/late-of-{SPACES[1]}-{n}" for n in (0, 1)]
    assert whole["ahead"] == 2
    assert any(row["workload"].startswith(SPACES[0]) for change in whole["changes"] for row in change["workloads"])
    mine = answer(answers, asked, {SPACES[0], SPACES[1]}, told)["status"]["forecast"]
    assert [row["workload"] for row in mine["before"]] == ["a workload of queue one"] * 2
    assert {row["workload"] for change in mine["changes"] for row in change["workloads"]} == {
        f"a workload of queue {queue}" for queue in ("one", "two")
    }
    assert not any(space in change["sentence"] for change in mine["changes"] for space in SPACES[:2])
    rows = answer(answers, asked_of(f"{VIEW}/queueviews/one/pending"), set(), told)["status"]["items"]
    assert all(
        set(row["forecast"]) == {"at", "fromSeconds", "likelySeconds", "toSeconds", "never", "notBefore"}
        for row in rows
    )


def test_pending_rows_lose_names_and_keep_their_places() -> None:
    world = preempting()
    answers = Answers(world.engine, world.workloads.get, world.now_s)
    asked = asked_of(f"{VIEW}/queueviews/one/pending")
    rows = answer(answers, asked, {SPACES[1]})["status"]["items"]
    assert [(row["position"], row["positionInLocalQueue"], row["priority"]) for row in rows] == [
        (0, 0, 3),
        (1, 1, 3),
        (2, 0, 1),
    ]
    assert [row["localQueue"] for row in rows] == [None, None, f"{SPACES[2]}/door-of-{SPACES[2]}-one"]
    assert [row["workload"] for row in rows[:2]] == ["a workload of queue one"] * 2
    assert "1 workload to be preempted" in rows[0]["sentence"]
    kept = answers.gathered(asked)
    assert kept is not None
    assert kept["items"][0]["localQueue"] == f"{SPACES[1]}/door-of-{SPACES[1]}-one", "what was gathered is whole"


def test_the_summary_is_kueues() -> None:
    world = preempting()
    answers = Answers(world.engine, world.workloads.get, world.now_s)
    body = answer(answers, asked_of(f"{KUEUE}/v1beta1/clusterqueues/one/pendingworkloads"), {SPACES[1]})
    assert (body["kind"], body["apiVersion"]) == ("PendingWorkloadsSummary", "visibility.kueue.x-k8s.io/v1beta1")
    hidden, _, mine = body["items"]
    assert hidden == {
        "metadata": {"name": "a workload of queue one"},
        "localQueueName": "",
        "priority": 3,
        "positionInClusterQueue": 0,
        "positionInLocalQueue": 0,
    }
    assert mine == {
        "metadata": {
            "name": f"late-of-{SPACES[2]}-2",
            "namespace": SPACES[2],
            "uid": uid_of(f"late-of-{SPACES[2]}-2"),
            "creationTimestamp": "2025-01-01T00:00:09Z",
        },
        "localQueueName": f"door-of-{SPACES[2]}-one",
        "priority": 1,
        "positionInClusterQueue": 2,
        "positionInLocalQueue": 0,
    }
    at = f"{KUEUE}/v1beta2/namespaces/{SPACES[1]}/localqueues/door-of-{SPACES[1]}-one/pendingworkloads"
    items = answer(answers, asked_of(at), {SPACES[0]})["items"]
    assert [row["metadata"]["name"] for row in items] == [f"late-of-{SPACES[1]}-{number}" for number in range(2)]


def test_pages_are_parts_of_the_whole() -> None:
    world = preempting()
    answers = Answers(world.engine, world.workloads.get, world.now_s)
    documents_ = frozenset(documents())
    for path in (f"{VIEW}/queueviews/one/pending", f"{KUEUE}/v1beta2/clusterqueues/one/pendingworkloads"):
        places = []
        for query in ({"limit": "2"}, {"offset": "2"}, {"offset": "3"}, {"limit": "0"}):
            asked = parsed(path, query, documents_)
            assert asked is not None
            found = answers.gathered(asked)
            assert found is not None
            places.append([row["position"] for row in found["items"]])
        assert places == [[0, 1], [2], [], []]


@pytest.mark.parametrize(
    "path",
    [
        f"{VIEW}/queueviews/three",
        f"{VIEW}/queueviews/three/pending",
        f"{VIEW}/namespaces/a/workloadviews/b",
        f"{KUEUE}/v1beta2/clusterqueues/three/pendingworkloads",
        f"{KUEUE}/v1beta2/namespaces/a/localqueues/b/pendingworkloads",
    ],
)
def test_what_is_not_there_has_no_answer(path: str) -> None:
    answers = Answers(crowded([]).engine, dict[WorkloadKey, Workload]().get, 0.0)
    assert answers.gathered(asked_of(path)) is None


def test_a_local_queue_that_leads_nowhere_has_nobody_in_it() -> None:
    world = crowded([])
    world.put(moved(local_queue("lost", "nowhere"), SPACES[0]))
    answers = Answers(world.engine, world.workloads.get, 0.0)
    asked = asked_of(f"{KUEUE}/v1beta2/namespaces/{SPACES[0]}/localqueues/lost/pendingworkloads")
    assert answers.gathered(asked) == {"items": []}
