"""The agent reads its simulated GPUs and serves what they do: labels, pods, faults, gaps, collectors."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pynvml
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.hardware import worker
from agent.kubelet.containers import PodContainer
from agent.telemetry import sampler
from tests.support.agent import dcgm_exporter as peer
from tests.support.agent.node import EAGER, GPU, Lab, fleet, laboratory

H100 = "NVIDIA H100 80GB HBM3"
BUSY = "load:\n- {gpu: 0, pid: 1001, smUtil: 0.6, memUsedMiB: 4096, powerW: 400}\n"
TWO = BUSY + "- {gpu: 0, pid: 1002, smUtil: 0.2, memUsedMiB: 1024, powerW: 100}\n"
SHARED = EAGER + "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
UTIL, USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's thread takes calls between waits for events; the agent's own passes come soon after each other."""
    monkeypatch.setattr(worker, "EVENT_WAIT_MS", 20)
    monkeypatch.setattr(sampler, "SECOND_LOOK_S", 0.15)


@pytest.fixture
async def lab(short_folder: Path) -> AsyncIterator[Lab]:
    async with laboratory(short_folder) as lab:
        lab.flags["--metrics-interval"] = "3600"
        yield lab


def shown(lab: Lab, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """What a scrape shows now, by these labels' values. Asked again and again: of other names nothing is parsed."""
    lines = lab.agent.metrics.exposition().decode().splitlines(keepends=True)
    return {
        tuple(sample.labels.get(label, "") for label in labels): sample.value
        for family in text_string_to_metric_families("".join(line for line in lines if line.startswith(name)))
        for sample in family.samples
        if sample.name == name
    }


async def look(lab: Lab) -> None:
    """One pass; the invariants hold after it."""
    await lab.agent.sampler.sample(lab.agent.monitor)
    lab.agent.sampler.validate()


async def test_every_default_counter_of_the_peers_is_there_by_itself(lab: Lab) -> None:
    await lab.serve(fleet(2, H100, BUSY))
    await lab.until(lambda: bool(shown(lab, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gpu")), "two looks at the start")
    url = f"http://127.0.0.1:{lab.agent.endpoints.port}/metrics"
    async with aiohttp.ClientSession() as client, client.get(url) as answer:
        text = await answer.text()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    for name, kind in peer.DEFAULT_COUNTERS.items():
        # The parser takes a counter's name without _total for an unknown type's: the text has it.
        assert f"# TYPE {name} {kind}\n" in text
        assert found[name].documentation
        assert [sample.labels["gpu"] for sample in found[name].samples] == ["0", "1"]
        for sample in found[name].samples:
            more = peer.XID_LABELS if name == "DCGM_FI_DEV_XID_ERRORS" else ()
            assert set(sample.labels) == {*peer.DEVICE_LABELS, peer.HOST_LABEL, *peer.DEFAULT_LABEL_FIELDS, *more}


async def test_a_pod_on_a_gpu_of_its_own_is_on_the_gpus_series(lab: Lab) -> None:
    await lab.serve(fleet(2, H100))
    grant = await lab.kubelet.allocate(GPU, 1, pod="train")
    held, other = ("0", "1") if grant.devices == (lab.uuid(0),) else ("1", "0")
    lab.sim(gpu=int(held), load={"pid": 1001, "smUtil": 0.6})
    await look(lab)
    await lab.until(lambda: (held, "train") in shown(lab, UTIL, "gpu", "pod"), "the holder is known")
    assert shown(lab, UTIL, "gpu", "pod") == {(held, "train"): 60, (other, ""): 0}
    assert shown(lab, "tessera_gpu_allocation", "pod", "mode") == {("train", "whole"): 1}


async def test_pods_on_one_gpu_are_told_apart_by_their_processes(lab: Lab, tmp_path: Path) -> None:
    for pid, digit in ((1001, "a"), (1002, "b")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{digit * 32}/{digit * 64}\n")
    lab.flags["--pid-root"] = str(tmp_path)
    await lab.serve(fleet(1, H100, TWO), SHARED)
    await lab.kubelet.allocate(GPU, 1, pod="train")
    await lab.kubelet.allocate(GPU, 1, pod="serve")
    await lab.until(lambda: len(lab.agent.holders.holders) == 2)
    lab.agent.pods.containers.put("u1", [("a" * 64, PodContainer("default", "train", "main"))])
    lab.agent.pods.containers.put("u2", [("b" * 64, PodContainer("default", "serve", "main"))])

    def told_apart() -> bool:
        lab.agent.sampler.nudge()
        return shown(lab, UTIL, "pod") == pytest.approx({("train",): 60, ("serve",): 20, ("",): 0})

    await lab.until(told_apart)
    lab.agent.sampler.validate()
    assert shown(lab, USED, "pod") == {("train",): 4096, ("serve",): 1024, ("",): 0}
    assert shown(lab, "tessera_pod_gpu_use", "pod", "use") == {("train", "active"): 1, ("serve", "active"): 1}


async def test_mig_instances_show_their_own_pods(lab: Lab) -> None:
    await lab.serve(
        fleet(1, H100, "  migEnabled: [0]\n  mig: {0: [3g.40gb, 1g.10gb]}\n"),
        EAGER + "flags: {migStrategy: mixed}\n",
        resource="nvidia.com/mig-3g.40gb",
    )
    gpu = lab.agent.node_state.node.gpus[0]
    large = next(mig for mig in gpu.mig_instances if mig.profile == "3g.40gb")
    lab.sim(gpu=0, load={"gi": large.gi_id, "ci": 0, "pid": 7, "smUtil": 0.5, "memUsedMiB": 2048})
    await lab.kubelet.allocate("nvidia.com/mig-3g.40gb", 1, pod="train")
    await lab.until(lambda: bool(lab.agent.holders.holders))
    await look(lab)
    assert shown(lab, USED, "GPU_I_PROFILE", "GPU_I_ID", "pod")["3g.40gb", str(large.gi_id), "train"] == 2048
    assert shown(lab, UTIL, "gpu") == {}


async def test_a_gpu_that_does_not_answer_has_no_figures_and_keeps_its_xid(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "CALL_TIMEOUT_S", 0.5)
    await lab.serve(fleet(2, H100, BUSY))
    await look(lab)
    lab.sim(gpu=0, xid=79)
    lab.sim(gpu=0, slow={"call": "*", "seconds": 30})
    await lab.until(lambda: shown(lab, "DCGM_FI_DEV_XID_ERRORS", "gpu")["0",] == 79)

    def only_the_other() -> bool:
        lab.agent.sampler.nudge()
        return shown(lab, UTIL, "gpu") == {("1",): 0}

    await lab.until(only_the_other)
    assert shown(lab, "tessera_agent_gpu_samples_total", "result")["error",] >= 1
    assert shown(lab, "tessera_gpu_xid_errors_total", "UUID", "xid") == {(lab.uuid(0), "79"): 1}


@pytest.mark.parametrize(("chosen", "after"), [("last", 48), ("worst", 0)])
async def test_the_gauge_of_the_open_xid_goes_back_when_the_fault_is_over(lab: Lab, chosen: str, after: int) -> None:
    await lab.serve(fleet(1, H100), EAGER + f"metrics: {{xidErrors: {chosen}}}\n")
    lab.sim(gpu=0, xid=48)
    await lab.until(lambda: shown(lab, "DCGM_FI_DEV_XID_ERRORS", "gpu") == {("0",): 48})
    assert shown(lab, "tessera_gpu_open_xid", "gpu") == {("0",): 48}
    lab.sim(gpu=0, reset=True)
    await lab.restored(0)
    assert shown(lab, "tessera_gpu_open_xid", "gpu") == {("0",): 0}
    assert shown(lab, "DCGM_FI_DEV_XID_ERRORS", "gpu") == {("0",): after}
    assert shown(lab, "tessera_gpu_xid_errors_total", "xid") == {("48",): 1}


async def test_a_scrape_never_calls_nvml(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    await lab.serve(fleet(2, H100, BUSY))
    samples = "tessera_agent_gpu_samples_total"
    await lab.until(lambda: shown(lab, samples, "result").get(("ok",), 0) >= 4, "both looks at the start are over")
    called: list[tuple[int, str]] = []
    real = pynvml._nvmlGetFunctionPointer

    def counted(name: str) -> object:
        called.append((threading.get_ident(), name))
        return real(name)

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", counted)
    url = f"http://127.0.0.1:{lab.agent.endpoints.port}/metrics"
    async with aiohttp.ClientSession() as client:
        for made_anew in (False, True) * 5:
            if made_anew:
                lab.agent.sampler.changed()
            async with client.get(url) as answer:
                assert b"DCGM_FI_DEV_GPU_UTIL{" in await answer.read()
    # GPUs' own threads wait for events and probe health all the while; figures are read by none of them.
    assert threading.get_ident() not in {thread for thread, _ in called}
    assert "nvmlDeviceGetUtilizationRates" not in {name for _, name in called}
    await look(lab)
    assert "nvmlDeviceGetUtilizationRates" in {name for _, name in called}, "a pass is seen"


async def test_whoever_asks_gets_the_text_format_uncompressed(lab: Lab) -> None:
    await lab.serve(fleet(1, H100))
    url = f"http://127.0.0.1:{lab.agent.endpoints.port}/metrics"
    async with aiohttp.ClientSession() as client:
        for asked in ("application/openmetrics-text;version=1.0.0", "*/*", "text/html"):
            headers = {"Accept": asked, "Accept-Encoding": "gzip, zstd"}
            async with client.get(url, headers=headers) as answer:
                assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                assert "Content-Encoding" not in answer.headers
                assert (await answer.read()).endswith(b"\n")


async def test_nothing_is_shown_while_nvml_is_let_go(lab: Lab) -> None:
    await lab.serve(fleet(1, H100, BUSY))
    samples = "tessera_agent_gpu_samples_total"
    await lab.until(lambda: shown(lab, samples, "result").get(("ok",), 0) >= 2, "both looks at the start are over")
    assert shown(lab, UTIL, "gpu") == {("0",): 60}
    lab.agent.monitor.release(1.5)
    await lab.until(lambda: shown(lab, UTIL, "gpu") == {}, "no figure of a moment that has passed")
    await lab.until(lambda: shown(lab, UTIL, "gpu") == {("0",): 60}, "read again by itself")


async def test_nothing_is_shown_while_the_session_steps_aside(lab: Lab) -> None:
    await lab.serve(fleet(1, H100, BUSY))
    await look(lab)
    lab.agent.monitor.session_open = False
    lab.agent.sampler.nudge()
    await lab.until(lambda: shown(lab, UTIL, "gpu") == {})


async def test_a_collectors_file_is_taken_up_when_it_changes_and_a_bad_one_changes_nothing(
    lab: Lab, tmp_path: Path
) -> None:
    path = tmp_path / "counters.csv"
    path.write_text("DCGM_FI_DEV_GPU_UTIL, gauge, x\n")
    lab.flags |= {"--collectors": str(path), "--metrics-interval": "1"}
    await lab.serve(fleet(1, H100, BUSY))

    def names() -> set[str]:
        families = text_string_to_metric_families(lab.agent.sampler.exposition().decode())
        return {family.name for family in families if family.name.startswith("DCGM")}

    await lab.until(lambda: names() == {UTIL})
    for own in ("tessera_gpu_throttled", "tessera_pod_gpu_power_estimate_watts"):
        assert ("0",) in shown(lab, own, "gpu"), "our own need no field of DCGM's"
    path.write_text("DCGM_FI_DEV_GPU_UTIL, nonsense, x\n")
    lab.agent.sampler.nudge()
    await lab.until(lambda: any("counters.csv:1" in problem for problem in lab.reporter.problems))
    before = shown(lab, "tessera_agent_gpu_samples_total", "result")["ok",]
    lab.agent.sampler.nudge()
    await lab.until(lambda: shown(lab, "tessera_agent_gpu_samples_total", "result")["ok",] > before)
    assert sum("counters.csv" in problem for problem in lab.reporter.problems) == 1, "said once, not with each pass"
    assert names() == {UTIL}
    path.write_text("DCGM_FI_DEV_FB_USED, gauge, x\n\n")
    lab.agent.sampler.nudge()
    await lab.until(lambda: names() == {USED})
