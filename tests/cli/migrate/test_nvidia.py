"""NVIDIA's programs without their operator: files, chart values, DaemonSets and labels of nodes become a plan."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Run
from tests.cli.migrate.conftest import Answer

EXAMPLES = Path(__file__).parents[3] / "examples" / "migrate"
SLICED = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n"
SHARED = "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n"
PARTED = "version: v1\nmig-configs:\n  half:\n  - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}\n"
FIELDS = "# fields\nDCGM_FI_DEV_GPU_UTIL, gauge, utilization\nDCGM_FI_DEV_NVSWITCH_X, gauge, none\n"


def what(found: list[dict[str, str]]) -> set[str]:
    return {each["what"] for each in found}


def config_map(name: str, namespace: str = "gpu-operator", **data: str) -> str:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}
    return yaml.safe_dump(body)


def policy(**spec: Any) -> str:
    head = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}}
    return yaml.safe_dump({**head, "spec": spec})


def node(name: str, **labels: str) -> str:
    body = {"name": name, "labels": {f"nvidia.com/{key.replace('_', '.')}": value for key, value in labels.items()}}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Node", "metadata": body})


def test_the_example_of_programs_without_an_operator_is_a_plan(migrated: Answer) -> None:
    found = migrated(str(EXAMPLES / "device-plugin.yaml"))
    values = found["values"]
    assert (values["migStrategy"], values["compatWithCPUManager"]) == ("mixed", True)
    assert values["mps"] == {"enabled": True}
    assert values["config"] == {"name": "plugin-config"}
    assert values["mig"] == {"config": {"name": "mig-config", "key": "config.yaml"}}
    assert values["metrics"] == {"collectors": {"name": "exporter-fields", "key": "fields.csv"}}
    assert "nodeSelector" not in values
    off = next(i for i, each in enumerate(found["steps"]) if "daemonset/nvdp-nvidia-device-plugin" in each["command"])
    into = next(i for i, each in enumerate(found["steps"]) if "helm install" in each["command"])
    assert off < into
    assert len([each for each in found["steps"] if each["command"].startswith("kubectl get configmap/")]) == 3


def test_a_file_of_the_plugin_becomes_a_named_configuration(migrated: Answer) -> None:
    found = migrated(sliced__yaml=SLICED)
    assert found["values"]["config"]["map"] == {"sliced": SLICED}
    assert found["lost"] == []


def test_files_alone_bring_no_agent_beside_what_serves_gpus_today(migrated: Answer) -> None:
    found = migrated(sliced__yaml=SLICED)
    assert found["values"]["nodeSelector"] == {"nvidia.com/gpu.deploy.device-plugin": "false"}
    assert what(found["kept"]) == {"what serves GPUs on nodes"}


@pytest.mark.parametrize(("text", "is_on"), [(SLICED, False), (SHARED, True)])
def test_mps_is_switched_on_where_a_file_of_the_policy_shares_by_it(migrated: Answer, text: str, is_on: bool) -> None:
    spec = policy(devicePlugin={"config": {"name": "c", "default": "a"}})
    found = migrated(policy__yaml=spec, files__yaml=config_map("c", a=text))
    assert ("mps" in found["values"]) is is_on
    assert found["values"]["config"] == {"name": "c", "default": "a"}
    assert found["lost"] == []


def test_without_its_files_a_policy_does_not_tell_whether_gpus_are_shared_by_mps(migrated: Answer) -> None:
    assert what(migrated(policy__yaml=policy(devicePlugin={"config": {"name": "c"}}))["lost"]) == {
        "spec.devicePlugin.config"
    }


def test_values_of_the_operators_chart_are_the_policy_that_it_makes(migrated: Answer) -> None:
    values = {
        "driver": {"enabled": False},
        "mig": {"strategy": "mixed"},
        "nfd": {"enabled": True},
        "devicePlugin": {"config": {"create": True, "name": "slices", "default": "any", "data": {"any": SHARED}}},
        "migManager": {"config": {"name": "parts"}},
    }
    found = migrated(values__yaml=yaml.safe_dump(values))
    assert found["values"]["migStrategy"] == "mixed"
    assert found["values"]["config"] == {"name": "slices", "default": "any"}
    assert found["values"]["mps"] == {"enabled": True}
    assert found["values"]["mig"]["config"]["name"] == "parts"
    assert any("clusterpolicies.nvidia.com/cluster-policy" in each["command"] for each in found["steps"])


def test_values_of_the_plugins_chart_have_the_same_names_here(migrated: Answer) -> None:
    values = {
        "migStrategy": "single",
        "deviceListStrategy": "envvar,cdi-cri",
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "team", "operator": "Exists"}],
        "gfd": {"enabled": True, "sleepInterval": "60s", "noTimestamp": True},
        "config": {"map": {"default": SHARED}},
        "nvidiaDriverRoot": "run/nvidia",
        "resources": {"limits": {"cpu": "1"}},
        "nfd": {"worker": {}},
    }
    found = migrated(values__yaml=yaml.safe_dump(values))
    taken = found["values"]
    assert (taken["migStrategy"], taken["deviceListStrategy"]) == ("single", ["envvar", "cdi-cri"])
    assert (taken["nodeSelector"], taken["tolerations"][-1]["key"]) == ({"pool": "gpu"}, "team")
    assert {each["name"]: each["value"] for each in taken["env"]} == {
        "GFD_NO_TIMESTAMP": "true",
        "GFD_SLEEP_INTERVAL": "60s",
    }
    assert (taken["mps"], taken["config"]["map"]) == ({"enabled": True}, {"default": SHARED})
    assert what(found["lost"]) == {"device plugin's chart: nvidiaDriverRoot", "device plugin's chart: resources"}


def test_values_of_the_exporters_chart_become_metrics_and_a_list_of_fields(migrated: Answer) -> None:
    values = {
        "serviceMonitor": {"enabled": True, "interval": "30s", "additionalLabels": {"release": "p"}},
        "service": {"port": 9500, "type": "NodePort"},
        "customMetrics": FIELDS,
        "arguments": ["-f", "/etc/dcgm-exporter/dcp-metrics-included.csv", "--no-hostname", "-r", "host:5555"],
        "extraEnv": [{"name": "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "value": "true"}],
    }
    found = migrated(values__yaml=yaml.safe_dump(values))
    metrics = found["values"]["metrics"]
    assert metrics["serviceMonitor"] == {"enabled": True, "interval": "30s", "labels": {"release": "p"}}
    assert (metrics["port"], metrics["collectors"]["key"]) == (9500, "dcgm-metrics.csv")
    assert {each["name"] for each in found["values"]["env"]} == {
        "DCGM_EXPORTER_NO_HOSTNAME",
        "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID",
    }
    assert what(found["lost"]) == {
        "customMetrics: DCGM_FI_DEV_NVSWITCH_X",
        "dcgm-exporter's chart: arguments: -r",
        "dcgm-exporter's chart: service.type",
    }
    assert any(FIELDS.splitlines()[1] in each["command"] for each in found["steps"])


@pytest.mark.parametrize("name", ["fields.csv", "fields.txt"])
def test_a_list_of_fields_is_known_by_its_ending_or_by_its_lines(migrated: Answer, name: str) -> None:
    found = migrated(**{name.replace(".", "__"): FIELDS})
    assert what(found["lost"]) == {f"{name}: DCGM_FI_DEV_NVSWITCH_X"}


def test_labels_of_nodes_go_on_to_mean_what_they_meant_or_are_named(migrated: Answer) -> None:
    labels = {"device-plugin_config": "sliced", "mig_config": "half"}
    gone = {"device-plugin_config": "gone", "mig_config": "quarter"}
    made = {"mig_config": "all-1g.10gb", "gpu_workload_config": "vm-passthrough"}
    nodes = "---\n".join(
        [node("a", **labels), node("b", **labels), node("c", **gone),
         node("d", **made)]
    )  # fmt: skip
    found = migrated(sliced__yaml=SLICED, parted__yaml=PARTED, nodes__yaml=nodes)
    assert what(found["lost"]) == {
        "label nvidia.com/device-plugin.config=gone (1 node)",
        "label nvidia.com/mig.config=quarter (1 node)",
    }
    assert what(found["kept"]) >= {
        "label nvidia.com/device-plugin.config=sliced (2 nodes)",
        "label nvidia.com/mig.config=half (2 nodes)",
        "label nvidia.com/mig.config=all-1g.10gb (1 node)",
        "label nvidia.com/gpu.workload.config=vm-passthrough (1 node)",
    }


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.yaml", "version: v1\nflags:\n  migStrategy: both\n", ":3: flags.migStrategy: found 'both', expected none,"),
        ("a.yaml", "version: v2\nflags: {}\n", ":1: version: found 'v2', expected v1"),
        ("a.yaml", "version: v1\nmig-configs:\n  a:\n  - {devices: x, mig-enabled: true}\n", ":4: mig-configs.a[0].d"),
        ("a.csv", "DCGM_FI_DEV_GPU_UTIL, histogram, x\n", "no field that NVML gives"),
        ("a.yaml", "migStrategy: both\n", ':1: migStrategy: found "both", expected none, single or mixed'),
        ("a.yaml", "driver: {enabled: true}\nmig: {strategy: both}\n", ':2: mig.strategy: found "both"'),
        ("a.yaml", "deviceIDStrategy: [uuid]\n", ":1: deviceIDStrategy: found a list, expected uuid or index"),
        ("a.yaml", "extraEnv: {}\nserviceMonitor: {}\n", ":1: extraEnv: found an object, expected a list"),
        ("a.yaml", "something: else\n", ":1: found keys something, expected an object with apiVersion"),
        ("a.yaml", config_map("c", a="version: v1\nflags:\n  migStrategy: both\n"), "flags.migStrategy: found 'both'"),
        ("a.yaml", config_map("a;b", a=SLICED), "metadata.name: found"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_allowed_is_a_line_and_exit_2(
    run: Run, tmp_path: Path, name: str, text: str, line: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    done = run("migrate", str(file))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {file}:")
    assert line in done.stderr


def test_a_line_of_a_file_in_a_config_map_is_that_of_the_manifest(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    data = "  a: |\n    version: v1\n    flags:\n      migStrategy: x\n"
    file.write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n{data}")
    assert f"{file}:8: flags.migStrategy: found 'x'" in run("migrate", str(file)).stderr


def test_single_nodes_need_an_operator(run: Run) -> None:
    done = run("migrate", str(EXAMPLES / "device-plugin.yaml"), "--node=gpu-1")
    assert done.exit_code == 2
    assert "expected a ClusterPolicy or GPUCluster" in done.stderr


def test_drivers_stay_the_operators_and_hooks_of_the_mig_manager_are_lost(migrated: Answer) -> None:
    driver = "apiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata: {name: gpus}\nspec: {}\n"
    hooks = config_map("hooks", a="version: v1\nhooks:\n  apply-start: []\n")
    found = migrated(policy__yaml=policy(), driver__yaml=driver, hooks__yaml=hooks)
    assert "NVIDIADriver gpus" in what(found["kept"])
    assert what(found["lost"]) == {"ConfigMap hooks, a"}


def daemon_set(name: str, image: str = "k8s-device-plugin:v1", **pod: Any) -> str:
    spec = {"containers": [{"name": "c", "image": image, **pod.pop("container", {})}], **pod}
    head = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "kube-system"}}
    return yaml.safe_dump({**head, "spec": {"template": {"spec": spec}}})


def offering(name: str, **labels: str) -> str:
    body = yaml.safe_load(node(name, **labels))
    return yaml.safe_dump({**body, "status": {"capacity": {"cpu": "8", "nvidia.com/gpu": "8"}}})


PLACE: dict[str, Any] = {
    "nodeSelector": {"pool": "gpu"},
    "priorityClassName": "high",
    "runtimeClassName": "nvidia",
    "affinity": {"nodeAffinity": {}},
}


@pytest.mark.parametrize("image", ["k8s-device-plugin:v1", "k8s-dra-driver-gpu:v25"])
def test_agents_go_where_the_pods_of_a_daemon_set_went(migrated: Answer, image: str) -> None:
    team = {"key": "team", "operator": "Exists"}
    values = migrated(d__yaml=daemon_set("p", image, tolerations=[team], **PLACE))["values"]
    assert {key: values.get(key) for key in PLACE} == PLACE
    assert team in values["tolerations"]
    assert len(values["tolerations"]) == 4


@pytest.mark.parametrize(
    ("nodes", "is_null"),
    [([], True), ([offering("a")], True), ([offering("a", gpu_present="true"), node("b")], False),
     ([offering("a", gpu_present="true"), offering("b")], True)],
)  # fmt: skip
def test_a_daemon_set_without_affinity_leads_agents_to_nodes_without_labels(
    migrated: Answer, nodes: list[str], is_null: bool
) -> None:
    values = migrated(d__yaml="---\n".join([daemon_set("p"), *nodes]))["values"]
    assert ("affinity" in values, values.get("affinity")) == (is_null, None)


def test_an_affinity_of_the_plugins_chart_holds_for_the_agents(migrated: Answer) -> None:
    for affinity in (PLACE["affinity"], None):
        values = migrated(v__yaml=yaml.safe_dump({"migStrategy": "none", "affinity": affinity}))["values"]
        assert values["affinity"] == affinity


def test_of_two_daemon_sets_what_the_second_says_differently_is_lost(migrated: Answer) -> None:
    single, mixed = ({"env": [{"name": "MIG_STRATEGY", "value": each}]} for each in ("single", "mixed"))
    found = migrated(
        d__yaml=daemon_set("a", container=single, nodeSelector={"pool": "a"})
        + "---\n"
        + daemon_set("b", container=mixed, nodeSelector={"pool": "b"})
    )
    assert (found["values"]["migStrategy"], found["values"]["nodeSelector"]) == ("single", {"pool": "a"})
    assert what(found["lost"]) == {"DaemonSet b: c: migStrategy=mixed", "DaemonSet b: nodeSelector"}


def test_an_argument_wins_over_the_variable_and_the_last_of_two_variables_over_the_first(migrated: Answer) -> None:
    env = [{"name": "MIG_STRATEGY", "value": "single"}]
    env += [{"name": "DEVICE_ID_STRATEGY", "value": each} for each in ("index", "uuid")]
    found = migrated(d__yaml=daemon_set("a", container={"env": env, "args": ["--mig-strategy=mixed"]}))
    assert (found["values"]["migStrategy"], found["values"]["deviceIDStrategy"]) == ("mixed", "uuid")
    assert found["lost"] == []


@pytest.mark.parametrize(
    ("args", "lost", "port"),
    [
        (["-f", "/etc/dcgm-exporter/dcp-metrics-included.csv", "-a", ":9401"], set(), 9401),
        (["-f", "/etc/dcgm-exporter/own.csv", "-a", "host"], {"args: -f", "args: -a"}, None),
    ],
)
def test_the_exporters_list_and_address_are_taken_or_named(
    migrated: Answer, args: list[str], lost: set[str], port: int | None
) -> None:
    found = migrated(d__yaml=daemon_set("e", "dcgm-exporter:4", container={"args": args}))
    assert {each.removeprefix("DaemonSet e: c: ") for each in what(found["lost"])} == lost
    assert found["values"].get("metrics", {}).get("port") == port


@pytest.mark.parametrize(
    ("mig", "strategy"), [({}, "single"), ({"mig": {}}, "single"), ({"mig": {"strategy": None}}, None)]
)
def test_values_of_the_operators_chart_have_its_defaults(
    migrated: Answer, mig: dict[str, Any], strategy: str | None
) -> None:
    values = {"driver": {"enabled": False}, "toolkit": {"enabled": True}, **mig}
    found = migrated(values__yaml=yaml.safe_dump(values))
    assert found["values"].get("migStrategy") == strategy
    assert "spec.migManager.config.default" in what(found["lost"])


@pytest.mark.parametrize(("default", "is_lost"), [("a", False), ("b", True)])
def test_a_default_that_names_no_file_of_the_config_map_is_lost(migrated: Answer, default: str, is_lost: bool) -> None:
    spec = policy(devicePlugin={"config": {"name": "c", "default": default}})
    found = migrated(policy__yaml=spec, files__yaml=config_map("c", a=SLICED))
    assert what(found["lost"]) == ({"spec.devicePlugin.config.default"} if is_lost else set())
