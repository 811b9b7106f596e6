"""What can be asked of a running agent over HTTP: probes, metrics, the report, and letting go of NVML."""

import asyncio
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.config.settings import Address
from agent.report import Answers, NodeReport
from agent.serving.endpoints import Endpoints
from agent.serving.handlers import LONGEST_RELEASE_S
from agent.serving.metrics import AgentMetrics
from inventory.devices import NodeInventory, NodeName
from tests.agent.serving.test_metrics import documented
from tests.support.agent.node import GPU, Lab, fleet

REPORT = NodeReport(version="1", now_s=1.0, simulated=True, driver_up=True, node=NodeInventory(name=NodeName("node-1")))


class Asked:
    """Endpoints whose answers a test sets."""

    def __init__(self) -> None:
        self.unhealthy: str | None = None
        self.unready: str | None = None
        self.released: list[float] = []
        answers = Answers(
            AgentMetrics().exposition,
            lambda: REPORT,
            lambda: self.unhealthy,
            lambda: self.unready,
            self.released.append,
            self._release_gpu,
            self._give_back,
        )
        self.endpoints = Endpoints(answers)

    def _give_back(self, index: int) -> str:
        if index:
            raise ValueError(f"gpu: GPU {index} is not retired")
        return f"GPU {index} is given back"

    async def _release_gpu(self, index: int, seconds: float, forced: bool) -> str:
        if index and not forced:
            raise ValueError(f"GPU {index} is in use")
        return f"GPU {index} for {seconds:g} s"


@pytest.fixture
async def asked(short_folder: Path) -> AsyncIterator[Asked]:
    asked = Asked()
    await asked.endpoints.start(Address("127.0.0.1", 0), short_folder)
    yield asked
    await asked.endpoints.stop()


