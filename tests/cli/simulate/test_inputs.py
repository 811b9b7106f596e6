"""A wrong input is told by file, line and field, with what was found, what was expected and the next step."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.simulate.command import simulate_command

FLEET = "nodes:\n- {name: node-1, gpus: 8, product: NVIDIA A100-SXM4-80GB}\n"
TEAM = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: research}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: a100
      resources:
      - {name: cpu, nominalQuota: 64}
      - {name: memory, nominalQuota: 512Gi}
      - {name: nvidia.com/gpu, nominalQuota: 8}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: nightly, namespace: lab}
spec: {clusterQueue: research}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 10
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: lab
  labels: {kueue.x-k8s.io/queue-name: nightly}
spec:
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: i
        resources:
          requests: {cpu: "1", memory: 4Gi}
          limits: {nvidia.com/gpu: 1}
"""
PARALLELISM = "  parallelism: 2\n"
LABEL = "labels: {kueue.x-k8s.io/queue-name: nightly}"
LIMITS = "spec.template.spec.containers[0].resources.limits"


def called(folder: Path, job: str, team: str = TEAM, *words: str, fleet: str = FLEET) -> Result:
    for name, text in (("fleet.yaml", fleet), ("team.yaml", team), ("job.yaml", job)):
        (folder / name).write_text(text)
    files = [str(folder / name) for name in ("fleet.yaml", "team.yaml", "job.yaml")]
    return CliRunner().invoke(simulate_command, ["--fleet", *files, *words])


def told(result: Result, folder: Path) -> list[str]:
    return result.stderr.replace(f"{folder}/", "").splitlines()


WRONG = [
    ("memory: 4Gi", "memory: 4GB", '16: Job train: {r}.requests.memory: found "4GB", expected 4G or 4Gi. Correct it'),
    ("memory: 4Gi", "memory: 4 gib", '16: Job train: {r}.requests.memory: found "4 gib", expected 4Gi. Correct it'),
    (
        "gpu: 1}",
        "gpu: 0.5}",
        "17: Job train: {r}.limits[nvidia.com/gpu]: found 0.5, expected a whole number. A part of ",
    ),
    (
        "gpu: 1}",
        "gpu: 250m}",
        'found "250m", expected a whole number. A part of a GPU is asked for with tessera.dev/gpu-pe',
    ),
    ("gpu: 1}", "gpu: four}", '{r}.limits[nvidia.com/gpu]: found "four", expected a whole number. Correct it'),
    ("gpu: 1}", "gpu: -1}", "{r}.limits[nvidia.com/gpu]: found -1, expected at least 0"),
    (
        "nvidia.com/gpu: 1",
        "gpu: 1",
        "{r}.limits.gpu: found the resource gpu, expected nvidia.com/gpu. Correct the name",
    ),
    ("{nvidia.com/gpu: 1}", "8", "{r}.limits: found 8, expected an object. Correct it"),
    (
        "parallelism: 2",
        'parallelism: "2"',
        '8: Job train: spec.parallelism: found "2" (a string), expected 2. Write it',
    ),
    ("parallelism: 2", "parallelism: 1.5", "8: Job train: spec.parallelism: found 1.5, expected a whole number"),
    (
        "parallelism: 2",
        "suspend: 'true'",
        '8: Job train: spec.suspend: found "true" (a string), expected true. Write it',
    ),
    ("image: i", "image: 7", '14: Job train: spec.template.spec.containers[0].image: found 7, expected "7" (a string)'),
    (
        "image: i",
        "args: [--tp, 4]",
        '14: Job train: spec.template.spec.containers[0].args[1]: found 4, expected "4" (a',
    ),
    (
        "image: i",
        "command: sh",
        '14: Job train: spec.template.spec.containers[0].command: found "sh" (a string), expected',
    ),
    (
        "Never",
        "never",
        'spec.template.spec.restartPolicy: found "never", expected one of Never, OnFailure. Correct it',
    ),
    ("batch/v1", "batch/v2", "1: Job train: apiVersion: found batch/v2, expected batch/v1. Correct it"),
    ("kind: Job", "kind: Jobs", '2: Jobs train: kind: found "Jobs", expected Job. Correct it'),
    ("kind: Job", "kin: Job", "1: train: kind: found nothing, expected a kind such as Job. Write it"),
    (
        LABEL,
        LABEL[:-1] + ", kueue.x-k8s.io/priority-class: urgnet}",
        "6: Job train: metadata.labels[kueue.x-k8s.io/priority-class]: ",
    ),
    (
        "      containers",
        "     containers",
        '12: column 6: not valid YAML: found "containers:", expected a key of the keys ',
    ),
    (PARALLELISM, f"\t{PARALLELISM}", "8: column 1: not valid YAML: found a tab before the text, expected spaces"),
    (
        'cpu: "1", memory: 4Gi}\n          limits: {nvidia.com/gpu: 1}',
        "nvidia.com/gpu: 2}",
        "16: Job train: {r}.requests[nvidia.com/gpu]: found no limit, expected limits[nvidia.com/gpu]: 2 beside it. Wr",
    ),
    (
        'cpu: "1", memory: 4Gi}',
        "nvidia.com/gpu: 2}",
        "16: Job train: {r}.requests[nvidia.com/gpu]: found 2, expected its limit, 1. Correct one of them",
    ),
    (
        "limits: {nvidia.com/gpu: 1}",
        "limits: {nvidia.com/gpu: 1, memory: 2Gi}",
        '16: Job train: {r}.requests.memory: found "4Gi", expected at most its limit, 2Gi. Correct one of them',
    ),
    (
        "name: train",
        "name: My_Train",
        '4: Job My_Train: metadata.name: found "My_Train", expected at most 253 letters a to z, digits, - and ., ',
    ),
    (
        "name: train",
        "generateName: Train-",
        '4: Job Train-: metadata.generateName: found "Train-", expected at most 253 letters',
    ),
    (
        "      - name: main",
        "        name: main",
        "12: Job train: spec.template.spec.containers: found an object, expected a list. Begin each item with -",
    ),
    (
        "        image: i",
        "        image: i\n      - name: main",
        '15: Job train: spec.template.spec.containers[1].name: found "main" a second time, expected another name: a co',
    ),
    ("parallelism: 2", "parallelism: -2", "8: Job train: spec.parallelism: found -2, expected at least 0. Correct it"),
    (
        "parallelism: 2",
        "completions: 3000000000",
        "8: Job train: spec.completions: found 3000000000, expected at most 2147483647. Correct it",
    ),
    (JOB, "", "1: found nothing in the file, expected objects with apiVersion, kind and metadata"),
    (JOB, "# to do\n", "1: found nothing in the file, expected objects with apiVersion, kind and metadata"),
]


