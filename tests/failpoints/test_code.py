"""The code is read: what makes something durable or visible stands between both moments of its failpoint."""

from functools import cache
from pathlib import Path

import pytest

from failpoints.names import Failpoint
from hack.failpoints.durable import Reading, read, sources

ROOT = Path(__file__).parents[2]
SOCKET = "a socket is gone with its process; the next one sweeps what stands there"
REVIEW = "a review is answered and not kept"
CHOKE = "its only caller, Writer._attempt, says both"
PART = "called between both by make"
CHILD = "a process that ends with its caller and keeps nothing"
RECORD = "the record of the past: SQLite's journal makes a transaction whole, and a kill costs a minute of it"
IN_MEMORY = "a file in the memory of this process"
UNNAMED = {
    ("agent/command.py", "_serve"): "the process becomes another one: nothing is kept",
    ("agent/command.py", "_claim"): "an empty folder, and a lock that is gone with its process",
    ("agent/daemon.py", "Agent.run"): SOCKET,
    ("agent/dra/server_shell.py", "DraServer.start"): "an empty folder",
    ("agent/dra/server_shell.py", "DraServer.stop"): SOCKET,
    ("agent/hardware/monitor.py", "GpuMonitor._session"): "threads are replaced, no file",
    (
        "agent/persistence/files.py",
        "remove_half_written",
    ): "nobody reads them; what a kill leaves the next start removes",
    ("agent/mps/folders.py", "_make_shm"): PART,
    ("agent/mps/folders.py", "_mount_tmpfs"): PART,
    ("agent/mps/folders.py", "open_up"): "the same each time, and done at each start of a daemon",
    ("agent/mps/folders.py", "trim_logs"): "logs, which nobody reads but people",
    ("agent/mps/launcher.py", "bind_shm"): "in the daemon's own process, which is started between both",
    ("agent/mps/launcher.py", "main"): "in the daemon's own process, which is started between both",
    ("agent/process/tasks.py", "_end"): "a child that was to end with its caller",
    (
        "agent/process/tasks.py",
        "started",
    ): "a child that ends with its caller; what it is told has a name where it is told",
    ("agent/repair/guardian.py", "_become"): "its own word on a pipe, for the agent that started it",
    ("agent/repair/guardian.py", "main"): "its own word on a pipe, for the agent that started it",
    ("agent/serving/endpoints.py", "Endpoints.start"): SOCKET,
    ("agent/serving/endpoints.py", "Endpoints.stop"): SOCKET,
    ("agent/serving/endpoints.py", "_local"): SOCKET,
    ("controller/cluster/config/reference.py", ""): "a developer's program",
    (
        "controller/cluster/process/uninstall.py",
        "remove_placeholders",
    ): "one that is left is removed when the uninstall is run again",
    ("controller/scheduler/topology/placement.py", "Topologies._touch"): "a method of trees in memory, no file",
    ("controller/reconcile/jobs/jobkinds_shell.py", "JobKindController._may"): REVIEW,
    ("controller/cluster/webhooks/apart/parent_shell.py", "_reaped"): CHILD,
    ("controller/cluster/webhooks/apart/parent_shell.py", "spawned"): CHILD,
    ("controller/cluster/webhooks/tls.py", "load"): IN_MEMORY,
    ("controller/people/history/recorder_shell.py", "Record._set_aside"): RECORD,
    ("controller/people/history/recorder_shell.py", "_opened"): RECORD,
    ("controller/people/signin/provider_shell.py", "Provider._fetch"): "a login's question, whose answer is not kept",
    ("controller/people/visibility/reviews_shell.py", "Reviews._review"): REVIEW,
    ("controller/people/visibility/reviews_shell.py", "Reviews._access"): REVIEW,
    (
        "controller/people/visibility/service_shell.py",
        "ViewService.ask",
    ): "a question to the leader, which reads",
    ("controller/people/visibility/service_shell.py", "ViewService.relay"): "a question to the leader, which reads",
    ("controller/people/whatif/child_shell.py", "main"): "of its own process",
    ("controller/people/whatif/parent_shell.py", "WhatIf._simulated"): CHILD,
    ("controller/cluster/webhooks/apart/child_shell.py", "main"): "of its own process",
    ("deviceplugin/manager.py", "sweep"): SOCKET,
    ("deviceplugin/server.py", "DevicePluginServer.stop"): SOCKET,
    ("deviceplugin/server.py", "bind_socket"): SOCKET,
    ("kube/client.py", "Client._open"): "each write has its name where a verb of the client is called",
    ("kube/config.py", "_load_cert_chain"): IN_MEMORY,
    ("kube/fencing.py", "FencedRequest.write_bytes"): "the bytes of a request that has its failpoint where it is made",
    ("kube/listening/sockets.py", "listening"): SOCKET,
    ("kube/logins.py", "_by_provider"): "the command's, and gone with the call",
    ("kube/prometheus.py", "Prometheus._answer"): "a query, which reads",
    ("kube/writing/writer.py", "Writer._send"): CHOKE,
}
"""Functions that need no failpoint, and why."""


