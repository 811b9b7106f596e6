"""``tessera``: the command's root. Exit codes: 0 done, 1 it did not work, 2 it was asked wrongly."""

import importlib
import sys
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from cli.naming.nearest import NearestGroup
from inventory import __version__

COMMANDS: Final = {
    "advise": ("cli.advise.command:advise", "Which containers could ask for less GPU; which moves would let jobs run."),
    "audit": ("cli.audit.command:audit", "Whether what the cluster did keeps the rules, recorded and judged."),
    "capacity": ("cli.capacity:capacity", "What a program could have of a queue now, and when more."),
    "completion": ("cli.completion:completion", "Let a shell complete commands and options."),
    "create": ("cli.kueuectl.create:create", "Create a ClusterQueue, a LocalQueue or a ResourceFlavor."),
    "delete": ("cli.kueuectl.verbs:delete", "Delete workloads with their jobs; queues and flavors."),
    "describe": ("cli.kueuectl.passthrough:describe", "Describe objects, as kubectl does."),
    "doctor": ("cli.doctor.command:doctor", "What keeps GPUs from being served on this node."),
    "edit": ("cli.kueuectl.passthrough:edit", "Edit objects, as kubectl does."),
    "explain": ("cli.explain.command:explain", "Why a workload waits, in numbers."),
    "get": ("cli.kueuectl.passthrough:get", "Show objects, as kubectl does."),
    "layout": ("cli.layout.command:layout", "How GPUs are cut and shared: plan a layout, apply it."),
    "list": ("cli.kueuectl.lists:list_", "List queues, workloads, flavors and the pods of a job."),
    "migrate": ("cli.migrate.command:migrate", "A plan of moving to Tessera: values, steps and the way back."),
    "node": ("cli.node.command:node", "What this node's agent knows: GPUs, holders, health."),
    "page": ("cli.page.command:page", "Open the page in a browser, with the rights of the kubeconfig."),
    "patch": ("cli.kueuectl.passthrough:patch", "Patch objects, as kubectl does."),
    "queue": ("cli.queue.command:queue", "What queues have and who waits; stop and resume them."),
    "remediation": (
        "cli.remediation.command:remediation",
        "Repairs of GPUs: what is done and why not; orders of people.",
    ),
    "release-nvml": ("cli.node.command:release_nvml", "Let the agent close its NVML session for a while."),
    "resume": ("cli.kueuectl.verbs:resume", "Resume a ClusterQueue, a LocalQueue or a workload."),
    "sim": ("cli.sim:sim", "Let simulated GPUs fail, recover, come and go."),
    "simulate": ("cli.simulate.command:simulate_command", "Which workload would run when, from files alone."),
    "stop": ("cli.kueuectl.verbs:stop", "Stop a ClusterQueue, a LocalQueue or a workload."),
    "submit": ("cli.submit:submit", "Create jobs and follow them into the queue; or say what would become of them."),
    "support-bundle": ("cli.supportbundle.command:support_bundle", "Collect what a bug report needs into a file."),
    "top": ("cli.top.command:top", "What all GPUs do, who holds them, and what waits; live."),
    "try": ("cli.playground.command:try_command", "The page over a simulated fleet and queues that live; no cluster."),
    "version": ("cli.version:version", "Versions: the command's, the controller's, the agents'."),
    "workload": ("cli.workload.command:workload", "Look at workloads; stop, resume, move and raise them."),
}
"""The module of each command, and the first line of its help."""


COMPLETE_VAR: Final = "_TESSERA_COMPLETE"
"""The variable by which a shell asks for completions (``tessera completion``)."""


_OTHER_WORDS: Final = {
    "cq": "queue",
    "lq": "queue",
    "wl": "workload",
    "kwl": "workload",
    "why": "explain",
    "rm": "delete",
}


class Commands(NearestGroup):
    """Imports a command when it is called: a node's shell does not wait for the controller's modules."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as failed:
            from cli.printing.output import visible

            vars(failed)["message"] = visible(failed.message)  # the message may cite an object's text
            raise

    def words(self, ctx: click.Context) -> dict[str, str]:
        return super().words(ctx) | _OTHER_WORDS

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found = getattr(importlib.import_module(module), name)
        return found if isinstance(found, click.Command) else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of commands, with their lines. Click would import every command whose name begins so."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list in the help. Click would import every command for its line."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="tessera")
def tessera() -> None:
    """Look at and rehearse a fleet of GPUs, and the queues before it.

    \b
    Examples:
      tessera node                       what this node's agent knows
      tessera node -o json | jq .health  the same for programs
      tessera remediation list           GPUs in repair over all nodes; plan, start, stop, retire, return
      tessera doctor                     what keeps this node from serving its GPUs
      tessera sim xid --gpu 3 79         let a simulated GPU fail
      tessera layout plan -f f.yaml      what a layout would change, and whom it would disturb
      tessera queue pending              who waits in the cluster's queues, and why
      tessera explain -n team-a bert     what one workload waits for, in numbers
      tessera submit --dry-run job.yaml  what would become of a job; without --dry-run it is created
      tessera capacity agents --unit nvidia.com/gpu=1 --max 8  what a program could have now, and when more
      tessera top                        what all GPUs do, who holds them, and what waits; live
      tessera page                       all of that in a browser, with your rights
      tessera try                        the page over a simulated fleet, without a cluster
      tessera workload story bert        its time line; list, show, stop, resume, move, raise
      tessera migrate policy.yaml        what moving from the GPU Operator takes, step by step
      tessera simulate --fleet f.yaml .  who would run when, from files alone
      tessera audit --for 1h             what quota, order, gangs and devices suffered meanwhile
      tessera advise --prometheus URL    which pods could ask for less GPU
      tessera create cq research         as kubectl kueue does: create, list, stop, resume, delete
      tessera list workload -A           ClusterQueues, LocalQueues, ResourceFlavors, workloads, pods
      tessera stop cq research           what runs is evicted; tessera resume, tessera delete
      tessera resume cq research
      tessera delete workload bert       with its job
      tessera get cq -o yaml             by kubectl: get, describe, edit, patch
      tessera describe workload bert
      tessera edit cq research
      tessera patch cq research -p '{"spec": {"stopPolicy": "Hold"}}' --type merge
      tessera support-bundle             what a bug report needs, without secrets and others' names
      tessera version                    of this command, the controller and the agents
      tessera completion bash            let the shell complete commands and options

    It is a plugin of kubectl as well: kubectl tessera queue list.
    """


def program(called: str) -> str:
    """The words that a person types for the program: ``kubectl tessera`` where kubectl found it as its plugin."""
    return "kubectl tessera" if Path(called).name.startswith("kubectl-") else "tessera"


def main() -> None:
    """The console script, under either of its names."""
    sys.exit(tessera(prog_name=program(sys.argv[0]), complete_var=COMPLETE_VAR))
