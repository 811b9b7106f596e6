"""What must not leave a cluster: secrets and other people's names, in sentences, logs and objects."""

import time

import pytest

from cli.supportbundle.parts import names, node, of_tessera, own_pod, workload
from cli.supportbundle.scrub import LEFT_OUT, Scrubber, secretless

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----"
OPAQUE = "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9v1A=="


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"token: {JWT} end", JWT),
        (f"found {JWT}.", JWT),
        ("Authorization: Bearer abc.def", "abc.def"),
        ("authorization=Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("https://alice:pa55@host/x", "pa55"),
        (f"a\n{PEM}\nb", "MIIEow"),
        ("-----BEGIN CERTIFICATE-----\nMIIEow", "MIIEow"),
        ('{"password": "it\'s \\"long\\" one", "x": 1}', "long"),
        ("DB_PASSWORD=hunter2 --x", "hunter2"),
        ('{"name": "API_TOKEN", "value": "hunter2"}', "hunter2"),
        ("- name: WANDB_KEY\n  value: hunter2", "hunter2"),
        ("aws_secret_access_key: 'shh shh'", "shh"),
        ("api-key = abcdef", "abcdef"),
        ("password: |\n\n  hunter1\n  hunter2\nnext: x", "hunter"),
        ("- password: >-\r\n    hunter2", "hunter2"),
        ("tokens:\n- hunter1\n- hunter2\nnext: x", "hunter"),
        ("password: correct horse battery", "horse"),
        ("web_pass: 'it''s hunter2'", "hunter2"),
        ('{"x": 1, "password": ["a", "hunter2"]}', "hunter2"),
        ('{"x": 1, "password": {\n  "a": "hunter2"\n}}', "hunter2"),
        ('said "{\\"password\\": \\"hunter2\\"}"', "hunter2"),
        ("PGPASS=hunter2", "hunter2"),
        ("tls.key: hunter2", "hunter2"),
        ("run --web-token hunter2 --x", "hunter2"),
        ("['--web-token', 'hunter2']", "hunter2"),
        ("- --web-token\n- hunter2", "hunter2"),
        ("https://alice:p@ss5@host/x", "ss5"),
        ("https://alice:pa/ss5@host/x", "ss5"),
        (f"key {OPAQUE}", OPAQUE),
    ],
)
def test_a_secret_is_left_out(text: str, hidden: str) -> None:
    told = secretless(text)
    assert hidden not in told
    assert LEFT_OUT in told


def test_what_stands_around_a_secret_stays() -> None:
    for text, left in (
        ("a: 1\n  token: |\n    x\n\n  b: 2\n", "a: 1\n  token: (left out)\n  b: 2\n"),
        ("tokens:\n- x\nnext: 1", "tokens:(left out)\nnext: 1"),
        ("- token:\n- next", "- token:\n- next"),
        ('{"token": "x", "a": 1}', '{"token": (left out), "a": 1}'),
        ("--token x --port 80", "--token (left out) --port 80"),
        ("--token-review --port 80", "--token-review --port 80"),
        ("http://host:8080/a at 10:00", "http://host:8080/a at 10:00"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
        ("passed: 3, passes: 4", "passed: 3, passes: 4"),
    ):
        assert secretless(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "GPU-8f6c1f0e-2b1d-4c5a-9d6e-0123456789ab is Unhealthy: XID 79",
        "ghcr.io/x/agent@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "Needs 6 nvidia.com/gpu of flavor a100: 4 free, 2 more needed",
        "at 2026-11-21T17:21:22Z GET /apis/kueue.x-k8s.io/v1beta2/workloads: 200",
        "apiVersion: batch/v1, 1/2 ready",
        '"platform": "linux/amd64", darwin/arm64',
        "Content-Type: application/json, application/merge-patch, text/plain; charset=utf-8",
        "frameworks: [batch/job, apps/deployment], and/or n/a",
    ],
)
def test_what_is_no_secret_and_no_name_stays(text: str) -> None:
    assert Scrubber(b"k", {}, ()).text(text) == text


KNOWN = {"team-a": "namespace", "bert": "job", "job-bert-4f1c2": "workload", "ml.llama": "job", "ab": "pod"}
SCRUBBER = Scrubber(b"key", KNOWN, ("mine",))


@pytest.mark.parametrize(
    "text",
    [
        "bert",
        "bert-x7k2p started",
        "'bert', (bert) bert.",
        "team-a/job-bert-4f1c2: Admitted",
        "job-bert-4f1c2-0.bert.team-a.svc",
        "ab",
        "ml.llama-0",
        "http://bert:8080/team-a",
    ],
)
def test_a_name_is_a_pseudonym_wherever_it_stands(text: str) -> None:
    told = SCRUBBER.text(text)
    assert not [name for name in ("bert", "team-a", "llama") if name in told]
    assert told != text
    assert SCRUBBER.text(text) == told


def test_the_same_name_is_the_same_pseudonym_under_one_key_and_another_under_another() -> None:
    said = SCRUBBER.pseudonym("bert")
    assert said.startswith("job-")
    assert said in SCRUBBER.text("pod bert-0 of bert")
    assert Scrubber(b"other", KNOWN, ()).pseudonym("bert") != said
    assert SCRUBBER.text("bert").count(said) == 1


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("evicted gone-team/gone-job for priority", ("gone-team", "gone-job")),
        ("GET /apis/batch/v1/namespaces/gone-team/jobs/gone-job: 404", ("gone-team", "gone-job")),
        ('User "alice@example.com" cannot list', ("alice",)),
        ("user='system:serviceaccount:gone-team:robot'", ("gone-team", "robot")),
        ("mail bob.b@example.org now", ("bob", "example")),
    ],
)
def test_names_of_what_is_gone_are_known_by_where_they_stand(text: str, gone: tuple[str, ...]) -> None:
    told = SCRUBBER.text(text)
    assert not [name for name in gone if name in told]


