"""``tessera sim``: orders to a running simulator, so that faults can be rehearsed by hand."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cli.access.local import Number, Whole, state_dir_option
from cli.naming.nearest import NearestGroup
from cli.printing.output import FORMATS, output_option, printed

Order = Callable[..., None]

gpu_option = click.option("--gpu", type=Whole(0), required=True, help="Index of the GPU.")
any_gpu_option = click.option("--gpu", type=Whole(0), help="Index of the GPU; without it all of them.")


@click.group(cls=NearestGroup)
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


def _state_dir_here(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.obj = (value, ctx.obj[1])


def _output_here(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.obj = (ctx.obj[0], value)


def order_command(name: str) -> Callable[[Order], click.Command]:
    """A command of ``sim``; its group's two options may stand behind it as well."""

    def made(function: Order) -> click.Command:
        inner = click.option(
            "-o",
            "--output",
            type=click.Choice(FORMATS),
            expose_value=False,
            callback=_output_here,
            help="For people, or for programs.",
        )(click.pass_context(function))
        inner = click.option(
            "--state-dir",
            type=click.Path(path_type=Path),
            expose_value=False,
            callback=_state_dir_here,
            help="The agent's state folder.",
        )(inner)
        clause = re.split("[:;,.]", (function.__doc__ or "").strip(), maxsplit=1)[0]
        return sim.command(name, short_help=f"{clause}.")(inner)

    return made


def _send(ctx: click.Context, order: dict[str, Any]) -> None:
    from simulator import client

    state_dir, output = ctx.obj
    try:
        answer = client.order(state_dir, order)
    except (OSError, ValueError) as failed:
        raise click.ClickException(str(failed)) from None
    if output != "text" or "status" in order:
        printed(answer, output)
    else:
        click.echo("done")


@order_command("xid")
@gpu_option
@click.option("--gi", type=Whole(0), help="GPU instance that it hits; without it the whole GPU.")
@click.option("--ci", type=Whole(0), help="Compute instance that it hits.")
@click.argument("number", type=Whole(1))
def xid(ctx: click.Context, gpu: int, gi: int | None, ci: int | None, number: int) -> None:
    """Raise XID NUMBER, with what it does to real hardware.

    \b
    Examples:
      tessera sim xid --gpu 3 79             it falls off the bus
      tessera sim xid --gpu 0 --gi 2 94      a contained error in one MIG instance
    """
    instance = {key: value for key, value in (("gi", gi), ("ci", ci)) if value is not None}
    _send(ctx, {"gpu": gpu, "xid": number, **instance})


def _simple(name: str, kind: str, text: str) -> None:
    @gpu_option
    def command(ctx: click.Context, gpu: int) -> None:
        _send(ctx, {"gpu": gpu, kind: True})

    command.__doc__ = f"{text}\n\n\b\nExample:\n  tessera sim {name} --gpu 3"
    order_command(name)(command)


for _name, _kind, _text in (
    ("lost", "lost", "The GPU falls off the bus without an XID."),
    ("reset", "reset", "Reset the GPU: faults that a reset clears are gone, old handles are dead."),
    (
        "gpu-reset",
        "gpuReset",
        "Reset the GPU as nvidia-smi does: refused while anybody has it, and its MIG instances go.",
    ),
    ("remove", "remove", "Hot-remove the GPU."),
    ("add", "add", "Hot-add the GPU again, as a board without history."),
    ("remap-failure", "remapFailure", "A memory row cannot be remapped: the board is to be replaced."),
):
    _simple(_name, _kind, _text)


@order_command("ecc")
@gpu_option
@click.option("--volatile", "uncorrected", type=Whole(0), default=1, show_default=True, help="Uncorrected.")
@click.option("--corrected", type=Whole(0), default=0, show_default=True, help="Corrected.")
def ecc(ctx: click.Context, gpu: int, uncorrected: int, corrected: int) -> None:
    """Count ECC errors: uncorrected ones (--volatile) and corrected ones.

    \b
    Example:
      tessera sim ecc --gpu 1 --volatile 2
    """
    _send(ctx, {"gpu": gpu, "ecc": {"volatile": uncorrected, "corrected": corrected}})


