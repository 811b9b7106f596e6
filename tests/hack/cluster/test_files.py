"""What is written for the cluster's programs: configurations, images, state. No process is started here."""

import hashlib
import io
import json
import tarfile
import tomllib
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from hack.cluster.controlplane import controlplane, pki, render, stages
from hack.cluster.errors import ClusterError, UsageError
from hack.cluster.layout import ClusterPaths, NodePaths
from hack.cluster.nodes.network import Addresses, Network
from hack.cluster.processes import Identity
from hack.cluster.programs import debian, images
from hack.cluster.state import Spec, State, claimed_ports, decode, encode, load, save

ADDRESSES = Addresses(Network("198.18.16.0/20"))
PATHS = NodePaths(Path("/var/tmp/tessera/t/node-1"))


def a_state(**changes: object) -> State:
    values: dict[str, object] = {
        "spec": Spec(nodes=("a", "b"), kwok_nodes=2, kubelet_config={"maxPods": 7}),
        "phase": "starting",
        "cluster_cidr": str(ADDRESSES.cluster),
        "ports": {"etcd": 20001, "etcd-peer": 20002, "apiserver": 20003},
        "processes": {"etcd": Identity(12, 345)},
    }
    return State(**{**values, **changes})  # type: ignore[arg-type] # a test's shorthand for keyword arguments


def kubelet_config(overrides: dict[str, object]) -> dict[str, object]:
    text = render.kubelet_config(
        paths=PATHS, client_ca="/ca", addresses=ADDRESSES, port=1, healthz_port=2, cgroup="/c", overrides=overrides
    )
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def test_a_kubelet_keys_override_wins() -> None:
    assert kubelet_config({})["nodeStatusUpdateFrequency"] == "1s"
    assert kubelet_config({"nodeStatusUpdateFrequency": "9s"})["nodeStatusUpdateFrequency"] == "9s"


def test_a_claim_that_could_not_be_prepared_is_tried_again_within_seconds() -> None:
    assert kubelet_config({})["syncFrequency"] == "10s"


def test_a_kubelet_refuses_strangers() -> None:
    config = kubelet_config({})
    assert config["authentication"] == {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": "/ca"},
    }
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["readOnlyPort"] == 0


def test_containerd_reads_the_node_s_own_folders() -> None:
    config = tomllib.loads(render.containerd_config(paths=PATHS, snapshotter="native", cni_bin_dir=Path("/cni")))
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    assert config["version"] == 3
    assert config["root"] == str(PATHS.containerd_root)
    assert runtime["cdi_spec_dirs"] == [str(PATHS.cdi_dir)]
    assert runtime["cni"] == {"bin_dirs": ["/cni"], "conf_dir": str(PATHS.cni_dir)}
    assert config["plugins"]["io.containerd.cri.v1.images"]["pinned_images"] == {"sandbox": render.PAUSE_IMAGE}


def test_nodes_take_pod_addresses_from_slices_of_their_own() -> None:
    seen: list[Network] = []
    for index in range(3):
        own = ADDRESSES.node_slice(index)
        text = render.cni_config(bridge="br", pods=ADDRESSES.pods, own=own, gateway=ADDRESSES.gateway)
        [[found]] = json.loads(text)["plugins"][0]["ipam"]["ranges"]
        assert IPv4Address(found["rangeStart"]) in own
        assert IPv4Address(found["rangeEnd"]) in own
        assert ADDRESSES.gateway not in own
        assert own.subnet_of(ADDRESSES.pods)
        assert not any(own.overlaps(each) for each in seen)
        seen.append(own)


def test_the_bridge_plugin_is_kept_from_the_machine_s_forwarding() -> None:
    own = ADDRESSES.node_slice(0)
    text = render.cni_config(bridge="br", pods=ADDRESSES.pods, own=own, gateway=ADDRESSES.gateway)
    [plugin] = json.loads(text)["plugins"]
    assert (plugin["isGateway"], plugin["ipMasq"]) == (False, False)


def test_extra_arguments_come_last_so_that_they_win() -> None:
    state = a_state(spec=Spec(apiserver_args=("--emulated-version=1.35",)))
    arguments = controlplane.apiserver(ClusterPaths(Path("/x/t")), state)
    assert arguments[-1] == "--emulated-version=1.35"
    assert "--bind-address=127.0.0.1" in arguments


def test_an_audit_log_is_written_where_a_folder_with_its_policy_is_named() -> None:
    paths = ClusterPaths(Path("/x/t"))
    assert not [each for each in controlplane.apiserver(paths, a_state()) if each.startswith("--audit")]
    audited = controlplane.apiserver(paths, a_state(audit="/y"))
    assert {"--audit-policy-file=/y/policy.yaml", "--audit-log-path=/y/t.log"} <= set(audited)


def test_etcd_takes_only_clients_with_a_certificate() -> None:
    arguments = controlplane.etcd(ClusterPaths(Path("/x/t")), a_state())
    assert {"--client-cert-auth=true", "--peer-client-cert-auth=true"} <= set(arguments)
    assert "--listen-client-urls=https://127.0.0.1:20001" in arguments


def test_every_node_has_a_token_as_its_own_user() -> None:
    text, tokens = pki.token_file(["node-1"])
    lines = [line.split(",", 3) for line in text.splitlines()]
    assert [tokens["system:node:node-1"], "system:node:node-1", "system:node:node-1", '"system:nodes"'] in lines
    assert len({line[0] for line in lines}) == len(lines)


