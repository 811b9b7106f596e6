"""The example that tells checkpoints: it does so by the rights of its Role, and the controller counts what it told."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from controller.scheduler.preemption.price import checkpoints_of, lost_s
from kube.resources import Resource
from kube.testing import FakeApiServer

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "checkpoint"
JOBS = Resource("batch", "v1", "jobs", "Job", namespaced=True)
MOST_LINES = 40


def manifests() -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / "job.yaml").read_text())}


async def told(server: FakeApiServer, folder: Path, **env: str) -> tuple[int, str]:
    """The exit code of the program in a pod of the Job, and what it says."""
    (folder / "namespace").write_text("team")
    (folder / "token").write_text("secret\n")
    given = {**os.environ, "SERVICE_ACCOUNT": str(folder), "API_SERVER": server.config.server, "JOB_NAME": "training"}
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(FOLDER / "checkpoint.py"), env=given | env, stderr=asyncio.subprocess.PIPE
    )
    _, said = await program.communicate()
    return program.returncode or 0, said.decode()


async def test_a_checkpoint_that_is_told_counts_from_then_on(tmp_path: Path) -> None:
    began_s = float(int(time.time())) - 600
    async with FakeApiServer() as server:
        server.token = "secret"
        server.create(JOBS, "training", manifests()["Job"], namespace="team")
        assert await told(server, tmp_path) == (0, "")
        (call,) = [each for each in server.requests if each.method != "GET"]
        annotations = server.get(JOBS, "training", namespace="team")["metadata"]["annotations"]
    assert (call.method, call.path) == ("PATCH", "/apis/batch/v1/namespaces/team/jobs/training")
    assert annotations["tessera.dev/checkpoint-interval"] == "10m", "what others wrote stays"
    assert lost_s(checkpoints_of(annotations), began_s, time.time()) < 60


async def test_a_report_that_fails_is_one_line_and_no_error_of_the_training(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        server.token = "secret"
        server.refuse = lambda method, _: 403 if method == "PATCH" else None
        code, said = await told(server, tmp_path)
        assert (code, said.count("\n")) == (1, 1)
        assert said.startswith("the checkpoint was not told: HTTP Error 403")
        server.down = True
        assert (await told(server, tmp_path))[0] == 1
    code, said = await told(server, tmp_path, API_SERVER="http://127.0.0.1:9")
    assert (code, said.count("\n")) == (1, 1)


def test_the_program_is_short_and_its_role_has_one_right() -> None:
    assert len((FOLDER / "checkpoint.py").read_text().splitlines()) <= MOST_LINES
    made = manifests()
    assert made["Role"]["rules"] == [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["patch"]}]
    (subject,) = made["RoleBinding"]["subjects"]
    pod = made["Job"]["spec"]["template"]["spec"]
    assert subject["name"] == pod["serviceAccountName"] == made["ServiceAccount"]["metadata"]["name"]
    (named,) = pod["containers"][0]["env"]
    assert (named["name"], named["valueFrom"]["fieldRef"]["fieldPath"]) == (
        "JOB_NAME",
        "metadata.labels['batch.kubernetes.io/job-name']",
    )