@cache
def readings() -> dict[str, Reading]:
    return {str(path.relative_to(ROOT)): read(path.read_text()) for path in sources(ROOT)}


def test_every_durable_step_stands_between_both_moments_of_its_failpoint() -> None:
    found = {
        (path, step.where): step.what
        for path, reading in readings().items()
        for step in reading.durable
        if not step.named
    }
    assert {place: what for place, what in found.items() if place not in UNNAMED} == {}
    assert [place for place in UNNAMED if place not in found] == [], "these are exceptions of nothing"


def test_each_failpoint_is_named_in_one_place() -> None:
    places: dict[str, list[str]] = {}
    for path, reading in readings().items():
        for name, functions in reading.named.items():
            places.setdefault(name, []).extend(f"{path}:{function}" for function in functions)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
    assert places.keys() == {failpoint.name for failpoint in Failpoint}


def test_who_says_before_says_after_of_the_same() -> None:
    assert {path: reading.lopsided for path, reading in readings().items() if reading.lopsided} == {}


def test_each_failpoint_has_a_sentence() -> None:
    lines = (ROOT / "failpoints" / "names.py").read_text().splitlines()
    for number, line in enumerate(lines):
        if ' = "' in line:
            assert lines[number + 1].strip().startswith('"""'), line


@pytest.mark.parametrize(
    "step",
    [
        "temporary.replace(path)",
        "os.rename(old, new)",
        "path.unlink(missing_ok=True)",
        "path.write_text(text)",
        "open(path, 'w')",
        "path.open('ab')",
        "os.open(path, os.O_CREAT | os.O_WRONLY)",
        "shutil.rmtree(folder)",
        "asyncio.to_thread(path.unlink)",
        "os.killpg(pid, 9)",
        "must(pynvml.nvmlDeviceSetPersistenceMode, handle, 1)",
        "self._control.ask(f'set_device_pinned_mem_limit {at}')",
        "self._client.create(PODS, body, dict)",
        "client.merge_patch(PODS, name, body, dict)",
        "client.delete(PODS, name)",
        "Write(verb=Verb.CREATE, resource=PODS)",
        "structs.replace(write, verb=Verb.DELETE)",
        "register(socket, name, endpoint)",
        "path.touch()",
        "path.parent.touch(exist_ok=True)",
        "shutil.copy2(old, new)",
        "os.write(descriptor, raw)",
        "os.open(path, FLAGS)",
        "path.open(mode=mode)",
        "temporary.replace(target=path)",
        "Path.replace(temporary, path)",
        "self._api.create(PODS, body, dict)",
        "self._kube.update(PODS, name, body)",
        "self._server().apply(PODS, name, body)",
        "functools.partial(client.delete, PODS, name)",
        "functools.partial(path.replace, other)",
        "asyncio.to_thread(os.replace, old, new)",
        "act = path.unlink",
        "call(then=client.delete)",
        "self._client.request('POST', path, data=raw)",
        "session.request(method, url)",
        "session.post(url, data=raw)",
        "subprocess.run(words, check=True)",
        "subprocess.Popen(words)",
        "asyncio.create_subprocess_exec(*words)",
        "os.system(line)",
        "process.kill()",
        "process.terminate()",
        "self._process.send_signal(2)",
        "pynvml.nvmlDeviceClearEccErrorCounts(handle, 0)",
        "pynvml.nvmlDeviceResetGpu(handle)",
    ],
)
def test_a_step_without_a_failpoint_is_found(step: str) -> None:
    (found,) = read(f"def does():\n    {step}\n").durable
    assert (found.where, found.named) == ("does", False)
    around = f"def does():\n    points.before(Failpoint.X)\n    {step}\n    points.after(Failpoint.X)\n"
    inside = step.replace("resource=PODS)", "resource=PODS, failpoint=Failpoint.X)")
    inside = inside.replace("Verb.DELETE)", "Verb.DELETE, failpoint=Failpoint.X)")
    assert all(each.named for each in read(around if inside == step else f"def does():\n    {inside}\n").durable)