def test_an_image_s_names_are_the_hashes_of_what_they_name() -> None:
    layer = images.busybox_layer(b"\x7fELF", ["sh", "ls", "busybox"])
    assert layer == images.busybox_layer(b"\x7fELF", ["ls", "sh"])
    image = images.Image(tag="t:1", layer=layer, command=["/bin/sh"], environment={"PATH": "/bin"})
    with tarfile.open(fileobj=io.BytesIO(images.archive([image], machine="x86_64"))) as tar:
        content = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr] # all are files
    [entry] = json.loads(content["manifest.json"])
    config = json.loads(content[entry["Config"]])
    assert entry["RepoTags"] == ["t:1"]
    assert entry["Config"] == hashlib.sha256(content[entry["Config"]]).hexdigest() + ".json"
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(content[entry["Layers"][0]]).hexdigest()]
    assert (config["architecture"], config["config"]["Cmd"]) == ("amd64", ["/bin/sh"])


def test_a_busybox_layer_links_each_applet() -> None:
    with tarfile.open(fileobj=io.BytesIO(images.busybox_layer(b"x", ["sh"]))) as tar:
        assert tar.getmember("bin/sh").linkname == "busybox"
        assert tar.getmember("tmp").mode == 0o1777


def tree(**files: str) -> bytes:
    """A package's files, by path with ``__`` for each slash; ``->`` begins a symbolic link, ``=>`` a hard one."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, content in files.items():
            info = tarfile.TarInfo(f"./{path.replace('__', '/')}")
            if content[:2] in ("->", "=>"):
                info.type = tarfile.SYMTYPE if content[:2] == "->" else tarfile.LNKTYPE
                info.linkname = content[2:]
            info.size = 0 if info.type != tarfile.REGTYPE else len(content)
            tar.addfile(info, io.BytesIO(content.encode()))
    return out.getvalue()


def test_debian_s_packages_are_one_layer_with_one_folder_of_programs() -> None:
    old = tree(bin__sh="->dash", bin__dash="dash", bin__rdash="=>./bin/dash", usr__share__doc__dash="left out")
    new = tree(usr__bin__dash="another", usr__lib64__ld="ld", etc__passwd="theirs", usr__share__perl__x="left out")
    own = {"etc/passwd": b"ours", "srv/run": b"#!/bin/sh"}
    with tarfile.open(fileobj=io.BytesIO(debian.merged([old, new], files=own, links={"usr/bin/python": "x"}))) as tar:
        found = {member.name: member for member in tar}
        content = {name: tar.extractfile(name).read() for name in ("usr/bin/rdash", "etc/passwd")}  # type: ignore[union-attr] # files
    assert content == {"usr/bin/rdash": b"dash", "etc/passwd": b"ours"}
    linked = {name: member.linkname for name, member in found.items() if member.issym()}
    ours = {name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")}
    assert linked == {**ours, "usr/bin/python": "x", "usr/bin/sh": "dash"}
    files = {"usr/bin/dash", "usr/bin/rdash", "usr/lib64/ld", "etc/passwd", "etc/group", "srv/run"}
    assert set(found) == {*files, *linked, *images.FOLDERS}
    assert found["tmp"].mode == 0o1777
    assert (found["srv/run"].mode, found["etc/passwd"].mode) == (0o755, 0o644)


def test_coredns_answers_where_kubelets_send_their_pods() -> None:
    assert kubelet_config({})["clusterDNS"] == [str(ADDRESSES.dns_service)]
    text = render.corefile(address=ADDRESSES.dns_service, ready_port=7, kubeconfig=Path("/k"))
    assert f"bind {ADDRESSES.dns_service}\n" in text
    assert "ready 127.0.0.1:7\n" in text
    assert "kubeconfig /k\n" in text


def test_stages_cover_a_node_s_and_a_pod_s_life() -> None:
    found = [json.loads(document) for document in stages.stages().split("---\n")]
    assert [each["metadata"]["name"] for each in found] == [
        "node-ready",
        "node-heartbeat",
        "pod-ready",
        "pod-complete",
        "pod-delete",
    ]
    assert [each["metadata"]["name"] for each in found if each["spec"].get("immediateNextStage")] == ["node-heartbeat"]


def test_played_nodes_have_the_capacity_asked_for() -> None:
    items = json.loads(stages.nodes(2, {"nvidia.com/gpu": "8"}))["items"]
    assert [each["metadata"]["name"] for each in items] == ["kwok-0", "kwok-1"]
    assert items[1]["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_state_outlives_its_writer(tmp_path: Path) -> None:
    state = a_state().with_process("init-a", Identity(7, 8))
    save(tmp_path / "state.json", state)
    assert load(tmp_path / "state.json") == state
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2}', encode(a_state())[:40], '{"version": 1, "spec": {}}']
)
def test_a_damaged_state_is_one_clear_error(text: str) -> None:
    with pytest.raises(ClusterError, match="no state of a cluster"):
        decode(text)


def test_ports_of_other_clusters_are_claimed_even_by_a_damaged_neighbour(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    save(tmp_path / "one/state.json", a_state())
    (tmp_path / "two/state.json").write_text("{")
    assert claimed_ports(tmp_path) == {20001, 20002, 20003}


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a" * 33, "a/b", "..", "etcd", "logs"])
def test_a_name_that_cannot_be_a_folder_or_a_host_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        ClusterPaths.of("t", Path("/x")).node(name)


def test_a_state_folder_too_long_for_sockets_is_refused() -> None:
    long = ClusterPaths(Path("/x" * 40) / "t")
    with pytest.raises(UsageError, match="--state-dir"):
        long.check_socket_length(("node-1",))
    ClusterPaths.of("t" * 20, Path("/var/tmp/tessera")).check_socket_length(("node-1",))


def test_kernel_names_fit_and_differ_between_clusters() -> None:
    one, two = ClusterPaths(Path("/x/one")), ClusterPaths(Path("/x/two"))
    assert one.bridge != two.bridge
    assert len(one.bridge) <= 15