@pytest.mark.parametrize(("before", "after", "said"), WRONG)
def test_what_kubernetes_refuses_ends_the_run_with_its_line(tmp_path: Path, before: str, after: str, said: str) -> None:
    result = called(tmp_path, JOB.replace(before, after, 1))
    (line,) = told(result, tmp_path)
    assert result.exit_code == 2
    assert line.startswith("Error: job.yaml:")
    assert said.replace("{r}", "spec.template.spec.containers[0].resources") in line
    assert result.stdout == ""


ODD = [
    (
        "gpu: 1}",
        "gpu: 1Gi}",
        f'17: warning: Job train: {LIMITS}[nvidia.com/gpu]: found "1Gi", expected a count without a ',
    ),
    (
        "nvidia.com/gpu: 1",
        "nvidia.com/gpus: 1",
        "found nvidia.com/gpus, expected a resource that ClusterQueue research c",
    ),
    (
        "queue-name: nightly",
        "queue-name: nighty",
        "6: warning: Job train: metadata.labels[kueue.x-k8s.io/queue-name]: ",
    ),
    ("namespace: lab", "namespace: lba", "Did you mean metadata.namespace: lab?"),
    (
        "restartPolicy: Never",
        "restartPolicy: Never\n      nodeSelector: {nvidia.com/gpu.product: H100}",
        'found "H100", expected a value that a node has: NV',
    ),
    (
        PARALLELISM,
        PARALLELISM * 2,
        "9: warning: spec.parallelism: found it a second time, expected it once: the first, in line 8, ",
    ),
    (
        "  name: train",
        "  name: train\n  name: train",
        "warning: metadata.name: found it a second time, ",
    ),
    (
        LABEL,
        f'{LABEL}\n  annotations: {{tessera.dev/gpu-percent: "30"}}',
        "found the resource tessera.dev/gpu-percent, expected it in resources.limits of a container. Here it counts fo",
    ),
    (
        "{nvidia.com/gpu: 1}",
        "{nvidia.com/gpu: 1, nvidia.com/gpu: 1}",
        "17: warning: spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: found it a second time, expe",
    ),
    (
        LABEL,
        f"{LABEL}\n  annotations: {{tessera.dev/runtimes: 1h}}",
        "7: warning: Job train: metadata.annotations[tessera.dev/",
    ),
]


