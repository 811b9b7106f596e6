"""The verbs get, describe, edit, patch and delete: kubectl carries them out, and gets their words."""

import shutil
import subprocess
from typing import Final

import click
from click.shell_completion import CompletionItem

from cli.evictions import asks
from cli.kubectlwords import read
from cli.naming.suggestions import kubectls
from cli.words import queues, servers

# The names stand here and not in controller.cluster.watching.kinds: kubectl does the work, and no module of the
# controller is loaded.
_GROUP: Final = "kueue.x-k8s.io"
PLURALS: Final = {
    "clusterqueue": "clusterqueues",
    "localqueue": "localqueues",
    "resourceflavor": "resourceflavors",
    "workload": "workloads",
}
ALIASES: Final = {
    **{plural: kind for kind, plural in PLURALS.items()},
    "cq": "clusterqueue",
    "lq": "localqueue",
    "rf": "resourceflavor",
    "wl": "workload",
    "kwl": "workload",
    "pod": "pods",
}
YES: Final = ("-y", "--yes")
"""Our option among kubectl's words."""
VERBS: Final = {
    "get": "Show objects, as kubectl does.",
    "describe": "Describe objects, as kubectl does.",
    "edit": "Edit objects, as kubectl does.",
    "patch": "Patch objects, as kubectl does.",
}


def words(verb: str, kind: str, rest: tuple[str, ...]) -> list[str]:
    """The words for kubectl: the kind with its group, so that no other system's kind of that name is meant."""
    return [verb, f"{PLURALS[kind]}.{_GROUP}", *rest]


def hand_over(verb: str, kind: str, rest: tuple[str, ...]) -> None:
    """Run kubectl and end with its exit code."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise click.ClickException(servers.no_kubectl(verb))
    raise SystemExit(subprocess.call([kubectl, *words(verb, kind, rest)]))


def _ask(kind: str, rest: tuple[str, ...]) -> None:
    """Ask before a patch, which may evict as ``tessera stop`` does."""
    from cli.access.cluster import run
    from cli.kueuectl.affected import ask_before_patch

    run(ask_before_patch(kind, read(rest)))


def _objects(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of objects of the given kind, for completion."""
    kind = ALIASES.get(str(ctx.params.get("kind")), str(ctx.params.get("kind")))
    return kubectls(PLURALS[kind])(ctx, param, incomplete) if kind in PLURALS else []


class KindName(click.ParamType[str]):
    """A kind of Kueue's by its name, its plural or its short name."""

    name = "kind"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        return [CompletionItem(each) for each in (*PLURALS, *ALIASES) if each.startswith(incomplete) and each != "pod"]

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        plural = ALIASES.get(str(value), str(value))
        if plural not in PLURALS:
            known = ", ".join(f"{kind} ({short})" for short, kind in sorted(ALIASES.items()) if len(short) == 2)  # noqa: PLR2004
            self.fail(queues.unknown_kind(str(value), known), param, ctx)
        return plural


def _passing(verb: str) -> click.Command:
    settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}

    @click.command(verb, short_help=VERBS[verb], context_settings=settings)
    @click.argument("kind", type=KindName())
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[KUBECTL'S WORDS]...", shell_complete=_objects)
    def command(kind: str, rest: tuple[str, ...]) -> None:
        words = tuple(word for word in rest if word not in YES)
        if verb == "patch" and asks(yes=words != rest):
            _ask(kind, words)
        hand_over(verb, kind, words if verb == "patch" else rest)

    more = {"patch": " -p '{\"spec\": {}}' --type merge"}.get(verb, "")
    command.help = (
        f"{VERBS[verb]} KIND is clusterqueue (cq), localqueue (lq), resourceflavor (rf) or workload (wl); all\n"
        "that follows is kubectl's own.\n\n"
        f"\b\nExamples:\n  tessera {verb} cq research{more}\n  tessera {verb} workload job-bert-4f1c2 -n team-a{more}\n"
    )
    return command


get, describe, edit, patch = (_passing(verb) for verb in VERBS)