@pytest.mark.parametrize(
    ("brought", "step"),
    [
        ("import os as o", "o.replace(temporary, path)"),
        ("import asyncio.subprocess as processes", "processes.create_subprocess_exec('ls')"),
        ("from os import replace", "replace(temporary, path)"),
        ("from os import replace as put_in_place", "put_in_place(temporary, path)"),
        ("from os import replace as put_in_place", "asyncio.to_thread(put_in_place, temporary, path)"),
        ("from os import open as opened", "opened(path, FLAGS)"),
        ("from pathlib import Path as P", "P.replace(temporary, path)"),
        ("from shutil import copy2 as duplicate", "duplicate(old, new)"),
        ("from subprocess import Popen as Started", "Started(words)"),
        ("from pynvml import nvmlDeviceResetGpu as reset", "reset(handle)"),
        ("from kube.writing.write import Write as W", "W(verb=Verb.CREATE, resource=PODS)"),
        ("from msgspec.structs import replace as changed", "changed(write, verb=Verb.DELETE)"),
    ],
)
def test_a_step_is_found_by_whatever_name_it_was_imported(brought: str, step: str) -> None:
    (found,) = read(f"{brought}\ndef does():\n    {step}\n").durable
    assert (found.where, found.named) == ("does", False)


@pytest.mark.parametrize(
    "text",
    [
        "def does(to: Client):\n    to.delete(kind, name)",
        "def does(to: 'Client | None'):\n    to.delete(kind, name)",
        "def does(to: Client):\n    there = to\n    there.delete(kind, name)",
        "def does():\n    there = Client(config)\n    there.delete(kind, name)",
        "async def does():\n    async with Client(config) as there:\n        there.delete(kind, name)",
        "class D:\n  def __init__(self, to: Client):\n    self._to = to\n  def does(self):\n    self._to.delete(k, n)",
    ],
)
def test_a_client_is_known_by_its_type_whatever_its_name(text: str) -> None:
    (found,) = read(text).durable
    assert found.what.endswith(".delete")


def test_whatever_is_looked_for_is_looked_for_in_a_source_that_has_nothing_else() -> None:
    calls = ["ClearEccErrorCounts", "ResetGpu", "SetPersistenceMode", "CreateGpuInstance", "ModifyDrainState", "Freeze"]
    for call in calls:
        assert len(read(f"pynvml.nvmlDevice{call}(handle)").durable) == 1, call


@pytest.mark.parametrize(
    "harmless",
    [
        "self._state.touch()",
        "os.open(path, os.O_RDONLY | os.O_NOFOLLOW)",
        "session.request('GET', url)",
        "max(task.request, other.request)",
        "reservations.apply(RELEASED)",
        "structs.replace(settings, **changes)",
        "def starts(process: subprocess.Popen[bytes]) -> None: ...",
        "text.replace('a', 'b')",
        "structs.replace(settings, limit=1)",
        "open(path)",
        "path.open('rb')",
        "seen.update(found)",
        "self._engine.put(workload)",
        "must(pynvml.nvmlDeviceGetMigMode, handle)",
        "self._control.ask('get_server_list')",
        "client.get(PODS, name, dict)",
    ],
)
def test_what_makes_nothing_durable_needs_none(harmless: str) -> None:
    assert read(f"def does():\n    {harmless}\n").durable == []


def test_a_nested_function_needs_its_own() -> None:
    text = "def outer():\n    points.before(X)\n    points.after(X)\n    def inner():\n        path.unlink()\n"
    assert [step.named for step in read(text).durable] == [False]


def test_a_function_that_forgets_one_moment_is_found() -> None:
    assert read("def does():\n    points.before(X)\n    points.after(Y)\n").lopsided == {"does"}
    assert read("def does():\n    points.before(X)\n").lopsided == {"does"}
    assert read("def does():\n    points.before(X)\n    points.after(X)\n").lopsided == set()
