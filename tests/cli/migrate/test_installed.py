"""A Tessera that is installed already is upgraded and goes back to its revision: it is never installed over, and never
uninstalled by a way back.
"""

import json
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.cli.migrate.conftest import Answer
from tests.cli.migrate.manifests import Json, cluster_policy, dumped, queue_programs, static_plugin, workload

ROOT = Path(__file__).parents[3]
LEFT = {"nvidia.com/gpu.deploy.device-plugin": "false"}
CRDS = [path.stem for path in (ROOT / "charts" / "tessera" / "crds").glob("*.yaml")]


def ours(
    kind: str = "DaemonSet", release: str | None = "tessera", space: str = "tessera-system", **pod: object
) -> Json:
    """A workload as Tessera's chart has it in a cluster."""
    found = workload(kind, f"tessera-{kind.lower()}", space, {"name": "c", "image": "example.com/tessera-agent"}, **pod)
    found["metadata"]["labels"] = {"helm.sh/chart": "tessera-0.9.0", "app.kubernetes.io/managed-by": "Helm"}
    if release:
        notes = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": space}
        found["metadata"]["annotations"] = notes
    return found


def lines(found: Json) -> list[str]:
    return [each[key] for each in found["steps"] for key in ("command", "undo")]


@pytest.mark.parametrize("system", ["kueue", "volcano", "kai"])
def test_queues_come_to_an_installed_tessera_by_an_upgrade_of_it(migrated: Answer, system: str) -> None:
    found = migrated(all__yaml=dumped(*queue_programs(system), ours()))
    told = " ".join(lines(found))
    assert not [
        each for each in ("helm install", "helm uninstall", " namespaces ", "-f charts/tessera/crds") if each in told
    ]
    (step,) = (each for each in found["steps"] if "helm upgrade tessera charts/tessera" in each["command"])
    assert "--reset-then-reuse-values" in step["command"]
    assert "helm rollback tessera" in step["undo"]
    assert set(found["values"]) == {"controller"}
    assert "release tessera in tessera-system" in {each["what"] for each in found["kept"]}


def test_a_controller_that_is_there_keeps_its_policy_and_its_kinds(migrated: Answer) -> None:
    found = migrated(all__yaml=dumped(*queue_programs("kai"), ours(), ours("Deployment")))
    assert found["values"] == {"controller": {"enabled": True, "kai": {"enabled": True}}}
    assert "customresourcedefinitions" not in " ".join(lines(found))


def test_a_policy_without_a_device_plugin_changes_nothing_for_agents_that_are_there(migrated: Answer) -> None:
    policy = cluster_policy(devicePlugin={"enabled": False})
    found = migrated(all__yaml=dumped(policy, *queue_programs("kueue"), ours()))
    assert set(found["values"]) == {"controller"}
    alone = migrated(all__yaml=dumped(policy, ours()))
    assert (alone["values"], alone["steps"]) == ({}, [])
    assert [each["what"] for each in alone["kept"]] == ["release tessera in tessera-system"]


def test_a_daemon_set_that_a_plan_has_stopped_is_not_moved_again(migrated: Answer) -> None:
    stopped = static_plugin()
    stopped["spec"]["template"]["spec"]["nodeSelector"] = {"tessera.dev/replaced": "true"}
    found = migrated(all__yaml=dumped(stopped, *queue_programs("kueue"), ours()))
    assert set(found["values"]) == {"controller"}


def test_more_nodes_go_over_to_agents_that_wait_for_their_label(migrated: Answer) -> None:
    found = migrated("--node=gpu-2", all__yaml=dumped(cluster_policy(), ours(nodeSelector=LEFT)))
    assert found["values"]["nodeSelector"] == LEFT
    assert "controller" not in found["values"]
    assert [each for each in lines(found) if "helm upgrade" in each]


@pytest.mark.parametrize(
    ("objects", "words", "said"),
    [
        ([ours(release="gpus")], (), "found Tessera installed already, as release gpus in tessera-system, expected"),
        ([ours(space="team")], (), "as release tessera in team, expected release tessera in tessera-system"),
        ([ours(release=None)], (), "as manifests without a Helm release, expected"),
        ([cluster_policy(), ours()], (), "found agents whose place is not the plan's, expected none"),
        ([cluster_policy(), ours(nodeSelector={"a": "b"})], ("--node=gpu-1",), "found agents whose place is not"),
        ([static_plugin(), ours()], (), "found agents whose place is not the plan's"),
    ],
)
def test_where_no_upgrade_is_known_to_be_right_one_line_says_so(
    run: Run, tmp_path: Path, objects: list[Json], words: tuple[str, ...], said: str
) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(dumped(*objects, *queue_programs("kueue")))
    done = run("migrate", str(file), *words)
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert said in done.stderr


def shell(line: str, kubectl: str) -> list[str]:
    """What a shell asks Helm for, and to create, delete or label, where ``kubectl get`` answers by this script."""
    script = f"""
kubectl() {{ if [ $1 = get ]; then {kubectl}; else echo "kubectl $*" >&2; fi; }}
helm() {{ echo "helm $*" >&2; }}
{line}"""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stderr.splitlines()


def test_an_upgrade_goes_back_to_the_revision_before_it_however_often_it_was_run(migrated: Answer) -> None:
    found = migrated(all__yaml=dumped(*queue_programs("kueue"), ours()))
    (step,) = (each for each in found["steps"] if "helm upgrade" in each["command"])
    first = shell(step["command"], "case $2 in secrets) echo 7;; esac")
    assert first[0].startswith("kubectl create configmap before-upgrade-")
    assert (first[0].endswith("--from-literal=revision=7"), first[1].startswith("helm upgrade")) == (True, True)
    (again,) = shell(step["command"], "echo configmap/there")
    assert again.startswith("helm upgrade")
    assert shell(step["command"], ":") == []
    back = shell(step["undo"], "echo 7")
    assert back[0] == "helm rollback tessera 7 --namespace tessera-system --wait"
    assert shell(step["undo"], ":") == []


def test_kinds_that_are_there_are_neither_changed_nor_deleted(migrated: Answer) -> None:
    found = migrated(all__yaml=dumped(*queue_programs("volcano"), ours()))
    (step,) = (each for each in found["steps"] if "charts/tessera/crds" in each["command"])
    assert shell(step["command"], "echo crd") == []
    asked = [each for each in shell(step["command"], ":") if each.startswith("kubectl create")]
    assert len(asked) == len(CRDS)
    words = shlex.split(step["undo"])
    mark = words[-1].removeprefix("--selector=")
    assert (words[:2], mark in step["command"]) == (["kubectl", "delete"], True)


def test_the_values_of_an_upgrade_are_the_plans(migrated: Answer) -> None:
    found = migrated(all__yaml=dumped(*queue_programs("kueue"), ours()))
    (step,) = (each for each in found["steps"] if "helm upgrade" in each["command"])
    assert json.loads(next(each for each in shlex.split(step["command"]) if each.startswith('{"'))) == found["values"]
    assert yaml.safe_dump(found["values"])
