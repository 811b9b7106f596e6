import pytest

from controller.people.visibility.documents import documents
from controller.people.visibility.routes import (
    MAX_ITEMS,
    MAX_LIMIT,
    Attributes,
    BadRequestError,
    Page,
    What,
    created,
    manifest_of,
    parsed,
)

FORECASTS = "/apis/view.tessera.dev/v1alpha1/namespaces/team-a/forecasts"
DOCUMENTS = frozenset(documents())
VIEW = "/apis/view.tessera.dev/v1alpha1"
SERIES = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n"
KUEUE = "/apis/visibility.kueue.x-k8s.io"


@pytest.mark.parametrize(
    ("path", "what", "right"),
    [
        ("/apis", What.DOCUMENT, "get path /apis"),
        (f"{VIEW}/queueviews", What.QUEUES, "list queueviews.view.tessera.dev"),
        (f"{VIEW}/queueviews/a.b", What.QUEUE, "get queueviews.view.tessera.dev"),
        (f"{VIEW}/queueviews/a/pending", What.PENDING, "get queueviews/pending.view.tessera.dev"),
        (
            f"{VIEW}/namespaces/n/workloadviews/w",
            What.WORKLOAD,
            "get workloadviews.view.tessera.dev in namespace n",
        ),
        (
            f"{VIEW}/namespaces/n/localqueueviews/q",
            What.LOCAL_QUEUE,
            "get localqueueviews.view.tessera.dev in namespace n",
        ),
        (
            f"{SERIES}/tessera_local_queue_usable_units",
            What.EXTERNAL,
            "list tessera_local_queue_usable_units.external.metrics.k8s.io in namespace n",
        ),
        *(
            (
                f"{KUEUE}/{version}/clusterqueues/q/pendingworkloads",
                What.CLUSTER_QUEUE_SUMMARY,
                "get clusterqueues/pendingworkloads.visibility.kueue.x-k8s.io",
            )
            for version in ("v1beta1", "v1beta2")
        ),
        (
            f"{KUEUE}/v1beta2/namespaces/n/localqueues/q/pendingworkloads",
            What.LOCAL_QUEUE_SUMMARY,
            "get localqueues/pendingworkloads.visibility.kueue.x-k8s.io in namespace n",
        ),
    ],
)
def test_a_path_is_a_question_and_a_right(path: str, what: What, right: str) -> None:
    found = parsed(path, {}, DOCUMENTS)
    assert found is not None
    assert (found.what, str(found.right)) == (what, right)


def test_the_right_is_about_the_very_object() -> None:
    found = parsed(f"{KUEUE}/v1beta1/namespaces/n/localqueues/q/pendingworkloads", {"limit": "3"}, DOCUMENTS)
    assert found is not None
    assert found.right == Attributes(
        "get", "visibility.kueue.x-k8s.io", "v1beta1", "localqueues", "pendingworkloads", "n", "q"
    )
    assert (found.namespace, found.name, found.version, found.page) == ("n", "q", "v1beta1", Page(0, 3))
    escaped = parsed(f"{VIEW}/queueviews/%61", {}, DOCUMENTS)
    assert escaped is not None
    assert escaped.name == "a"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/api",
        "/apis/",
        "/apis/view.tessera.dev/v1/queueviews",
        "/apis/apps/v1/deployments",
        f"{VIEW}/queues",
        f"{VIEW}/queueviews/a/pending/b",
        f"{VIEW}/queueviews/a/b",
        f"{VIEW}/queueviews//pending",
        f"{VIEW}/queueviews/A",
        f"{VIEW}/queueviews/a%2Fb",
        f"{VIEW}/queueviews/..%2f..",
        f"{VIEW}/queueviews/{'a' * 254}",
        f"{VIEW}/workloadviews/w",
        f"{VIEW}/namespaces/n/workloadviews",
        f"{VIEW}/namespaces/N/workloadviews/w",
        f"{VIEW}/namespaces/n/queueviews/q",
        f"{VIEW}/namespaces",
        f"{VIEW}/namespaces/n",
        f"{KUEUE}/v1alpha1/clusterqueues/q/pendingworkloads",
        f"{KUEUE}/v1beta2/clusterqueues/q",
        f"{KUEUE}/v1beta2/clusterqueues",
        f"{KUEUE}/v1beta2/namespaces/n/clusterqueues/q/pendingworkloads",
        f"{KUEUE}/v1beta2/localqueues/q/pendingworkloads",
    ],
)
def test_all_else_is_not_served(path: str) -> None:
    assert parsed(path, {}, DOCUMENTS) is None