async def ask(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


async def local(folder: Path, path: str, method: str = "GET") -> tuple[int, bytes]:
    connector = aiohttp.UnixConnector(str(folder / "agent.sock"))
    async with (
        aiohttp.ClientSession(connector=connector) as client,
        client.request(method, f"http://agent{path}") as answer,
    ):
        return answer.status, await answer.read()


async def test_a_probe_is_ok_or_503_with_the_reason(asked: Asked) -> None:
    port = asked.endpoints.port
    assert await ask(port, "/healthz") == (200, "ok\n")
    assert await ask(port, "/readyz") == (200, "ok\n")
    asked.unhealthy, asked.unready = "stuck", "not registered"
    assert await ask(port, "/healthz") == (503, "stuck\n")
    assert await ask(port, "/readyz") == (503, "not registered\n")


async def test_the_report_is_on_the_local_socket_alone(asked: Asked, short_folder: Path) -> None:
    status, body = await local(short_folder, "/v1/node")
    assert status == 200
    assert msgspec.json.decode(body, type=NodeReport) == REPORT
    assert stat.S_IMODE((short_folder / "agent.sock").stat().st_mode) == 0o600
    assert (await ask(asked.endpoints.port, "/v1/node"))[0] == 404
    assert (await local(short_folder, "/metrics"))[0] == 404


@pytest.mark.parametrize("seconds", ["", "0", "-1", "nan", "inf", "soon", str(LONGEST_RELEASE_S + 1), "1e400"])
async def test_a_time_that_is_none_releases_nothing(asked: Asked, short_folder: Path, seconds: str) -> None:
    status, body = await local(short_folder, f"/v1/release?seconds={seconds}", "POST")
    assert status == 400
    assert b"seconds: expected" in body
    assert asked.released == []


async def test_a_retired_gpu_is_given_back_by_post_only(asked: Asked, short_folder: Path) -> None:
    assert (await local(short_folder, "/v1/return?gpu=0"))[0] == 405
    assert await local(short_folder, "/v1/return?gpu=0", "POST") == (200, b"GPU 0 is given back\n")
    assert await local(short_folder, "/v1/return?gpu=1", "POST") == (409, b"gpu: GPU 1 is not retired\n")
    assert (await local(short_folder, "/v1/return?gpu=x", "POST"))[0] == 400
    assert (await ask(asked.endpoints.port, "/v1/return?gpu=0"))[0] == 404


async def test_nvml_is_released_by_post_only(asked: Asked, short_folder: Path) -> None:
    assert (await local(short_folder, "/v1/release?seconds=30"))[0] == 405
    assert (await local(short_folder, "/v1/release?seconds=30", "POST"))[0] == 200
    assert asked.released == [30.0]


async def test_a_probe_may_ask_for_the_head_alone_and_a_path_that_is_none_is_not_found(asked: Asked) -> None:
    host = f"http://127.0.0.1:{asked.endpoints.port}"
    async with aiohttp.ClientSession() as client:
        async with client.head(f"{host}/readyz") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        async with client.post(f"{host}/metrics") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    assert (await ask(asked.endpoints.port, "/metrics/more"))[0] == 404


async def test_a_gpu_is_let_go_or_refused_with_why(asked: Asked, short_folder: Path) -> None:
    async def answer(query: str) -> tuple[int, bytes]:
        return await local(short_folder, f"/v1/release?seconds=30&{query}", "POST")

    assert await answer("gpu=0") == (200, b"GPU 0 for 30 s\n")
    assert await answer("gpu=1") == (409, b"GPU 1 is in use\n")
    assert await answer("gpu=1&force=true") == (200, b"GPU 1 for 30 s\n")
    assert (await answer("gpu=first"))[0] == 400
    assert asked.released == [], "one GPU is not all"


async def test_a_dead_agents_socket_is_replaced_and_removed_at_the_end(short_folder: Path) -> None:
    (short_folder / "agent.sock").write_text("left over")
    asked = Asked()
    await asked.endpoints.start(None, short_folder)
    assert (await local(short_folder, "/v1/node"))[0] == 200
    assert asked.endpoints.port == 0
    await asked.endpoints.stop()
    assert not (short_folder / "agent.sock").exists()


@pytest.mark.parametrize("garbage", [b"\x00" * 4096, b"GET /" + b"a" * 70000, b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n"])
async def test_garbage_costs_a_connection_and_nothing_else(
    asked: Asked, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", asked.endpoints.port)
    writer.write(garbage)
    writer.write_eof()
    await asyncio.wait_for(reader.read(), 60)
    writer.close()
    assert await ask(asked.endpoints.port, "/healthz") == (200, "ok\n")
    caplog.clear()


async def test_a_packed_body_is_not_unpacked(asked: Asked) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", asked.endpoints.port)
    for _ in range(2):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\nnot gzip")
        assert (await asyncio.wait_for(reader.readuntil(b"ok\n"), 60)).startswith(b"HTTP/1.1 200 ")
    writer.close()


# With the whole agent


async def test_ready_means_registered_and_the_reason_names_what_is_not(lab: Lab) -> None:
    lab.power_on(fleet(2))
    agent = await lab.start()  # and no kubelet yet
    await lab.until(lambda: bool(lab.report().node.gpus))
    status, body = await ask(agent.endpoints.port, "/readyz")
    assert (status, body) == (503, f"not registered with the kubelet: {GPU}\n")
    assert (await ask(agent.endpoints.port, "/healthz"))[0] == 200
    await lab.kubelet.start()
    await lab.listed()
    await lab.until(lambda: agent._unready() is None)
    assert await ask(agent.endpoints.port, "/readyz") == (200, "ok\n")
    await lab.kubelet.stop()
    (lab.kubelet.folder / "kubelet.sock").unlink(missing_ok=True)
    await lab.until(lambda: agent._unready() is not None, "a kubelet that is gone was not noticed")


async def test_metrics_parse_and_tell_of_what_happened(lab: Lab) -> None:
    await lab.serve(fleet(3))
    await lab.kubelet.allocate(GPU, 1)
    lab.sim(gpu=2, xid=79)
    await lab.until(lambda: bool(lab.agent.holders.allocatable) and bool(lab.down()))
    status, text = await ask(lab.agent.endpoints.port, "/metrics")
    assert status == 200
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    names = {str(name).removesuffix("_bucket") for name, *_ in found}
    missing = documented().keys() - names - {"tessera_agent_config_reloads_total", "tessera_gpu_repairs_total"}
    # No daemon runs here, nothing is given out by claim, and no GPU is repaired.
    missing = {name for name in missing if not name.startswith(("tessera_agent_mps_", "tessera_agent_claim_"))}
    assert not missing, f"documented and not there: {missing}"
    resource = ("resource", GPU)
    assert found["tessera_agent_registrations_total", resource, ("result", "ok")] == 1
    assert found["tessera_agent_list_and_watch_streams", resource] == 1
    assert found["tessera_agent_calls_total", ("method", "Allocate"), resource, ("result", "ok")] == 1
    assert found["tessera_agent_devices", resource, ("view", "inventory")] == 3
    assert found["tessera_agent_devices", resource, ("view", "advertised")] == 2
    assert found["tessera_gpu_xid_errors_total", ("UUID", lab.uuid(2)), ("xid", "79")] == 1
    assert found["tessera_gpu_device_health", ("state", "Unhealthy"), ("uuid", lab.uuid(2))] == 1
    assert found["tessera_agent_driver_up",] == 1


async def test_what_the_kubelet_may_hand_out_is_counted_beside_what_is_advertised(lab: Lab) -> None:
    await lab.serve(fleet(2))
    lab.agent.holders.nudge()

    def counted(view: str) -> float | None:
        return lab.agent.metrics.registry.get_sample_value("tessera_agent_devices", {"resource": GPU, "view": view})

    await lab.until(lambda: counted("allocatable") == counted("advertised") == 2)


async def test_who_asks_before_the_answers_are_loaded_waits_for_them(short_folder: Path) -> None:
    asked = Asked()
    asked.endpoints.bind(Address("127.0.0.1", 0), short_folder)
    asking = asyncio.create_task(ask(asked.endpoints.port, "/healthz"))
    await asyncio.sleep(0)
    assert not asked.endpoints.serving
    await asked.endpoints.serve()
    assert await asking == (200, "ok\n")
    await asked.endpoints.stop()


async def test_an_address_that_is_taken_is_said_to_be_so_before_anything_is_served(short_folder: Path) -> None:
    first, second = Asked().endpoints, Asked().endpoints
    first.bind(Address("127.0.0.1", 0), short_folder)
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{first.port}"):
        second.bind(Address("127.0.0.1", first.port), short_folder)
    await first.stop()
    assert list(short_folder.glob("*.sock")) == []


def test_a_start_loads_nothing_that_only_probes_and_the_api_server_need() -> None:
    late = {"aiohttp", "attr", "prometheus_client", "http.server", "yaml", "simulator"}
    look = f"import agent.command, agent.cluster.apireporter, sys; print(sorted(sys.modules.keys() & {late}))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
