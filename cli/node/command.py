"""``tessera node``: the local agent's report, as tables or as JSON."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import RenderableType

from agent.report import NodeReport
from cli.access.local import Number, Whole, fetch, state_dir_option
from cli.evictions import asks, confirm, yes_option
from cli.node import tables
from cli.printing.console import show
from cli.printing.output import FOR_PEOPLE, output_option, printed, printed_json, table_option
from cli.words import servers as say
from inventory.layout.layout import physical_id

SECTIONS: dict[str, tuple[Callable[[NodeReport], RenderableType | None], ...]] = {
    "gpus": (tables.gpus,),
    "links": (tables.links,),
    "partitions": (tables.partitions,),
    "mig": (tables.mig_layouts,),
    "resources": (tables.resources,),
    "holders": (tables.holders,),
    "mps": (tables.mps,),
    "health": (tables.health, tables.application_faults, tables.repairs),
    "history": (tables.history,),
}


_ENDED: Final = "would lose the GPU in a reset"


@click.command("release-nvml", short_help="Let the agent close its NVML session for a while.")
@click.option("--for", "seconds", type=Number(1, 600), default=60, show_default=True, help="Seconds.")
@state_dir_option
@output_option
def release_nvml(seconds: float, state_dir: Path, output: str) -> None:
    """Let the agent close its NVML session for a while: an open one blocks GPU resets and MIG mode changes.

    The kubelet is served from memory meanwhile, and health is looked at again afterwards.

    \b
    Example:
      tessera release-nvml --for 30 && nvidia-smi --gpu-reset -i 3
    """
    fetch(state_dir / "agent.sock", f"/v1/release?seconds={seconds:g}", method="POST")
    _say({"seconds": seconds, "message": f"NVML is released for {seconds:g} s"}, output)


@click.command()
@click.option("--gpu", type=Whole(0), required=True, help="Index of the GPU that is to be reset.")
@click.option("--for", "seconds", type=Number(1, 600), default=60, show_default=True, help="Seconds.")
@click.option(
    "--force", is_flag=True, help="Though pods are on it: the reset ends what they run. On a terminal it asks before."
)
@yes_option
@state_dir_option
@output_option
def release(gpu: int, seconds: float, force: bool, yes: bool, state_dir: Path, output: str) -> None:
    """Let go of a GPU for a while, so that it can be reset or change its MIG mode.

    Refused while pods are on it. New pods do not get it meanwhile, the agent closes its NVML session, an Event tells
    the node's other users, and health is looked at again afterwards.

    \b
    Example:
      tessera node release --gpu 3 --for 30 && nvidia-smi --gpu-reset -i 3
    """
    if force and asks(yes=yes):
        confirm(
            _holders(fetch(state_dir / "agent.sock", "/v1/node"), gpu), what="pod", fate=_ENDED, question="Release?"
        )
    words = f"/v1/release?gpu={gpu}&seconds={seconds:g}" + ("&force=true" if force else "")
    said = fetch(state_dir / "agent.sock", words, method="POST").decode().strip()
    _say({"gpu": gpu, "seconds": seconds, "message": said}, output)


@click.command("return")
@click.option("--gpu", type=Whole(0), required=True, help="Index of the GPU that was retired.")
@state_dir_option
@output_option
def give_back(gpu: int, state_dir: Path, output: str) -> None:
    """Give a GPU back into service that was retired, because the same fault came too often.

    Its faults are counted anew. Refused where the GPU is not retired.

    \b
    Example:
      tessera node return --gpu 3
    """
    said = fetch(state_dir / "agent.sock", f"/v1/return?gpu={gpu}", method="POST").decode().strip()
    _say({"gpu": gpu, "message": said}, output)


_ORDERS: Final = {"release": release, "return": give_back}


def _holders(raw: bytes, index: int) -> list[str]:
    """The pods on a GPU or on one of its MIG instances. Raises click.ClickException."""
    report = _report(raw)
    gpu = next((each for each in report.node.gpus if each.index == index), None)
    units = {gpu.uuid, *(mig.uuid for mig in gpu.mig_instances)} if gpu is not None else set()
    return sorted(
        {f"{each.holder.namespace}/{each.holder.pod}" for each in report.holders if physical_id(each.device) in units}
    )


def _report(raw: bytes) -> NodeReport:
    try:
        return msgspec.json.decode(raw, type=NodeReport)
    except msgspec.MsgspecError as wrong:
        raise click.ClickException(say.strange_agent(str(wrong))) from None


def _say(done: dict[str, Any], output: str) -> None:
    if output == "text":
        click.echo(done["message"])
    else:
        printed(done, output)


class _Node(click.Command):
    """The command ``node``, with ``node release`` and ``node return`` as commands of their own beside the sections that
    ``node`` shows.
    """

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        for name, order in _ORDERS.items():
            if name in args:
                # The name is not a section, and not a value of an option of either command: options may stand on both
                # sides.
                words = [word for word in args if word != name]
                return order.make_context(f"{info_name} {name}", words, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


@click.command(cls=_Node, short_help="What this node's agent knows: GPUs, holders, health.")
@click.argument("sections", nargs=-1, type=click.Choice(list(SECTIONS)))
@state_dir_option
@table_option
def node(sections: tuple[str, ...], state_dir: Path, output: str) -> None:
    """What this node's agent knows: GPUs, links, partitions, resources, who holds what, health and its history.

    \b
    Examples:
      tessera node                     everything there is to tell
      tessera node links               the link matrix alone
      tessera node health history      what is wrong, and how it came about
      tessera node release --gpu 3     release a GPU for a reset (see tessera node release --help)
      tessera node return --gpu 3      give a retired GPU back (see tessera node return --help)
      tessera node -o json             for programs (the whole report)
      tessera remediation plan --node gpu-7   health and repairs of any node, from anywhere
    """
    body = fetch(state_dir / "agent.sock", "/v1/node")
    if output not in FOR_PEOPLE:
        printed_json(body, output)
        return
    report = _report(body)
    shown: list[RenderableType] = [] if sections else [tables.headline(report)]
    found = (table(report) for name in sections or SECTIONS for table in SECTIONS[name])
    shown += [section for section in found if section is not None]
    show(*shown, wide=output == "wide")