PENDING = f"{VIEW}/queueviews/q/pending"


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ({}, Page(0, 1000)),
        ({"offset": "7"}, Page(7, 1000)),
        ({"offset": "0", "limit": "0"}, Page(0, 0)),
        ({"limit": str(MAX_ITEMS - 1)}, Page(0, MAX_ITEMS - 1)),
        ({"limit": str(MAX_LIMIT)}, Page(0, MAX_ITEMS)),
    ],
)
def test_a_page_is_bounded(query: dict[str, str], page: Page) -> None:
    found = parsed(PENDING, query, DOCUMENTS)
    assert found is not None
    assert found.page == page


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"limit": str(MAX_LIMIT + 1)}, "limit: found 100001, expected at most 100000"),
        ({"limit": "-1"}, "limit: found '-1', expected a whole number from 0"),
        ({"offset": "x" * 99}, f"offset: found {'x' * 40!r}, expected a whole number from 0"),
        ({"offset": "1" * 10}, "offset: found '1111111111', expected a whole number from 0"),
        ({"offset": "\u0661"}, "offset: found '\u0661', expected a whole number from 0"),
        ({"offset": ""}, "offset: found '', expected a whole number from 0"),
    ],
)
def test_a_page_that_is_none_is_refused_in_one_sentence(query: dict[str, str], said: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        parsed(PENDING, query, DOCUMENTS)
    assert str(refused.value) == said


def test_discovery_names_what_is_served() -> None:
    """Each resource that a document lists can be asked for."""
    found = documents()
    assert [each["name"] for each in found["/apis"]["groups"]] == [
        "view.tessera.dev",
        "visibility.kueue.x-k8s.io",
        "external.metrics.k8s.io",
    ]
    assert found["/apis/visibility.kueue.x-k8s.io"]["preferredVersion"]["version"] == "v1beta2"
    lists = [each for each in found.values() if each.get("kind") == "APIResourceList"]
    assert len(lists) == 4
    for each in lists:
        for resource in each["resources"]:
            where = "namespaces/n/" if resource["namespaced"] else ""
            path = f"/apis/{each['groupVersion']}/{where}{resource['name'].replace('/', '/x/', 1)}"
            if resource["verbs"] == ["create"]:
                asked = created(path)
            else:
                path += "" if "/" in resource["name"] or resource["verbs"] == ["list"] else "/x"
                asked = parsed(path, {}, DOCUMENTS)
            assert asked is not None, path
            assert asked.right.verb in resource["verbs"]
    for path in found["/openapi/v3"]["paths"].values():
        assert path["serverRelativeURL"] in found


@pytest.mark.parametrize(
    "path",
    [
        f"{FORECASTS}/x",
        f"{FORECASTS}/",
        f"{FORECASTS}?x",
        FORECASTS.replace("team-a", "team_a"),
        FORECASTS.replace("namespaces/team-a/", ""),
        FORECASTS.replace("v1alpha1", "v1"),
    ],
)
def test_manifests_are_sent_to_a_namespaces_forecasts_and_nowhere_else(path: str) -> None:
    assert created(path) is None
    found = created(FORECASTS)
    assert found is not None
    assert str(found.right) == "create forecasts.view.tessera.dev in namespace team-a"
    assert parsed(FORECASTS, {}, DOCUMENTS) is None


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"spec": {"manifest": 1}}', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_forecast_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequestError):
        manifest_of(body)
    assert manifest_of(b'{"spec": {"manifest": {"kind": "Job"}}}') == {"kind": "Job"}


def test_a_series_is_asked_for_by_equal_labels_alone() -> None:
    path = f"{SERIES}/tessera_local_queue_admissible_units"
    found = parsed(path, {"labelSelector": "local_queue=chat,unit==replica"}, DOCUMENTS)
    assert found is not None
    assert found.labels == {"local_queue": "chat", "unit": "replica"}
    for wrong in ("unit!=a", "unit in (a)", "unit"):
        with pytest.raises(BadRequestError, match="expected label=value"):
            parsed(path, {"labelSelector": wrong}, DOCUMENTS)
    assert parsed(f"{SERIES}/another_series", {}, DOCUMENTS) is None
