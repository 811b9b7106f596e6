"""What a pod set asks for, as its Workload says it."""

from controller.jobs.framework.podsets import JobPodSet, infos
from controller.jobs.framework.raw import Json
from controller.objects.decode import decode
from controller.objects.meta import to_json
from controller.objects.placeencoding import Domain, encode
from controller.objects.workload import Workload
from controller.scheduler.model.gates import FeatureGates


def test_of_environment_variables_of_one_name_the_last_counts() -> None:
    repeated = [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}]
    template: Json = {"spec": {"containers": [{"name": "c", "env": repeated}], "initContainers": [{"name": "i"}]}}
    body = JobPodSet(name="main", count=1, template=template).as_json()
    assert body["template"]["spec"]["containers"][0]["env"] == [{"name": "B"}, {"name": "A", "value": "2"}]
    assert template["spec"]["containers"][0]["env"] is repeated


def test_what_a_start_puts_in_follows_its_gates() -> None:
    placed = to_json(encode(("rack",), [Domain(("r1",), 1)]))
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "topologyAssignment": placed}]}
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1}]}
    workload = decode({"metadata": {"name": "w"}, "spec": spec, "status": {"admission": admission}}, Workload)

    def start(**gates: bool) -> tuple[list[str], list[str], tuple[str, ...]]:
        (info,) = infos(workload, lambda _: None, elastic=False, gates=FeatureGates(gates))
        short = (key.removeprefix("kueue.x-k8s.io/") for key in info.own_labels)
        noted = (key.removeprefix("kueue.x-k8s.io/") for key in info.own_annotations)
        return sorted(short), sorted(noted), info.scheduling_gates

    queues, places = ["cluster-queue-name", "local-queue-name", "podset"], ["podset-unconstrained-topology", "workload"]
    assert start() == (queues, places, ("kueue.x-k8s.io/topology",))
    assert start(AssignQueueLabelsForPods=False)[0] == ["podset"]
    assert start(TopologyAwareScheduling=False) == (queues, ["workload"], ())
