"""``tessera sim``: orders to a running simulator, so that faults can be rehearsed by hand."""

from pathlib import Path
from typing import Any

import click
import msgspec

from cli.local import output_option, state_dir_option

gpu_option = click.option("--gpu", type=click.IntRange(0), required=True, help="Index of the GPU.")
any_gpu_option = click.option("--gpu", type=click.IntRange(0), help="Index of the GPU; without it all of them.")


@click.group()
@state_dir_option
@output_option
@click.pass_context
def sim(ctx: click.Context, state_dir: Path, output: str) -> None:
    """Let simulated GPUs fail, recover, come and go. They stay as they are when the agent restarts.

    \b
    Examples:
      tessera sim status                      what is wrong with the simulated hardware
      tessera sim xid --gpu 3 79              GPU 3 falls off the bus
      tessera sim reset --gpu 3               ... and is reset
      tessera sim xid --gpu 0 --gi 2 94       a contained error in one MIG instance
      tessera sim slow --gpu 1 nvmlDeviceGetMemoryInfo 30
      tessera sim reboot                      as a reboot of the node would leave it
    """
    ctx.obj = (state_dir, output)


def _send(ctx: click.Context, order: dict[str, Any]) -> None:
    from simulator import client

    state_dir, output = ctx.obj
    try:
        answer = client.order(state_dir, order)
    except (OSError, ValueError) as failed:
        raise click.ClickException(str(failed)) from None
    if output == "json" or "status" in order:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    else:
        click.echo("done")


@sim.command()
@gpu_option
@click.option("--gi", type=click.IntRange(0), help="GPU instance that it hits; without it the whole GPU.")
@click.option("--ci", type=click.IntRange(0), help="Compute instance that it hits.")
@click.argument("number", type=click.IntRange(1))
@click.pass_context
def xid(ctx: click.Context, gpu: int, gi: int | None, ci: int | None, number: int) -> None:
    """Raise XID NUMBER, with what it does to real hardware."""
    instance = {key: value for key, value in (("gi", gi), ("ci", ci)) if value is not None}
    _send(ctx, {"gpu": gpu, "xid": number, **instance})


def _simple(name: str, kind: str, text: str) -> click.Command:
    @click.command(name, help=text)
    @gpu_option
    @click.pass_context
    def command(ctx: click.Context, gpu: int) -> None:
        _send(ctx, {"gpu": gpu, kind: True})

    return command


for _name, _kind, _text in (
    ("lost", "lost", "The GPU falls off the bus without an XID."),
    ("reset", "reset", "Reset the GPU: faults that a reset clears are gone, old handles are dead."),
    ("remove", "remove", "Hot-remove the GPU."),
    ("add", "add", "Hot-add the GPU again, as a board without history."),
    ("remap-failure", "remapFailure", "A memory row cannot be remapped: the board is to be replaced."),
):
    sim.add_command(_simple(_name, _kind, _text))


@sim.command()
@gpu_option
@click.option("--volatile", "uncorrected", type=click.IntRange(0), default=1, show_default=True)
@click.option("--corrected", type=click.IntRange(0), default=0, show_default=True)
@click.pass_context
def ecc(ctx: click.Context, gpu: int, uncorrected: int, corrected: int) -> None:
    """Count ECC errors: uncorrected ones (--volatile) and corrected ones."""
    _send(ctx, {"gpu": gpu, "ecc": {"volatile": uncorrected, "corrected": corrected}})


@sim.command("nvlink-down")
@gpu_option
@click.argument("links", nargs=-1, type=click.IntRange(0))
@click.pass_context
def nvlink_down(ctx: click.Context, gpu: int, links: tuple[int, ...]) -> None:
    """Exactly LINKS are down from now on; without any, all are up."""
    _send(ctx, {"gpu": gpu, "nvlinkDown": list(links)})


@sim.command()
@click.argument("state", type=click.Choice(["up", "down"]))
@click.option("--version", help="Come up as another driver version.")
@click.pass_context
def driver(ctx: click.Context, state: str, version: str | None) -> None:
    """Unload the driver, or load it."""
    _send(ctx, {"driver": state, **({"version": version} if version else {})})


@sim.command()
@any_gpu_option
@click.argument("call")
@click.argument("seconds", type=click.FloatRange(0))
@click.pass_context
def slow(ctx: click.Context, gpu: int | None, call: str, seconds: float) -> None:
    """Let the NVML function CALL (or '*') take SECONDS; 0 ends it."""
    where = {} if gpu is None else {"gpu": gpu}
    _send(ctx, {**where, "slow": {"call": call, "seconds": seconds}})


@sim.command()
@gpu_option
@click.option("--sm-util", type=click.FloatRange(0, 1), help="Share of time that SMs are busy.")
@click.option("--mem-used-mib", type=click.IntRange(0))
@click.option("--power-w", type=click.FloatRange(0))
@click.option("--pid", type=click.IntRange(1))
@click.option("--gi", type=click.IntRange(0), help="GPU instance that the process runs on.")
@click.option("--ci", type=click.IntRange(0), help="Compute instance that the process runs on.")
@click.option("--type", "type_", type=click.Choice(["compute", "graphics", "mps", "client"]), help="What it is.")
@click.pass_context
def load(ctx: click.Context, /, gpu: int, **values: float | str | None) -> None:
    """What the GPU is doing from now on; without any value it idles."""
    names = {"sm_util": "smUtil", "mem_used_mib": "memUsedMiB", "power_w": "powerW", "type_": "type"}
    names |= {key: key for key in ("pid", "gi", "ci")}
    given = {names[key]: value for key, value in values.items() if value is not None}
    _send(ctx, {"gpu": gpu, "load": given})


@sim.command()
@gpu_option
@click.argument("pid", type=click.IntRange(1))
@click.pass_context
def end(ctx: click.Context, gpu: int, pid: int) -> None:
    """The process PID ends: it is on the GPU no more."""
    _send(ctx, {"gpu": gpu, "end": pid})


@sim.command()
@click.pass_context
def reboot(ctx: click.Context) -> None:
    """Reset all simulated hardware, as a reboot of the node would."""
    _send(ctx, {"reboot": True})


@sim.command()
@click.pass_context
def status(ctx: click.Context) -> None:
    """The simulated hardware's state, as JSON."""
    _send(ctx, {"status": True})
