"""The pod of a process, from whatever cgroup path a node writes."""

from pathlib import Path

import pytest

from agent.kubelet.containers import ContainerTable, PodContainer
from agent.telemetry.owners import CgroupOwner, owners_of, parse

ID = "8a5c" * 16
INNER = "b0b1" * 16
UID = "0d9c3c9e-4d5b-4a6f-9b1e-2f6d2b1f7a11"
STATIC = "f3a1" * 8
UNDER = UID.replace("-", "_")

SLICE = f"kubepods-burstable-pod{UNDER}.slice"
QOS = "kubepods.slice/kubepods-burstable.slice"

LAYOUTS = {
    "v2 containerd systemd": f"0::/{QOS}/{SLICE}/cri-containerd-{ID}.scope",
    "v2 containerd systemd, guaranteed": f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/cri-containerd-{ID}.scope",
    "v2 containerd cgroupfs": f"0::/kubepods/besteffort/pod{UID}/{ID}",
    "v2 CRI-O": f"0::/{QOS}/{SLICE}/crio-{ID}.scope",
    "v2 CRI-O, cgroup inside": f"0::/{QOS}/{SLICE}/crio-{ID}.scope/container",
    "v2 Docker systemd": f"0::/{QOS}/{SLICE}/docker-{ID}.scope",
    "v2 kubelet with a root of its own": f"0::/kubelet.slice/kubelet-{SLICE}/cri-containerd-{ID}.scope",
    "v2 node in a container": f"0::/docker/{INNER}/kubelet/kubepods/burstable/pod{UID}/{ID}",
    "v2 containerd without slices": f"0::/system.slice/containerd.service/{SLICE}:cri-containerd:{ID}",
    "v2 Docker inside a pod": f"0::/kubepods/burstable/pod{UID}/{ID}/docker/{INNER}",
    "v2 systemd inside a pod": f"0::/kubepods/pod{UID}/{ID}/system.slice/job.service",
    "v2 kind, systemd": (
        f"0::/docker/{INNER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        f"kubelet-{SLICE}/cri-containerd-{ID}.scope"
    ),
    "v2 kind on a systemd host": f"0::/system.slice/docker-{INNER}.scope/kubelet/kubepods/pod{UID}/{ID}",
    "v2 kind in a pod": f"0::/kubepods/pod{STATIC}/{INNER}/docker/{INNER}/kubelet/kubepods/pod{UID}/{ID}",
    "v2 CRI-O cgroupfs": f"0::/kubepods/besteffort/pod{UID}/crio-{ID}",
    "v2 Docker cgroupfs": f"0::/kubepods/burstable/pod{UID}/{ID}",
    "v2 Podman": f"0::/machine.slice/{SLICE}/libpod-{ID}.scope/container",
    "v2 a cgroup below the container": f"0::/{QOS}/{SLICE}/cri-containerd-{ID}.scope/user.slice/worker",
    "hybrid": f"12:pids:/{QOS}/{SLICE}/cri-containerd-{ID}.scope\n1:name=systemd:/{QOS}/{SLICE}/x\n0::/system.slice\n",
    "hybrid, v2 first": f"0::/system.slice/containerd.service\n5:cpu,cpuacct:/kubepods/pod{UID}/{ID}\n",
    "v1 CRI-O": f"9:freezer:/{QOS}/{SLICE}/crio-{ID}.scope\n",
    "v1 a colon in the path": f"4:memory:/kubepods/pod{UID}/{ID}/a:b\n",
    "v1 cgroupfs": f"12:memory:/kubepods/pod{UID}/{ID}\n3:devices:/kubepods/pod{UID}/{ID}\n1:name=systemd:/x\n",
    "v1 systemd": f"11:blkio:/{QOS}/{SLICE}/docker-{ID}.scope\n0::/\n",
    "v1 one controller elsewhere": f"5:cpuset:/docker/{INNER}\n4:memory:/kubepods/pod{UID}/{ID}\n",
}
NO_POD_UID = {"v2 containerd without slices"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_container_is_found_in_every_layout(name: str) -> None:
    found = parse(LAYOUTS[name])
    assert found is not None
    assert found.container_ids[0] == ID
    assert found.pod_uid == (None if name in NO_POD_UID else UID)


def test_a_static_pods_uid_has_no_dashes() -> None:
    assert parse(f"0::/kubepods/burstable/pod{STATIC}/{ID}") == CgroupOwner((ID,), STATIC)


def test_a_path_that_begins_above_the_readers_own_namespace_still_ends_in_the_container() -> None:
    assert parse(f"0::/../../kubepods-pod{UNDER}.slice/cri-containerd-{ID}.scope") == CgroupOwner((ID,), UID)
    assert parse(f"0::/../cri-containerd-{ID}.scope") == CgroupOwner((ID,))


def test_without_a_pod_in_sight_every_container_is_a_candidate(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text(f"0::/docker/{INNER}/k8s.io/{ID}\n")
    pods = ContainerTable()
    pods.put("u", [(ID, PodContainer("team", "train", "main"))])
    assert owners_of([7], tmp_path, pods) == {7: PodContainer("team", "train", "main")}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/",
        "0::/init.scope",
        "0::/user.slice/user-1000.slice/session-2.scope",
        "nonsense",
        f"0::/kubepods/pod{UID}",
        f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-conmon-{ID}.scope",
        f"0::/kubepods/pod{UID}/{ID[:-1]}",
        f"0::/kubepods/pod{UID}/{ID}0",
    ],
)
def test_what_runs_in_no_pods_container_is_nobodys(text: str) -> None:
    assert parse(text) is None


def test_processes_become_pods_by_way_of_their_containers(tmp_path: Path) -> None:
    for pid, container in ((10, ID), (11, INNER), (12, "c" * 64)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{UID}/{container}\n")
    train, serve = PodContainer("team", "train", "main"), PodContainer("team", "serve", "main")
    pods = ContainerTable()
    pods.put("u1", [(ID, train)])
    pods.put("u2", [(INNER, serve)])
    assert owners_of([10, 11, 12, 13, 10], tmp_path, pods) == {10: train, 11: serve}
    (tmp_path / "14/cgroup").mkdir(parents=True)  # reading fails after opening, as of a process that ends meanwhile
    assert owners_of([10, 14], tmp_path, pods) == {10: train}
    pods.put("u1", [("d" * 64, train)])  # its container was restarted
    pods.drop("u2")
    assert owners_of([10, 11], tmp_path, pods) == {}
    assert len(pods) == 1
    assert owners_of([10], tmp_path, ContainerTable()) == {}