@order_command("nvlink-down")
@gpu_option
@click.argument("links", nargs=-1, type=Whole(0))
def nvlink_down(ctx: click.Context, gpu: int, links: tuple[int, ...]) -> None:
    """Exactly LINKS are down from now on; without any, all are up.

    \b
    Examples:
      tessera sim nvlink-down --gpu 0 0 3    links 0 and 3
      tessera sim nvlink-down --gpu 0        all are up again
    """
    _send(ctx, {"gpu": gpu, "nvlinkDown": list(links)})


@order_command("returns")
@gpu_option
@click.argument("number", type=Whole(0))
def returns(ctx: click.Context, gpu: int, number: int) -> None:
    """Let each reset of the GPU leave XID NUMBER; 0 ends it.

    \b
    Example:
      tessera sim returns --gpu 3 119
    """
    _send(ctx, {"gpu": gpu, "returns": number})


@order_command("driver")
@click.argument("state", type=click.Choice(["up", "down"]))
@click.option("--version", help="Come up as another driver version.")
def driver(ctx: click.Context, state: str, version: str | None) -> None:
    """Unload or load the driver.

    \b
    Examples:
      tessera sim driver down
      tessera sim driver up --version 575.57.08
    """
    _send(ctx, {"driver": state, **({"version": version} if version else {})})


@order_command("slow")
@any_gpu_option
@click.argument("call")
@click.argument("seconds", type=Number(0))
def slow(ctx: click.Context, gpu: int | None, call: str, seconds: float) -> None:
    """Let the NVML function CALL (or '*', or reset for nvidia-smi's) take SECONDS; 0 ends it.

    \b
    Examples:
      tessera sim slow --gpu 1 nvmlDeviceGetMemoryInfo 30
      tessera sim slow '*' 0
    """
    where = {} if gpu is None else {"gpu": gpu}
    _send(ctx, {**where, "slow": {"call": call, "seconds": seconds}})


@order_command("fail")
@any_gpu_option
@click.argument("call")
@click.argument("code", type=Whole(0))
def fail(ctx: click.Context, gpu: int | None, call: str, code: int) -> None:
    """Let the NVML function CALL (or '*', or reset for nvidia-smi's) end with the error CODE, NVML's own; 0 ends it.

    \b
    Examples:
      tessera sim fail --gpu 1 nvmlDeviceGetMemoryInfo 999
      tessera sim fail nvmlDeviceGetMemoryInfo 0
    """
    where = {} if gpu is None else {"gpu": gpu}
    _send(ctx, {**where, "fail": {"call": call, "code": code}})


@order_command("load")
@gpu_option
@click.option("--sm-util", type=Number(0, 1), help="Share of time that SMs are busy.")
@click.option("--mem-used-mib", type=Whole(0), help="Memory in use, MiB.")
@click.option("--power-w", type=Number(0), help="Power draw, watts.")
@click.option("--pid", type=Whole(1), help="The process that does it.")
@click.option("--gi", type=Whole(0), help="GPU instance that the process runs on.")
@click.option("--ci", type=Whole(0), help="Compute instance that the process runs on.")
@click.option("--type", "type_", type=click.Choice(["compute", "graphics", "mps", "client"]), help="What it is.")
def load(ctx: click.Context, /, gpu: int, **values: float | str | None) -> None:
    """What the GPU is doing from now on; without any value it idles.

    \b
    Examples:
      tessera sim load --gpu 0 --sm-util 0.9 --mem-used-mib 40960 --pid 4242
      tessera sim load --gpu 0
    """
    names = {"sm_util": "smUtil", "mem_used_mib": "memUsedMiB", "power_w": "powerW", "type_": "type"}
    names |= {key: key for key in ("pid", "gi", "ci")}
    given = {names[key]: value for key, value in values.items() if value is not None}
    _send(ctx, {"gpu": gpu, "load": given})


@order_command("end")
@gpu_option
@click.argument("pid", type=Whole(1))
def end(ctx: click.Context, gpu: int, pid: int) -> None:
    """The process PID ends: it is on the GPU no more.

    \b
    Example:
      tessera sim end --gpu 0 4242
    """
    _send(ctx, {"gpu": gpu, "end": pid})


@order_command("reboot")
def reboot(ctx: click.Context) -> None:
    """Reset all simulated hardware, as a reboot of the node would.

    \b
    Example:
      tessera sim reboot
    """
    _send(ctx, {"reboot": True})


@order_command("status")
def status(ctx: click.Context) -> None:
    """The simulated hardware's state, as JSON.

    \b
    Example:
      tessera sim status | jq
    """
    _send(ctx, {"status": True})