def test_a_namespace_that_is_called_like_a_platform_is_hidden_all_the_same() -> None:
    told = Scrubber(b"k", {"linux": "namespace"}, ()).text("linux/amd64 and linux/bert")
    assert "linux" not in told


def test_the_callers_own_and_every_clusters_namespaces_stay() -> None:
    for text in ("mine/train waits", "tessera-system/tessera-agent-x7k2p", "namespaces/kube-system/pods/coredns"):
        assert SCRUBBER.text(text) == text


def test_values_are_scrubbed_with_their_keys_and_images_keep_their_names() -> None:
    given = {
        "clientSecret": "x",
        "tokens": 7,
        "pass": {"a": ["x"]},
        "automountToken": False,
        "env": [{"name": "WANDB_KEY", "value": "x"}, {"name": "PORT", "value": "80"}],
        "args": ["--x-password", "hunter2", "--token", "--port", "80"],
        "bert": ["team-a", {"image": "localhost/bert:1", "password": ""}],
        "none": None,
    }
    told = SCRUBBER.value(given)
    job, team = SCRUBBER.pseudonym("bert"), SCRUBBER.pseudonym("team-a")
    assert told == {
        "clientSecret": LEFT_OUT,
        "tokens": LEFT_OUT,
        "pass": LEFT_OUT,
        "automountToken": False,
        "env": [{"name": "WANDB_KEY", "value": LEFT_OUT}, {"name": "PORT", "value": "80"}],
        "args": ["--x-password", LEFT_OUT, "--token", "--port", "80"],
        job: [team, {"image": "localhost/bert:1", "password": ""}],
        "none": None,
    }


def test_a_hostile_line_takes_no_time() -> None:
    started = time.thread_time()
    for text in (
        "a-",
        "a/",
        "eyJ",
        "-eyJ",
        "token=",
        "secret",
        "A1a/",
        '"',
        "a@b-",
        "name:key",
        'value:"',
        "://a",
        "://a:",
        "token='\n",
        " --token",
    ):
        SCRUBBER.text(text * 3_000)
    assert time.thread_time() - started < 5


def test_names_are_those_of_people_and_of_other_namespaces() -> None:
    def made(name: str, namespace: str = "", **more: object) -> dict[str, object]:
        return {"metadata": {"name": name, "namespace": namespace}, **more}

    owned = made("w", "team-a")
    owned["metadata"]["ownerReferences"] = [{"name": "bert", "kind": "Job"}, 7]  # type: ignore[index]
    holders = [{"namespace": "team-b", "pod": "p"}, {"namespace": "mine", "pod": "own"}]
    kinds = [
        ("Namespace", [made("team-c"), made("mine")]),
        ("Workload", [owned, made("own", "mine")]),
        ("LocalQueue", [made("gpu", "team-a"), made("fast", "team-a")]),
        ("GpuNode", [made("n-1", status={"holders": holders})]),
        ("ClusterQueue", [made("research")]),
        (
            "Event",
            [
                {"regarding": {"kind": "Pod", "name": "old", "namespace": "team-d"}},
                {"regarding": {"kind": "Node", "name": "n-1"}},
            ],
        ),
    ]
    found = names(kinds, {"mine"}.__contains__)  # type: ignore[arg-type]
    assert found == {
        "team-c": "namespace",
        "mine": "namespace",
        "team-a": "namespace",
        "w": "workload",
        "bert": "job",
        "fast": "queue",
        "team-b": "namespace",
        "p": "pod",
        "team-d": "namespace",
        "old": "name",
    }


def test_of_a_workload_its_template_is_left_out_and_of_a_node_labels_of_its_owner() -> None:
    container = {"env": [{"name": "KEY", "value": "v"}], "command": ["x"], "resources": {"requests": {"cpu": "1"}}}
    sets = [{"name": "main", "count": 2, "template": {"spec": {"containers": [container]}}}]
    kept = workload({"metadata": {"name": "w", "managedFields": []}, "spec": {"podSets": sets, "queueName": "q"}})
    assert kept["metadata"] == {"name": "w"}
    assert kept["spec"] == {
        "queueName": "q",
        "podSets": [{"name": "main", "count": 2, "requests": [{"requests": {"cpu": "1"}}]}],
    }
    labels = {"nvidia.com/gpu.count": "8", "owner": "alice"}
    assert node({"metadata": {"labels": labels}})["metadata"]["labels"] == {"nvidia.com/gpu.count": "8"}
    pod = own_pod({"spec": {"containers": [{"name": "c", "env": [], "args": ["--x"]}]}})
    assert pod["spec"]["containers"] == [{"name": "c", "args": ["--x"]}]


@pytest.mark.parametrize(
    ("labels", "ours"),
    [
        ({"app.kubernetes.io/name": "tessera"}, True),
        ({"app.kubernetes.io/name": "gpus", "helm.sh/chart": "tessera-1.2.3"}, True),
        ({"app.kubernetes.io/name": "prometheus", "helm.sh/chart": "tessera-tools-1.2.3"}, False),
        (None, False),
    ],
)
def test_what_is_of_the_chart_is_known_by_its_labels(labels: dict[str, str] | None, ours: bool) -> None:
    assert of_tessera({"metadata": {"labels": labels}}) is ours
