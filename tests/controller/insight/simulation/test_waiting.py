"""Who waits behind what never ends is told that nothing is known, whatever others took."""

from typing import Any

import pytest

from tests.support.controller.manifests import GPU, cluster_queue, flavor, job, local_queue, run

Json = dict[str, Any]


@pytest.mark.parametrize("ended", [0, 1, 12])
def test_what_others_took_says_nothing_of_a_job_that_runs_for_ever(ended: int) -> None:
    before = [job(f"ended-{number}", 4, runtime="10s", arrival=f"{number * 10}s") for number in range(ended)]
    at_last = f"{ended * 10 + 1}s"
    world = [flavor(), cluster_queue(gpus=4), local_queue(), *before]
    final = run(*world, job("stays", 4, arrival=at_last), job("waits", 4, arrival=at_last)).final
    (waits,) = final.pending
    assert waits.workload == "ns/waits"
    assert waits.forecast is None or waits.forecast["fromSeconds"] is None


def test_jobs_of_two_kinds_may_have_one_name() -> None:
    template: Json = {"containers": [{"name": "c", "resources": {"requests": {GPU: 1}}}], "restartPolicy": "Never"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": template,
    }
    final = run(flavor(), cluster_queue(gpus=4), local_queue(), job("x"), pod).final
    assert set(final.running) == {"ns/x", "ns/x.pod"}
