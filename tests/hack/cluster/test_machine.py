"""What hack.cluster does to a machine, in small: processes, ports, addresses, locks, builds. Needs no root."""

import asyncio
import dataclasses
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.cluster import prerequisites, processes, sweep, waiting
from hack.cluster.cli import chosen_programs, main, split_kubectl
from hack.cluster.errors import ClusterError
from hack.cluster.layout import MARK_ENV
from hack.cluster.mutex import mutex
from hack.cluster.nodes import network, nodeinit, serviceroute
from hack.cluster.processes import Identity
from hack.cluster.programs import binaries, golang
from hack.e2e import tier

DEBIAN = prerequisites.Machine(
    system="Linux",
    euid=0,
    os_release={"ID": "debian", "VERSION_ID": "12"},
    has_program=lambda _: True,
    has_file=lambda _: True,
)


@contextmanager
def sleeper(**environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for ever, killed at the end whatever happens."""
    code = "import signal; print(flush=True); signal.pause()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        try:
            yield running
        finally:
            running.kill()


def identity_of(pid: int) -> Identity:
    found = processes.identify(pid)
    assert found is not None
    return found


def test_a_command_with_brackets_and_spaces_does_not_shift_the_start_time() -> None:
    numbers = " ".join(str(field) for field in range(4, 53))
    assert processes.parse_stat(f"17 (a) b) R) S {numbers}") == ("S", 22)


def test_a_recycled_pid_is_never_hit() -> None:
    with sleeper() as stranger:
        real = identity_of(stranger.pid)
        recycled = dataclasses.replace(real, start=real.start - 1)
        assert not processes.alive(recycled)
        assert processes.end([recycled], grace_s=0) == []
        assert processes.alive(real)


def test_ending_first_asks_and_then_kills() -> None:
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    with sleeper() as polite, subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        deaf.stdout.readline()
        assert processes.end([identity_of(polite.pid), identity_of(deaf.pid)], grace_s=0.5) == []
        assert (polite.wait(), deaf.wait()) == (-signal.SIGTERM, -signal.SIGKILL)


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen(["true"]) as done:
        os.waitid(os.P_PID, done.pid, os.WEXITED | os.WNOWAIT)
        assert processes.identify(done.pid) is None


def test_processes_are_found_by_their_mark_alone(tmp_path: Path) -> None:
    with sleeper(**{MARK_ENV: str(tmp_path)}) as ours, sleeper(**{MARK_ENV: f"{tmp_path}-other"}):
        assert [each.pid for each in processes.marked(tmp_path)] == [ours.pid]


def test_a_daemon_is_nobody_s_child_and_logs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print(os.environ['" + MARK_ENV + "'], flush=True); os.abort()"]
    gone = processes.spawn(command, home=tmp_path, log=tmp_path / "logs/x.log")
    waiting.until(lambda: not processes.alive(gone), "its end", timeout_s=5, every_s=0.01)
    assert (tmp_path / "logs/x.log").read_text().splitlines()[0] == str(tmp_path)
    with pytest.raises(ChildProcessError):
        os.waitpid(gone.pid, os.WNOHANG)


def test_proxies_and_kubeconfigs_of_the_caller_do_not_reach_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "http_proxy", "KUBECONFIG"):
        monkeypatch.setenv(name, "x")
    found = processes.child_environment(Path("/home"), {"EXTRA": "1"})
    assert not {"HTTPS_PROXY", "http_proxy", "KUBECONFIG"} & set(found)
    assert (found[MARK_ENV], found["EXTRA"]) == ("/home", "1")


def test_a_lock_is_free_again_once_its_holder_is_killed() -> None:
    key = f"test {os.getpid()}"
    code = (
        f"from hack.cluster.mutex import mutex\nimport signal\nwith mutex({key!r}): print(flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(ClusterError, match="another"), mutex(key, timeout_s=0):
            pass
        holder.kill()
    with mutex(key, timeout_s=5):
        pass


networks = st.builds(
    lambda address, prefix: IPv4Network((address, prefix), strict=False),
    st.one_of(st.integers(0xC6120000, 0xC613FFFF), st.integers(0x0A800000, 0x0AFFFFFF)),
    st.integers(14, 32),
)


@given(st.lists(networks, max_size=8), st.integers(0, 2**32))
def test_chosen_addresses_overlap_nothing_in_use(used: list[IPv4Network], seed: int) -> None:
    try:
        chosen = network.choose_addresses(used, seed=seed)
    except ClusterError:
        # Only right if the pools are covered whole.
        assert all(any(pool.overlaps(each) for each in used) for pool in network.POOLS)
        return
    assert not any(chosen.cluster.overlaps(each) for each in used)
    assert chosen.gateway in chosen.pods
    assert chosen.api_service in chosen.services
    assert not chosen.pods.overlaps(chosen.services)
    assert chosen.node_slice(network.MAX_NODES - 1).subnet_of(chosen.pods)


def test_the_default_route_is_not_an_address_in_use() -> None:
    addresses = json.dumps([{"addr_info": [{"local": "198.18.0.1", "prefixlen": 21}]}, {}])
    routes = json.dumps([{"dst": "default"}, {"dst": "10.0.0.0/8"}, {"dst": "192.0.2.7"}, {"dst": "0.0.0.0/0"}])
    assert network.used_networks(addresses, routes) == [
        IPv4Network("198.18.0.0/21"),
        IPv4Network("10.0.0.0/8"),
        IPv4Network("192.0.2.7/32"),
    ]


def test_ports_that_are_taken_or_claimed_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not network.is_free(port)
    monkeypatch.setattr(network, "_PORTS", range(21000, 21004))
    monkeypatch.setattr(network, "is_free", lambda port: port != 21002)
    chosen = network.choose_ports(["a", "b"], claimed=[21000], rng=random.Random(1))
    assert set(chosen.values()) == {21001, 21003}
    with pytest.raises(ClusterError, match="no free port"):
        network.choose_ports(["a", "b", "c"], claimed=[21000])


def test_a_cache_key_follows_every_source_and_flag() -> None:
    program = binaries.PROGRAMS["kubernetes"]
    sources = {"go.sum": b"1", "main.go": b"2"}
    key = binaries.cache_key(program, sources)
    assert key == binaries.cache_key(program, dict(reversed(sources.items())))
    assert key != binaries.cache_key(program, {**sources, "main.go": b"3"})
    assert key != binaries.cache_key(dataclasses.replace(program, ldflags=""), sources)
    assert key != binaries.cache_key(dataclasses.replace(program, version="1.37.3"), sources)


def test_the_module_builds_the_version_that_it_is_stamped_with() -> None:
    requirements = (binaries.SOURCE / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{binaries.KUBERNETES_VERSION}\n" in requirements
    staging = binaries.KUBERNETES_VERSION.replace("1.", "0.", 1)
    replaced = [line.split()[-1] for line in requirements.splitlines() if "=>" in line]
    assert set(replaced) == {f"v{staging}"}


@pytest.mark.parametrize("minor", binaries.OLDER_KUBERNETES)
def test_an_older_version_is_built_of_its_own_pins_and_the_same_program(minor: str) -> None:
    program = binaries.kubernetes(minor)
    version = binaries.OLDER_KUBERNETES[minor]
    assert version.startswith(f"{minor}.")
    assert program.version == version
    for stamp in (f"gitVersion=v{version}", "gitMajor=1", f"gitMinor={minor.removeprefix('1.')}"):
        assert f"version.{stamp}" in program.ldflags
    pins = binaries.SOURCE / "versions" / minor
    assert program.sources == (pins / "go.mod", pins / "go.sum", binaries.SOURCE / "main.go")
    assert binaries.folder(program) != binaries.folder(binaries.kubernetes())


@pytest.mark.parametrize("minor", binaries.OLDER_KUBERNETES)
def test_an_older_version_pins_all_its_staging_modules_with_their_sums(minor: str) -> None:
    """The same as of the newest, but for those that Kubernetes has added or given up since."""
    version = binaries.OLDER_KUBERNETES[minor]
    requirements, sums = (path.read_text() for path in binaries.kubernetes(minor).sources[:2])
    assert f"k8s.io/kubernetes v{version}\n" in requirements
    replaced = [line.split()[-4::3] for line in requirements.splitlines() if "=>" in line]
    staging = version.replace("1.", "0.", 1)
    assert {each for _, each in replaced} == {f"v{staging}"}
    pinned = {name for name, _ in replaced}
    direct = re.findall(r"^\s+(k8s\.io/\S+) v0\.\d+\.\d+(?: // indirect)?$", requirements, re.MULTILINE)
    assert set(direct) <= pinned
    for name, module in ((name, f"{name} v{staging}") for name in direct):
        assert f"{module} h1:" in sums, name
    assert f"k8s.io/kubernetes v{version} h1:" in sums


@pytest.mark.parametrize("minor", ["1.34", "1.38", "1.35.4", "35", "latest"])
def test_a_kubernetes_that_is_not_pinned_exits_2_with_one_line(
    minor: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(binaries.KUBERNETES_ENV, minor)
    expected = f"TESSERA_KUBERNETES: found '{minor}', expected one of 1.37, 1.36, 1.35\n"
    assert (main(["build"]), capsys.readouterr().err) == (2, expected)
    assert (main(["build", "helm"]), capsys.readouterr().err) == (2, expected)
    assert (tier.main(), capsys.readouterr().err) == (2, expected)


@pytest.mark.parametrize("minor", ["", "1.37", "1.36", "1.35"])
def test_a_kubernetes_that_is_pinned_may_be_named(minor: str) -> None:
    binaries.check_kubernetes(minor)
    assert binaries.kubernetes(minor).version.startswith(minor or "1.37")


@pytest.mark.parametrize(
    ("name", "module", "files"),
    [
        ("training-operator", "github.com/kubeflow/training-operator", ["go.mod", "go.sum"]),
        ("coredns", "github.com/coredns/coredns", ["go.mod", "go.sum", "main.go"]),
    ],
)
def test_a_module_of_its_own_pins_a_program_with_all_its_sums(name: str, module: str, files: list[str]) -> None:
    program = binaries.PROGRAMS[name]
    assert [path.name for path in program.sources] == files
    requirements, sums = (path.read_text() for path in program.sources[:2])
    assert name == "coredns" or f"tool {program.packages[0]}\n" in requirements
    assert f"{module} v{program.version}" in requirements
    assert f"{module} v{program.version} h1:" in sums


def test_two_builds_at_once_build_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE", str(tmp_path))
    compiled: list[str] = []
    first_is_in = threading.Event()

    def compile_slowly(program: binaries.Program, out: Path) -> None:
        compiled.append(program.name)
        first_is_in.set()
        (out / "kwok").write_text("binary")

    monkeypatch.setattr(binaries, "_compile", compile_slowly)
    builders = [threading.Thread(target=binaries.build, args=("kwok",)) for _ in range(2)]
    for each in builders:
        each.start()
    for each in builders:
        each.join(timeout=60)
    assert first_is_in.is_set()
    assert compiled == ["kwok"]
    assert binaries.binary("kwok").read_text() == "binary"


def test_a_failed_build_leaves_no_folder_that_looks_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE", str(tmp_path))

    def fail(_: binaries.Program, out: Path) -> None:
        (out / "half").write_text("")
        raise ClusterError("no")

    monkeypatch.setattr(binaries, "_compile", fail)
    with pytest.raises(ClusterError, match="no"):
        binaries.build("helm")
    assert [path.name for path in tmp_path.iterdir()] == ["build.lock"]


@pytest.mark.parametrize(
    ("text", "version"), [("go version go1.26.8 linux/amd64", (1, 26)), ("go version devel", None), ("", None)]
)
def test_go_s_version_is_read_from_what_it_prints(text: str, version: tuple[int, int] | None) -> None:
    assert golang.parse_version(text) == version


def test_package_names_are_told_from_messages() -> None:
    assert golang.is_package_line("k8s.io/api/core/v1\n")
    assert golang.is_package_line("vendor/golang.org/x/net/http/httpguts\n")
    assert not golang.is_package_line("# k8s.io/kubernetes\n")
    assert not golang.is_package_line("./main.go:3:1: syntax error\n")
    assert not golang.is_package_line("go: downloading k8s.io/api v0.37.2\n")


def test_all_that_is_missing_is_named_at_once() -> None:
    machine = prerequisites.Machine(
        system="Linux",
        euid=1000,
        os_release={"ID": "fedora", "PRETTY_NAME": "Fedora 44"},
        has_program=lambda name: name != "runc",
        has_file=lambda path: "cni" not in str(path),
    )
    lines = "\n".join(prerequisites.missing(machine, kubelets=True, can_install=False))
    for wanted in ("root", "Debian 12", "Fedora 44", "apt-get install containernetworking-plugins runc"):
        assert wanted in lines


def test_packages_that_can_be_installed_are_not_missing() -> None:
    bare = dataclasses.replace(DEBIAN, has_program=lambda _: False)
    assert prerequisites.missing(bare, kubelets=True, can_install=True) == []
    assert "openssl" in prerequisites.missing_packages(bare, kubelets=False)
    assert "runc" not in prerequisites.missing_packages(bare, kubelets=False)


@pytest.mark.parametrize(
    ("release", "good"),
    [
        ('ID=debian\nVERSION_ID="12"', True),
        ('ID=debian\nVERSION_ID="11"', False),
        ("ID=debian", True),
        ('ID=ubuntu\nVERSION_ID="24.04"', False),
    ],
)
def test_debian_12_or_newer_is_recognised(release: str, good: bool) -> None:
    assert prerequisites.is_debian(prerequisites.parse_os_release(release)) is good


def test_mounts_below_a_folder_are_found_deepest_first() -> None:
    text = "\n".join(
        f"1 1 0:1 / {point} rw - tmpfs none rw" for point in ("/", "/x/t", "/x/t/a\\040b/c", "/x/tt", "/x/t/a\\040b")
    )
    assert sweep.mounts_below(Path("/x/t"), text) == ["/x/t/a b/c", "/x/t/a b", "/x/t"]


def test_folders_below_a_hidden_one_are_recognised(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to(hidden / "a")
    assert nodeinit.is_hidden(str(tmp_path / "link"), [str(hidden)])
    assert not nodeinit.is_hidden(f"{hidden}-not", [str(hidden)])


def test_a_failed_wait_shows_the_end_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    with pytest.raises(ClusterError, match=r"etcd ended while waiting for it\n.*etcd.log:\n  line 80\n") as caught:
        waiting.until(lambda: False, "it", timeout_s=9, watched={log: Identity(1, 0)})
    assert "line 99" in str(caught.value)
    with pytest.raises(ClusterError, match="it: not within 0 s"):
        waiting.until(lambda: False, "it", timeout_s=0)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read())
    writer.close()


async def test_a_service_route_passes_bytes_and_ends_both_ways() -> None:
    async with await asyncio.start_server(_echo, "127.0.0.1", 0) as far:
        target = ("127.0.0.1", far.sockets[0].getsockname()[1])
        with socket.create_server(("127.0.0.1", 0)) as probe:
            listen = ("127.0.0.1", probe.getsockname()[1])
        route = asyncio.create_task(serviceroute.serve(listen, target))
        reader, writer = await _connect(listen)
        message = b"x" * 300_000
        writer.write(message)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 60) == message
        writer.close()
        far.close()
        await far.wait_closed()
        reader, writer = await _connect(listen)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        route.cancel()
        with pytest.raises(asyncio.CancelledError):
            await route


async def _connect(address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(60):
        while True:
            try:
                return await asyncio.open_connection(*address)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--name", "No"],
        ["up", "--nodes", "99"],
        ["up", "--node", "a", "--node", "a"],
        ["up", "--kubelet-config", "maxPods"],
        ["up", "--kubelet-config", "maxPods={"],
        ["up", "--state-dir", "/x" * 60],
        ["up", "--kwok", "-1"],
        ["build", "docker"],
    ],
)
def test_a_call_that_cannot_work_exits_2_with_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "expected" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "ours", "kubectls"),
    [
        (["kubectl", "get", "pods"], ["kubectl"], ["get", "pods"]),
        (["kubectl", "-n", "x", "get", "--name"], ["kubectl"], ["-n", "x", "get", "--name"]),
        (["kubectl", "--name", "a", "--state-dir=/x", "-A"], ["kubectl", "--name", "a", "--state-dir=/x"], ["-A"]),
        (["kubectl", "--", "--name", "a"], ["kubectl"], ["--name", "a"]),
        (["status", "-o", "json"], ["status", "-o", "json"], []),
    ],
)
def test_kubectl_s_words_are_left_alone(words: list[str], ours: list[str], kubectls: list[str]) -> None:
    assert split_kubectl(words) == (ours, kubectls)


def test_build_takes_all_some_or_the_usual() -> None:
    assert chosen_programs([]) == ["kubernetes", "containerd"]
    assert chosen_programs(["helm"]) == ["helm"]
    assert chosen_programs(["all", "helm"]) == list(binaries.PROGRAMS)


def test_a_machine_that_lacks_something_exits_2_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        prerequisites, "this_machine", lambda: dataclasses.replace(DEBIAN, euid=1, has_program=lambda _: False)
    )
    root = Path("/var/tmp", f"t{os.getpid()}")
    assert main(["up", "--state-dir", str(root)]) == 2
    said = capsys.readouterr().err
    assert "root" in said
    assert "runc" in said
    assert not root.exists()


def test_status_of_no_cluster_exits_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main(["status", "--state-dir", str(tmp_path), "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["running"], found["nodes"]) == (False, [])