@pytest.mark.parametrize(("before", "after", "said"), ODD)
def test_what_kubernetes_takes_and_nobody_means_is_a_warning(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    result = called(tmp_path, JOB.replace(before, after, 1))
    (line,) = told(result, tmp_path)
    assert line.startswith("job.yaml:")
    assert ": warning: " in line
    assert said in line
    assert result.exit_code == 0
    assert "Timeline" in result.stdout


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("clusterQueue: research", "clusterQueue: reserch", "Did you mean research?"),
        (
            "- name: a100",
            "- name: a1000",
            "13: warning: ClusterQueue research: spec.resourceGroups[0].flavors[0].name: found",
        ),
        (
            "metadata: {name: a100}",
            "metadata: {name: a100}\nspec: {topologyName: racks}",
            "expected a Topology (there is none)",
        ),
    ],
)
def test_a_queue_that_names_what_is_not_there_is_a_warning(tmp_path: Path, before: str, after: str, said: str) -> None:
    result = called(tmp_path, JOB, TEAM.replace(before, after, 1))
    (line,) = told(result, tmp_path)
    assert line.startswith("team.yaml:")
    assert said in line
    assert result.exit_code == 0


PODS = "- {coveredResources: [pods], flavors: [{name: a100, resources: [{name: pods, nominalQuota: 1}]}]}"
REFUSED_QUOTAS = [
    (
        "nominalQuota: 8}",
        "nominalQuota: 8, borrowingLimit: 2}",
        "17: ClusterQueue research: {q}[2].borrowingLimit: found 2, expected none without a cohort. Write spec.",
    ),
    ("nominalQuota: 64", "nominalQuota: -1", "15: ClusterQueue research: {q}[0].nominalQuota: found -1, expected at "),
    (
        "[cpu, memory, nvidia.com/gpu]",
        "[memory, cpu, nvidia.com/gpu]",
        "14: ClusterQueue research: {f}.resources: found cpu, memory, nvidia.com/gpu, expected the coveredResources ",
    ),
    (
        "- coveredResources",
        f"{PODS}\n  - coveredResources",
        "14: ClusterQueue research: spec.resourceGroups[1].flavors[0].name: found a100 a second time, expected it ",
    ),
    (
        "kind: ClusterQueue",
        "kind: ClusterQueu",
        '6: ClusterQueu research: kind: found "ClusterQueu", expected ClusterQu',
    ),
    (
        "[cpu, memory, nvidia.com/gpu]",
        "[cpu, memory, memory]",
        "11: ClusterQueue research: spec.resourceGroups[0].coveredResources[2]: found memory a second time, expected",
    ),
]


@pytest.mark.parametrize(("before", "after", "said"), REFUSED_QUOTAS)
def test_quotas_that_the_api_server_refuses_end_the_run(tmp_path: Path, before: str, after: str, said: str) -> None:
    result = called(tmp_path, JOB, TEAM.replace(before, after, 1))
    lines = told(result, tmp_path)
    flavor = "spec.resourceGroups[0].flavors[0]"
    assert any(line.startswith(f"Error: team.yaml:{said.format(q=f'{flavor}.resources', f=flavor)}") for line in lines)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(("kind", "parent", "lines"), [("ClusterQueue", "cohortName", 1), ("Cohort", "parentName", 0)])
