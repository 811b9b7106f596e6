"""``make e2e-versions``: the scenes in which a Kubernetes version can make a difference, on real older ones.

Run it as ``python -m hack.e2e.versions``. Exits with 0 if each test passed on each version, at its second try at the
latest, with 1 if one did not or could not run, and with 2 where the call or the machine cannot do it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.cluster.errors import UsageError
from hack.cluster.programs import binaries
from hack.e2e.plugin import PART
from hack.e2e.tier import SECOND_TRIES, Pytest, tier

PROGRAMS: Final = ("kubernetes", "containerd", "kwok", "helm", "training-operator")


@dataclass(frozen=True)
class Scene:
    """A file of the tier, or one test of it as pytest names it."""

    place: str
    why: str
    """What a version can change about it."""
    since: str = min(binaries.OLDER_KUBERNETES)
    instead: str = ""
    """On versions before ``since``, which lack what it is about: the place that asserts that they do."""

    def on(self, minor: str) -> str:
        return self.place if _number(minor) >= _number(self.since) else self.instead


_PLAIN_PODS: Final[Mapping[str, str]] = {
    "test_what_goes_to_a_queue_is_held_and_nobody_but_the_controller_lets_it_go": "the webhook's gate, policies' CEL",
    "test_the_pod_template_of_a_queued_deployment_is_stamped_whenever_it_is_written": "the webhook's stamp",
    "test_a_pod_and_a_group_wait_run_and_end_and_nothing_is_left": "a pod's life behind its gate",
    "test_a_lost_pod_is_replaced_at_its_own_place_and_one_too_many_goes": "node affinity of a pod behind its gate",
    "test_an_uninstall_leaves_no_finalizer": "finalizers, and gates that a person takes off",
}
"""Without those of StatefulSets and LeaderWorkerSets, which need MutatingAdmissionPolicies of their own."""
_MUTATING: Final[Mapping[str, str]] = {
    "tests/e2e/admission/test_webhooks.py": "MutatingAdmissionPolicies, which are there since 1.36",
    "tests/e2e/queues/test_job_kinds.py": "jobs suspended by such policies, and a suspended job's template",
}
_WEBHOOKS: Final = "tests/e2e/admission/test_webhooks_older.py"
"""The controller's webhooks do what those policies do."""
SCENES: Final = (
    # The kubelet: its device plugin and pod resources APIs, CDI, what lies in its folders.
    Scene("tests/e2e/sharing/test_pods.py", "registration, Allocate, GetPreferredAllocation and CDI are the kubelet's"),
    Scene("tests/e2e/agent/test_restarts.py", "checkpoints of the kubelet, and pod resources after it was killed"),
    Scene(
        "tests/e2e/sharing/test_mixed_node.py", "MIG, MPS and shared GPUs side by side; evictions by the chart's rights"
    ),
    Scene("tests/e2e/agent/test_apiserver.py", "labels, GpuNode and Events by server-side apply"),
    # Claims: most of what they can ask for is behind gates up to 1.35, and one of the gates is locked since 1.37.
    Scene("tests/e2e/claims/test_claims.py", "with the gates on: taints, shares and extended resources by claim"),
    Scene("tests/e2e/claims/test_mig.py", "with the gate on: counters in slices of their own"),
    Scene("tests/e2e/claims/test_older.py", "with the gates off, as 1.35 comes: what is left and told"),
    # Admission: CEL of CRDs and policies is compiled by the API server; webhooks stand in for policies that change.
    Scene("tests/e2e/admission/test_queue_api.py", "the schemas, CEL rules and policies of the queue API"),
    *(Scene(place, why, since="1.36", instead=_WEBHOOKS) for place, why in _MUTATING.items()),
    # What the controller does to pods and jobs, by the rules of the API server and of the Job controller.
    Scene("tests/e2e/queues/test_pods_core.py", "scheduling gates, node selectors and finalizers of plain pods"),
    *(Scene(f"tests/e2e/queues/test_plain_pods.py::{name}", why) for name, why in _PLAIN_PODS.items()),
    Scene("tests/e2e/queues/test_jobs_core.py", "a suspended Job's start time and template: the rules changed in 1.36"),
    Scene("tests/e2e/queues/test_status_put.py", "whose fields a PUT of a status takes: that changed in 1.35 and 1.36"),
    Scene("tests/e2e/queues/test_controller_watches.py", "watches that were compacted away, and resource versions"),
    Scene("tests/e2e/queues/test_kinds_come_and_go.py", "CRDs that come and go, discovery, JobSet, TrainJob, JobKinds"),
    Scene("tests/e2e/examples/test_articles.py", "Jobs and Kubeflow's kinds through queues, suspended by the webhook"),
    # The chart: Helm asks the API server what it has.
    Scene("tests/e2e/chart/test_agent.py", "the agents' policy and rights, DeviceClasses, CRDs"),
    Scene("tests/e2e/chart/test_life.py", "install, helm test, upgrade, rollback, uninstall: all programs in pods"),
    Scene("tests/e2e/test_rights.py", "what the API server asks rights for: it comes last and judges all others"),
)
"""Left out is what runs no Kubernetes (NVML, rules, pages), what asks of it only what a scene above asks too (Volcano's
and KAI's manifests, gangs, fleets, dashboards).
"""


