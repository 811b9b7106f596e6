"""What holds of the plugins of any job."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.foreign.jobs.plugins import table
from controller.foreign.rules.volcanodefaults import PLUGINS

Json = dict[str, Any]
ROLES = ("master", "worker", "head", "ps", "chief", "evaluator", "side-car")
CLUSTER = ("ps", "worker", "chief", "evaluator")


@st.composite
def jobs(draw: st.DrawFn) -> Json:
    names = draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=4, unique=True))
    tasks = [
        {
            "name": name,
            "replicas": draw(st.integers(0, 4)),
            "template": {"spec": draw(st.sampled_from(({}, {"hostname": "h"}, {"subdomain": "s"})))},
        }
        for name in names
    ]
    known = [name for name in PLUGINS if name != "ray" or "head" in names]
    plugins: dict[str, list[str]] = {name: [] for name in draw(st.lists(st.sampled_from(known), unique=True))}
    metadata = {"name": draw(st.sampled_from(("j", "a-job"))), "namespace": "n", "uid": "u"}
    return {"metadata": metadata, "spec": {"tasks": tasks, "plugins": plugins}}


def pods(job: Json) -> dict[tuple[str, int], Json]:
    made, write = {}, table.writer(job)
    for task in job["spec"]["tasks"]:
        for index in range(task["replicas"]):
            name = f"{job['metadata']['name']}-{task['name']}-{index}"
            spec = {**task["template"]["spec"], "containers": [{"name": task["name"]}, {"name": "other"}]}
            pod = {"metadata": {"name": name}, "spec": spec}
            made[task["name"], index] = write(task["name"], index, pod)
    return made


def variables(pod: Json) -> Json:
    return {each["name"]: each for each in pod["spec"]["containers"][0].get("env", ())}


@settings(max_examples=12)
@given(jobs())
def test_all_pods_are_told_the_same_hosts_and_each_is_one_of_them(job: Json) -> None:
    before = copy.deepcopy(job)
    made = pods(job)
    assert job == before
    if "plugin-svc" not in table.controlled(job):
        return
    data = next(each.body["data"] for each in table.objects(job) if each.body["kind"] == "ConfigMap")
    taken = [{name: each for name, each in variables(pod).items() if name.startswith("VC_")} for pod in made.values()]
    listed = [{name: each for name, each in each.items() if name != "VC_TASK_INDEX"} for each in taken]
    assert all(each == listed[0] for each in listed)
    assert all(each["valueFrom"]["configMapKeyRef"]["key"] in data for found in listed for each in found.values())
    for (task, _), pod in made.items():
        name = f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}"
        assert name in data[f"{task.replace('-', '_')}.host"].split("\n")


@settings(max_examples=12)
@given(jobs())
def test_ranks_fill_the_world_and_clusters_name_every_pod(job: Json) -> None:
    made = pods(job)
    found = [variables(pod) for pod in made.values()]
    replicas = {task["name"]: task["replicas"] for task in job["spec"]["tasks"]}
    if "pytorch" in job["spec"]["plugins"] and "master" in replicas:
        world = replicas["master"] + replicas.get("worker", 0)
        assert {each["WORLD_SIZE"]["value"] for each in found} <= {str(world)}
        ranks = {each["RANK"]["value"] for each in found if "RANK" in each}
        if replicas["master"] == 1:
            assert ranks == set(map(str, range(world)))
    if "tensorflow" in job["spec"]["plugins"] and (len(replicas) > 1 or sum(replicas.values()) != 1):
        for each in found:
            config = json.loads(each["TF_CONFIG"]["value"])
            expected = {role: count for role, count in replicas.items() if role in CLUSTER and count}
            assert {role: len(hosts) for role, hosts in config["cluster"].items()} == expected


@settings(max_examples=12)
@given(jobs())
def test_names_of_variables_ports_volumes_and_objects_are_unique(job: Json) -> None:
    listed = [(each.body["kind"], each.body["metadata"]["name"]) for each in table.objects(job)]
    assert len(set(listed)) == len(listed)
    assert all(each.body["metadata"]["ownerReferences"][0]["uid"] == "u" for each in table.objects(job))
    for pod in pods(job).values():
        volumes = [each["name"] for each in pod["spec"].get("volumes", ())]
        assert len(set(volumes)) == len(volumes)
        for container in pod["spec"]["containers"]:
            for key in ("env", "ports", "volumeMounts"):
                names = [json.dumps(each.get("mountPath") or each["name"]) for each in container.get(key, ())]
                assert len(set(names)) == len(names)
