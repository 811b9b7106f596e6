"""Job kinds by the names that Kueue's configuration gives them."""

from typing import Final

from controller.config.settings import JOB, POD

POD_BASED: Final = frozenset({POD, "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"})

KNOWN: Final = POD_BASED | {
    JOB,
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/mxjob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
}

MANAGED: Final = frozenset({JOB, POD})
"""Those that this version manages."""
