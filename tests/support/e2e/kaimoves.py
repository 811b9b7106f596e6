"""Jobs of ClusterQueues that lie scattered over the nodes of the KAI scenes, and the advice that would gather them."""

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner

from cli.main import tessera
from hack.cluster.cluster import Cluster
from tests.support.e2e.kailab import KaiLab, configured, nowhere, queued

KEPT = ({"karpenter.sh/do-not-disrupt": "true"}, {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})


def moving(at_most: int) -> str:
    return f"consolidation: {{enabled: true, minimumRuntime: 1s, movesPerHour: {at_most}}}"


async def advice(cluster: Cluster, *words: str) -> tuple[int, str]:
    """Exit code and output of ``tessera advise --pack``."""
    command = ["advise", "--pack", "--kubeconfig", str(cluster.kubeconfig), *words]
    result = await asyncio.to_thread(CliRunner().invoke, tessera, command)
    return result.exit_code, result.stdout


async def advised(lab: KaiLab, folder: Path, other: str) -> None:
    """By the command, under each policy: one job would move to the other node, for the one that waits."""
    (folder / "kueue.yaml").write_text(configured("policy: kueue"))
    for words in ((), ("--config", str(folder / "kueue.yaml"))):
        code, text = await advice(lab.scene.cluster, "-o", "json", *words)
        (plan,) = json.loads(text)["plans"]
        (move,) = plan["moves"]
        assert (code, plan["clusterQueue"]) == (0, "research")
        assert plan["workload"].startswith("team/job-wide-2-")
        assert move["workload"].startswith("team/job-three-")
        assert (move["clusterQueue"], move["from"], move["to"]) == ("product", sorted(lab.nodes("three")), [other])
        assert plan["lostGpuSeconds"] == move["lostGpuSeconds"] > 3.0
    code, text = await advice(lab.scene.cluster)
    told = [line.partition(";")[0] for line in text.splitlines()]
    assert (code, told.count("1 would run if 1 moved")) == (0, 1)
    assert "no move would let" in (await advice(lab.scene.cluster, "-n", "other"))[1]
    assert (await advice(lab.scene.cluster, "--config", str(folder / "none.yaml")))[0] == 2
    assert (await advice(lab.scene.cluster, "--kubeconfig", str(nowhere(lab.scene.cluster, folder))))[0] == 1


async def scatter(lab: KaiLab) -> None:
    """On each of two nodes a job that stays there by its marks alone, two that may go on the third, and a full one."""
    until = lab.scene.until
    fill = (("fill-0", 0, 3), ("fill-1", 1, 3), ("full", 3, 4))
    await lab.create(*(queued(name, "research", gpus, host=f"kwok-{at}") for name, at, gpus in fill))
    await lab.create(queued("block", "product", 4, host="kwok-2"))
    await until(lambda: lab.runs("block", *(name for name, _, _ in fill)), "two GPUs are free")
    kept = [f"kept-{at}" for at in range(len(KEPT))]
    await lab.create(*(queued(name, "research", notes=notes) for name, notes in zip(kept, KEPT, strict=True)))
    await until(lambda: lab.runs(*kept), "none is")
    await lab.finish("block")
    await until(lambda: lab.complete("block"), "one node is")
    await lab.create(queued("left", "product"), queued("right", "product"))
    await until(lambda: lab.runs("left", "right"), "two jobs run on the other")
    assert lab.nodes("left") == lab.nodes("right") == {"kwok-2"}
    await lab.finish("fill-0", "fill-1")
    await until(lambda: lab.complete("fill-0", "fill-1"), "two nodes have room")


async def scatter_again(lab: KaiLab, gpus: int) -> str:
    """Two nodes are full; a job of three GPUs is on one of the others, and one that has to be where it is on the last,
    whose name is returned.
    """
    until = lab.scene.until
    held = [host for name in ("kept-0", "kept-1", "left", "right") for host in lab.nodes(name)]
    free = {host: gpus - held.count(host) for host in ("kwok-0", "kwok-1")}
    pads = [queued(f"pad-{host}", "research", gpus, host=host) for host, gpus in free.items() if gpus]
    await lab.create(*pads)
    await lab.finish("full", "wide")
    await until(lambda: lab.complete("full", "wide"), "two nodes are empty")
    await until(lambda: lab.runs(*(pad["metadata"]["name"] for pad in pads)), "two are full")
    await lab.create(queued("three", "product", 3))
    await until(lambda: lab.runs("three"), "a job of three runs")
    (other,) = {"kwok-2", "kwok-3"} - lab.nodes("three")
    await lab.create(queued("pin", "research", host=other))
    await until(lambda: lab.runs("pin"), "one that does not move runs")
    return other
