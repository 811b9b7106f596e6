"""The first minute with Tessera: ``make quick``. No root, no Go, no cluster.

The real agent runs on simulated GPUs (NVML's C functions in Python, behind pynvml), against a stand-in for the
kubelet's half of the device plugin API. On a terminal it goes on to ``make page`` (``PAGE=no`` leaves that out, and
``PAGE=yes`` does it in a pipe too). ``make demo`` shows all of it on a real Kubernetes.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from deviceplugin.testing import Grant, StandInKubelet
from hack.show import ROOT, Stopwatch, command, run, say, script, step
from inventory.words.catalog import plural

FLEET = ROOT / "examples/fleets/dgx1.yaml"
CONFIG = """
version: v1
health: {probationSeconds: 2}
"""
RESOURCE = "nvidia.com/gpu"
WAIT_S = 30.0


LIVE = "examples/live"


def main() -> None:
    page = goes_on(os.environ.get("PAGE", ""), terminal=sys.stdout.isatty())
    asyncio.run(minute())
    if not page:
        say("`make page` shows the rest: the page over a fleet and queues that live; no root, no cluster.")
        return
    step("7. The page over a simulated fleet and queues that live, as `make page` shows it (PAGE=no leaves it out)")
    words = ["try", "--fleet", f"{LIVE}/fleet.yaml", f"{LIVE}/queues.yaml", f"{LIVE}/jobs.yaml"]
    command([_typed("tessera"), *words])
    os.chdir(ROOT)
    os.execv(script("tessera"), ["tessera", *words])  # Ctrl-C is the page's alone


def _typed(name: str) -> str:
    """A console script as it is typed in the checkout, by any shell."""
    return os.path.relpath(script(name), ROOT)


def goes_on(given: str, *, terminal: bool) -> bool:
    """Whether the page follows. SystemExit for a PAGE that is neither yes nor no."""
    if given not in ("", "yes", "no"):
        raise SystemExit(f"PAGE: found {given!r}, expected yes or no")
    return terminal if not given else given == "yes"


async def minute() -> None:
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(prefix="tessera-quick-") as folder:
        kubelet = StandInKubelet(Path(folder) / "kubelet")
        await kubelet.start()
        agent = await _start_agent(Path(folder))
        try:
            await _show(kubelet, Path(folder) / "state")
        finally:
            agent.terminate()
            await agent.wait()
            await kubelet.stop()
    _queues()
    step(f"Done in {watch}. The agent was the real one; `make demo` puts all of it under a real Kubernetes.")


async def _start_agent(folder: Path) -> asyncio.subprocess.Process:
    (folder / "config.yaml").write_text(CONFIG)
    words = [script("tessera-agent"), "--simulate", str(FLEET), "--config", str(folder / "config.yaml")]
    words += ["--kubelet-dir", str(folder / "kubelet"), "--state-dir", str(folder / "state")]
    words += ["--cdi-dir", str(folder / "cdi"), "--metrics-address", "127.0.0.1:0", "--kubeconfig", "none"]
    step("1. The agent starts on a simulated DGX-1 (8 GPUs, a cube mesh of NVLinks)")
    command(
        [_typed("tessera-agent"), *(os.path.relpath(word, ROOT) if word == str(FLEET) else word for word in words[1:])]
    )
    log = (folder / "agent.log").open("wb")
    return await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log)


async def _show(kubelet: StandInKubelet, state_dir: Path) -> None:
    watch = Stopwatch()
    await kubelet.wait_for(lambda: RESOURCE in kubelet.endpoints and bool(kubelet.endpoints[RESOURCE].devices), WAIT_S)
    listed = plural(len(kubelet.endpoints[RESOURCE].devices), "GPU")
    say(f"registered with the kubelet and listed {listed} after {watch}")
    endpoint = kubelet.endpoints[RESOURCE]

    step("2. What it found")
    _node(state_dir, "gpus", "links")

    step("3. A pod asks for one GPU, another for four: the four come linked among themselves")
    index = {uuid: number for number, uuid in enumerate(endpoint.devices)}
    for pod, count in (("one", 1), ("four", 4)):
        _say_grant(await kubelet.allocate(RESOURCE, count, pod=pod), index)

    step("4. A GPU that nobody holds fails (XID 79: it fell off the bus)")
    victim = next(uuid for uuid in reversed(endpoint.devices) if uuid not in kubelet.held())
    gpu = str(index[victim])
    watch = Stopwatch()
    _sim(state_dir, "xid", "--gpu", gpu, "79")
    await kubelet.wait_for(lambda: victim not in endpoint.healthy, WAIT_S)
    say(f"GPU {gpu} left the kubelet's list of healthy devices, the command included in {watch}")
    _node(state_dir, "health")

    step("5. It is reset, passes its probation (2 s here, 10 s by default), and is back")
    watch = Stopwatch()
    _sim(state_dir, "reset", "--gpu", gpu)
    await kubelet.wait_for(lambda: victim in endpoint.healthy, WAIT_S)
    say(f"GPU {gpu} is healthy again after {watch}")
    _node(state_dir, "history")


def _queues() -> None:
    step("6. Who would run next: the controller's engine on files alone")
    words = ["--fleet", "examples/simulate/fleet-24.yaml", "examples/simulate/cohort-borrowing.yaml"]
    command([_typed("tessera"), "simulate", *words])
    print(run([script("tessera"), "simulate", *words], cwd=ROOT).rstrip(), flush=True)


def _node(state_dir: Path, *sections: str) -> None:
    words = ["node", "--state-dir", str(state_dir), *sections]
    command([_typed("tessera"), *words])
    print(run([script("tessera"), *words]).rstrip(), flush=True)


def _sim(state_dir: Path, *order: str) -> None:
    words = ["sim", "--state-dir", str(state_dir), *order]
    command([_typed("tessera"), *words])
    run([script("tessera"), *words])


def _say_grant(grant: Grant, index: dict[str, int]) -> None:
    gpus = sorted(index[device] for device in grant.devices)
    visible, _, more = grant.response.envs["NVIDIA_VISIBLE_DEVICES"].partition(",")
    say(f"asked for {len(gpus)}, got {gpus}: NVIDIA_VISIBLE_DEVICES={visible}{',...' if more else ''}")


if __name__ == "__main__":
    main()
