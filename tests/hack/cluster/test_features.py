"""The list of what an API server has, from answers in the form that a real one gives."""

import json

from hack.cluster import features
from hack.cluster.errors import ClusterError

METRICS = """\
# HELP kubernetes_feature_enabled [BETA] This metric records the data about the stage and enablement of a k8s feature.
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="WorkloadWithJob",stage="ALPHA"} 0
kubernetes_feature_enabled{name="DRADeviceTaints",stage=""} 1
kubernetes_feature_enabled{name="DRAConsumableCapacity",stage="BETA"} 1
kubernetes_build_info{git_version="v1.37.2"} 1
"""
ANSWERS = {
    "/api/v1": {"groupVersion": "v1", "resources": [{"name": "pods/status"}, {"name": "pods"}]},
    "/apis": {
        "groups": [
            {"name": "resource.k8s.io", "versions": [{"groupVersion": "resource.k8s.io/v1"}]},
            {"name": "batch", "versions": [{"groupVersion": "batch/v1"}]},
        ]
    },
    "/apis/batch/v1": {"groupVersion": "batch/v1", "resources": [{"name": "jobs"}]},
    "/apis/resource.k8s.io/v1": {"groupVersion": "resource.k8s.io/v1", "resources": [{"name": "resourceclaims"}]},
}


def test_resources_and_gates_are_listed_in_an_order_of_their_own() -> None:
    bodies = {**{path: json.dumps(body) for path, body in ANSWERS.items()}, "/metrics": METRICS}
    assert list(features.lines(bodies.__getitem__)) == [
        "api v1 pods",
        "api v1 pods/status",
        "api batch/v1 jobs",
        "api resource.k8s.io/v1 resourceclaims",
        "gate DRAConsumableCapacity BETA on",
        "gate DRADeviceTaints GA on",
        "gate WorkloadWithJob ALPHA off",
    ]


def test_metrics_that_are_no_gates_are_left_out() -> None:
    assert features.gates("") == []
    assert not any("build_info" in line for line in features.gates(METRICS))


def test_a_group_whose_server_does_not_answer_is_a_line_and_the_rest_is_told() -> None:
    def ask(path: str) -> str:
        if path == "/apis/batch/v1":
            raise ClusterError("ServiceUnavailable")
        return METRICS if path == "/metrics" else json.dumps(ANSWERS[path])

    found = list(features.lines(ask))
    assert "api batch/v1 does not answer" in found
    assert "api resource.k8s.io/v1 resourceclaims" in found
    assert "gate DRADeviceTaints GA on" in found