def test_what_is_lent_is_at_most_the_own_quota_of_a_queue_and_a_cohort_lends_what_is_below_it(
    tmp_path: Path, kind: str, parent: str, lines: int
) -> None:
    quota = "{name: nvidia.com/gpu, nominalQuota: 4, lendingLimit: 9}"
    flavors = f"[{{name: a100, resources: [{quota}]}}]"
    groups = f"resourceGroups: [{{coveredResources: [nvidia.com/gpu], flavors: {flavors}}}]"
    given = (
        f"apiVersion: kueue.x-k8s.io/v1beta2\nkind: {kind}\nmetadata: {{name: all}}\nspec: {{{parent}: c, {groups}}}\n"
    )
    result = called(tmp_path, JOB, f"{TEAM}---\n{given}")
    found = told(result, tmp_path)
    assert len(found) == lines
    assert all("lendingLimit: found 9, expected at most its nominalQuota, 4. Correct one of" in line for line in found)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("{nvidia.com/gpu.present: nobody}", "4: warning: ResourceFlavor a100: spec.nodeLabels[nvidia.com/gpu.presen"),
        (
            "{nvidia.com/gpu.product: NVIDIA-H100}",
            '.product]: found "NVIDIA-H100", expected a value that a node has: NVIDIA-A100-SXM4-80GB',
        ),
        (
            "{nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB, kubernetes.io/hostname: node-2}",
            "NVIDIA-A100-SXM4-80GB, kubernetes.io/hostname=node-2, expected labels that one node has together",
        ),
    ],
)
def test_a_flavor_that_selects_no_node_is_a_warning(tmp_path: Path, labels: str, said: str) -> None:
    team = TEAM.replace("metadata: {name: a100}", f"metadata: {{name: a100}}\nspec: {{nodeLabels: {labels}}}")
    other = FLEET + "- {name: node-2, gpus: 8, product: NVIDIA H200}\n" if "node-2" in labels else FLEET
    result = called(tmp_path, JOB, team, fleet=other)
    (line,) = told(result, tmp_path)
    assert said in line
    assert result.exit_code == 0
    fitting = team.replace(labels, "{nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}")
    assert told(called(tmp_path, JOB, fitting), tmp_path) == []


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (
            "labels: {}",
            "6: warning: Job train: metadata.labels: found no label kueue.x-k8s.io/queue-name, expected the label",
        ),
        (
            "labels: {kueue.x-k8s.io/queue: nightly}",
            "6: warning: Job train: metadata.labels[kueue.x-k8s.io/queue]: found the ",
        ),
        ("labels: {kueue.x-k8s.io/queuename: night}", "Did you mean kueue.x-k8s.io/queue-name: nightly?"),
    ],
)
def test_a_job_without_a_queue_is_named_with_the_queues_that_there_are(tmp_path: Path, label: str, said: str) -> None:
    lost = JOB.replace(LABEL, label)
    alone = called(tmp_path, lost)
    first, last = told(alone, tmp_path)
    assert alone.exit_code == 2
    assert said in first
    assert "a LocalQueue of lab: nightly" in first
    assert last == "Error: MANIFESTS: found no job that names a queue, expected one. Correct what the warnings name"
    beside = called(tmp_path, f"{lost}---\n{JOB.replace('name: train', 'name: other')}")
    assert (beside.exit_code, told(beside, tmp_path)) == (0, [first])


def test_all_that_is_wrong_is_told_at_once_by_file_and_line(tmp_path: Path) -> None:
    wrong = JOB.replace("parallelism: 2", "paralelism: 2").replace("gpu: 1}", "gpu: x}").replace("Never", "nEver")
    late = JOB.replace("name: train", "name: late").replace(
        LABEL, f"{LABEL}\n  annotations: {{tessera.dev/runtime: 2 h}}"
    )
    result = called(tmp_path, f"{wrong}---\n{late}", TEAM.replace("nominalQuota: 64", "nominalquota: 64"))
    places = [line.removeprefix("Error: ").split(": ")[0] for line in told(result, tmp_path)]
    assert places == ["team.yaml:15", "job.yaml:8", "job.yaml:11", "job.yaml:17"]
    fixed = called(tmp_path, f"{wrong}---\n{late}")
    assert told(fixed, tmp_path)[-1] == (
        "Error: job.yaml:25: Job late: metadata.annotations[tessera.dev/runtime]: "
        'found "2 h", expected a duration such as "90s". Correct it'
    )


def test_all_that_is_wrong_of_one_job_is_told_at_once(tmp_path: Path) -> None:
    times = "tessera.dev/runtime: soon, tessera.dev/arrival: 5 s"
    places = '{kueue.x-k8s.io/podset-slice-size: "2", kueue.x-k8s.io/podset-required-topology: a b}'
    job = JOB.replace(LABEL, f"{LABEL}\n  annotations: {{{times}}}")
    job = job.replace("  template:\n", f"  template:\n    metadata: {{annotations: {places}}}\n")
    lines = told(called(tmp_path, job), tmp_path)
    marks = ("tessera.dev/runtime", "tessera.dev/arrival", "podset-slice-size", "podset-required-topology")
    assert [sum(f"{mark}]: " in line for line in lines) for mark in marks] == [1, 1, 1, 1]