def places(minor: str, only: str = "") -> tuple[str, ...]:
    """Where pytest looks, each once; ``only``: those with one of these words, behind commas, in their names.

    Raises UsageError for a word that is in none.
    """
    scenes = dict.fromkeys(scene.on(minor) for scene in SCENES)
    words = only.split(",") if only else []
    for word in words:
        if not word or not any(word in place for place in scenes):
            files = sorted({Path(place.partition("::")[0]).stem for place in scenes})
            raise UsageError(f"--only: found {word!r}, expected a part of a name, such as {', '.join(files[:4])}")
    return tuple(place for place in scenes if not words or any(word in place for word in words))


def verdict(version: str, passed: int, failed: int, code: int) -> str:
    """The last line of a version; ``code``: the tier's, which is pytest's."""
    broken = "" if code in (0, 1) else f"; pytest could not run all (exit code {code})"
    return f"e2e-versions: {version}: {passed} passed, {failed} failed{broken}"


def run(minor: str, only: str) -> int:
    """Exit code of one version."""
    version = binaries.OLDER_KUBERNETES[minor]
    where = places(minor, only)
    _say(f"{version}: {len(where)} of {len(places(minor))} scenes")
    environment = {binaries.KUBERNETES_ENV: minor, PART: "1"}
    build = [sys.executable, "-m", "hack.cluster", "build", *PROGRAMS]
    built = subprocess.run(build, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, check=False)
    if built.returncode:
        _say(f"{version}: could not be built")
        return built.returncode
    with tempfile.TemporaryDirectory(prefix="tessera-e2e-") as name:
        pytest = Pytest(Path(name), where, environment)
        code = tier(pytest, of_some=bool(only), told=SECOND_TRIES.with_stem(f"second-tries-{version}"))
    print(verdict(version, len(pytest.passed), len(pytest.failed), code), flush=True)
    return min(code, 1)


def _say(what: str) -> None:
    print(f"e2e-versions: {what}", flush=True)


def _number(minor: str) -> int:
    return int(minor.partition(".")[2])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack.e2e.versions", description="Scenes on real Kubernetes of older versions."
    )
    parser.add_argument("--version", default="", metavar="MINOR", help=f"of {', '.join(binaries.OLDER_KUBERNETES)}")
    parser.add_argument("--only", default="", metavar="WORD,...", help="scenes with one of these in their names")
    return parser


def _chosen(minor: str) -> tuple[str, ...]:
    """The newest first."""
    if minor and minor not in binaries.OLDER_KUBERNETES:
        known = ", ".join(binaries.OLDER_KUBERNETES)
        newest = binaries.KUBERNETES_VERSION.rpartition(".")[0]
        raise UsageError(f"--version: found {minor!r}, expected one of {known}; make e2e is for {newest}")
    return (minor,) if minor else tuple(binaries.OLDER_KUBERNETES)


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    try:
        minors = _chosen(args.version)
        for minor in minors:
            places(minor, args.only)
        return max([run(minor, args.only) for minor in minors])
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
