"""What the agent says of claims beside its answers to the kubelet, and under which name."""

from typing import Any

from agent.dra.claim import RESOURCE_CLAIMS
from agent.dra.testing import DRIVER, TEAM
from agent.kubelet.containers import ClaimUse
from inventory.devices import DeviceId
from tests.support.agent.claims import NODE, ClaimLab
from tests.support.agent.node import EAGER, fleet

TWO = EAGER + "layout:\n- {gpus: [0, 1], mode: dra}\n"


async def test_under_another_name_the_driver_leaves_claims_and_specs_of_nvidias_alone(claims: ClaimLab) -> None:
    theirs = claims.lab.folder / "cdi/k8s.gpu.nvidia.com-claim_theirs.json"
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("{}")
    claims.lab.flags = {"--dra-driver": "gpu.example.com"}
    await claims.serve(fleet(2), TWO)
    assert claims.watcher.info.name == "gpu.example.com"
    assert claims.watcher.sockets[0].name.startswith("gpu.example.com-")
    assert {each["spec"]["driver"] for each in claims.slices} == {"gpu.example.com"}
    claims.claim("theirs", "gpu-0")
    wrong = (await claims.watcher.prepare("theirs"))["theirs"].error
    assert wrong.endswith("found no device of gpu.example.com, expected one at least")
    claims.claim("a", "gpu-0", driver="gpu.example.com")
    (device,) = (await claims.watcher.prepare("a"))["a"].devices
    assert list(device.cdi_device_ids) == ["k8s.gpu.example.com/claim=a-gpu-0"]
    assert claims.specs == ["k8s.gpu.example.com-claim_a.json", theirs.name]
    assert {each.holder.resource for each in claims.lab.report().holders} == {"gpu.example.com"}


async def test_a_claim_says_how_its_devices_fare_from_prepare_to_unprepare(claims: ClaimLab) -> None:
    def said(uid: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = claims.server.get(RESOURCE_CLAIMS, uid, namespace=TEAM)["status"].get("devices")
        return found or []

    await claims.serve(fleet(2), TWO)
    for uid, device in (("a", "gpu-0"), ("b", "gpu-1")):
        claims.claim(uid, device)
    await claims.watcher.prepare("a", "b")
    await claims.lab.until(lambda: bool(said("a") and said("b")), "both say something")
    assert said("b")[0]["data"] == {"uuid": claims.lab.uuid(1), "minor": 1}
    claims.lab.sim(gpu=0, xid=48)
    await claims.lab.until(lambda: said("a")[0]["conditions"][0]["status"] == "False", "the fault is said")
    assert said("a")[0]["conditions"][0]["reason"] == "Unhealthy"
    assert said("b")[0]["conditions"][0]["status"] == "True"
    await claims.lab.stop()
    await claims.lab.start(TWO)
    await claims.registered()
    await claims.lab.until(lambda: len(claims.lab.agent.dra.statuses._there) == 2, "it reads what is said")
    assert len(claims.server.written("/b/status")) == 1, "a new agent finds it said"
    await claims.watcher.unprepare("a")
    await claims.lab.until(lambda: said("a") == [], "taken away")
    assert said("b") != []


async def test_figures_name_the_claim_of_a_device_and_count_what_claims_did(claims: ClaimLab) -> None:
    def figure(name: str, **labels: str) -> float | None:
        return claims.lab.agent.metrics.registry.get_sample_value(name, labels)

    await claims.serve(fleet(2), TWO)
    claims.claim("a", "gpu-1")
    claims.claim("b", "gpu-7")
    claims.claim("c", "gpu-0")
    await claims.watcher.prepare("a", "b")
    claims.server.down = True
    await claims.watcher.prepare("c")
    claims.server.down = False
    await claims.watcher.unprepare("never")
    name, seconds = "tessera_agent_claim_calls_total", "tessera_agent_claim_duration_seconds_count"
    for method, result in (("Prepare", "ok"), ("Prepare", "claim"), ("Prepare", "api"), ("Unprepare", "ok")):
        assert figure(name, method=method, result=result) == 1
    assert figure(seconds, method="Prepare") == 3
    use = claims.lab.agent.sampler.claims()[DeviceId(claims.lab.uuid(1))]
    assert use == ClaimUse(TEAM, "a", DRIVER, NODE, "gpu-1")
    await claims.lab.until(lambda: figure("tessera_agent_claim_devices", type="gpu", view="held") == 1, "one is held")
    assert figure("tessera_agent_claim_devices", type="gpu", view="published") == 2
    assert figure("tessera_agent_claim_devices", type="gpu", view="tainted") == 0
    claims.lab.sim(gpu=0, xid=48)
    await claims.lab.until(lambda: figure("tessera_agent_claim_devices", type="gpu", view="tainted") == 1, "tainted")