def test_kinds_are_told_of_together_with_all_else(tmp_path: Path) -> None:
    jobs = [
        JOB.replace("kind: Job", "kind: Jobb"),
        JOB.replace("batch/v1", "batch/v2"),
        JOB.replace("parallelism: 2", "parallelism: -2"),
    ]
    third = TEAM.split("---")[2].replace("LocalQueue", "LocalQeue")
    queues = f"{TEAM}---\n{third}".replace("nominalQuota: 64", "nominalQuota: -1")
    lines = told(called(tmp_path, "---\n".join(jobs), queues), tmp_path)
    errors = [line for line in lines if line.startswith("Error: ")]
    for said in ('"Jobb", expected Job', "batch/v2, expected batch/v1", '"LocalQeue", expected LocalQueue', "-1", "-2"):
        assert sum(said in line for line in errors) == 1, (said, errors)


def test_a_fleets_misspelt_key_is_told_with_the_nearest(tmp_path: Path) -> None:
    (line,) = told(called(tmp_path, JOB, fleet=FLEET.replace("gpus: 8", "gpu: 8")), tmp_path)
    assert line.startswith("Error: fleet.yaml:2: nodes[0].gpu: found the key 'gpu', expected gpus. Correct it")


def test_a_fleet_and_a_configuration_are_told_of_together_with_the_manifests(tmp_path: Path) -> None:
    config = tmp_path / "controller.yaml"
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueNam: true\n"
    )
    fleet = FLEET.replace("gpus: 8", "gpuz: 8")
    job = JOB.replace("parallelism: 2", "parallelism: -2")
    found = told(called(tmp_path, job, TEAM, "--config", str(config), fleet=fleet), tmp_path)
    assert [line.split(":")[1].strip() for line in found] == ["controller.yaml", "fleet.yaml", "job.yaml"]


def test_another_model_or_profile_is_no_misspelt_one(tmp_path: Path) -> None:
    near = JOB.replace(
        "restartPolicy: Never", "restartPolicy: Never\n      nodeSelector: {nvidia.com/gpu.product: {p}}"
    )
    for product, meant in (("NVIDIA-A100-SXM4-40GB", False), ("nvidia-a100-sxm4-80gb", True)):
        (line,) = told(called(tmp_path, near.replace("{p}", product)), tmp_path)
        assert ("Did you mean NVIDIA-A100-SXM4-80GB?" in line) is meant
    team = TEAM.replace("nvidia.com/gpu", "nvidia.com/mig-1g.10gb")
    (line,) = told(called(tmp_path, JOB.replace("nvidia.com/gpu:", "nvidia.com/mig-1g.20gb:"), team), tmp_path)
    assert "Did you mean" not in line


def test_a_file_that_is_empty_is_passed_over_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    for name, text in (("a.yaml", TEAM), ("b.yaml", ""), ("c.yaml", JOB)):
        (tmp_path / "all" / name).write_text(text)
    result = CliRunner().invoke(simulate_command, [str(tmp_path / "all")])
    assert (result.exit_code, result.stderr) == (0, "")


def test_numbers_in_quotes_are_quantities_and_a_whole_number_may_have_a_point(tmp_path: Path) -> None:
    job = (
        JOB.replace("gpu: 1}", 'gpu: "1"}')
        .replace('cpu: "1"', "cpu: 0.5")
        .replace("parallelism: 2", "parallelism: 2.0")
    )
    result = called(tmp_path, job)
    assert (result.exit_code, result.stderr) == (0, "")


def test_what_is_wrong_before_a_text_that_does_not_parse_is_told_beside_it(tmp_path: Path) -> None:
    result = called(tmp_path, JOB.replace("parallelism", "paralelism") + "---\na: [\n")
    assert result.exit_code == 2
    lines = told(result, tmp_path)
    assert "spec.paralelism: found an unknown field, expected parallelism" in lines[0]
    assert "column 5: not valid YAML" in lines[1]


@pytest.mark.parametrize(
    ("given", "found"), [("      restartPolicy: Always\n", '"Always"'), ("", "nothing")], ids=["always", "nothing"]
)
def test_a_job_whose_pods_would_run_for_ever_is_refused(tmp_path: Path, given: str, found: str) -> None:
    result = called(tmp_path, JOB.replace("      restartPolicy: Never\n", given))
    assert result.exit_code == 2
    (line,) = told(result, tmp_path)
    assert f"spec.template.spec.restartPolicy: found {found}, expected one of" in line


def test_a_namespace_has_a_name_without_dots(tmp_path: Path) -> None:
    line, *_ = told(called(tmp_path, JOB.replace("namespace: lab", "namespace: a.b")), tmp_path)[-1:]
    assert line.startswith('Error: job.yaml:5: Job train: metadata.namespace: found "a.b", expected at most 63 letters')
