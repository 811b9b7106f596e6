"""The command line of hack.cluster. Exit codes: 0 done, 1 failed, 2 the call or the machine cannot do it."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hack.cluster import features
from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError, UsageError
from hack.cluster.layout import ROOT_ENV, default_root
from hack.cluster.programs import binaries
from hack.cluster.state import Spec

_FAILED = 1
_USAGE = 2
_DEFAULT_PROGRAMS = ("kubernetes", "containerd")
_COMMON_FLAGS = ("--name", "--state-dir")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack.cluster", description="A real Kubernetes on this machine, for tests and demos."
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--name", default="tessera", help="which cluster (default: %(default)s)")
    common.add_argument(
        "--state-dir", type=Path, default=None, help=f"folder of all clusters (${ROOT_ENV}, else {default_root()})"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_up(commands.add_parser("up", parents=[common], help="start it; nothing happens if it is running"))
    commands.add_parser("down", parents=[common], help="remove it and everything it left, also after a crash")
    status = commands.add_parser("status", parents=[common], help="what runs; exit code 1 if something does not")
    status.add_argument("-o", "--output", choices=["text", "json"], default="text")
    kubeconfig = commands.add_parser("kubeconfig", parents=[common], help="print the path of its kubeconfig")
    kubeconfig.add_argument("--content", action="store_true", help="print the file itself")
    commands.add_parser("kubectl", parents=[common], help="run kubectl on it: kubectl [--name NAME] ARGS...")
    commands.add_parser("features", parents=[common], help="list what its API server serves and its feature gates")
    build = commands.add_parser("build", help="compile and cache programs, and print where they are")
    build.add_argument(
        "programs",
        nargs="*",
        metavar="PROGRAM",
        help=f"all, or of {', '.join(binaries.PROGRAMS)} (default: {' and '.join(_DEFAULT_PROGRAMS)})",
    )
    image = commands.add_parser("load-image", parents=[common], help="import the images of a tar into every node")
    image.add_argument("archive", type=Path)
    for name, text in (("restart", "stop and start"), ("kill", "end with SIGKILL"), ("start", "start")):
        command = commands.add_parser(
            f"{name}-kubelet", parents=[common], help=f"{text} a node's kubelet; its pods go on"
        )
        command.add_argument("node", nargs="?", help="default: the first node")
    return parser


def _add_up(up: argparse.ArgumentParser) -> None:
    nodes = up.add_mutually_exclusive_group()
    nodes.add_argument(
        "--nodes", type=int, default=1, metavar="N", help="kubelets, named node-1 and on (default: %(default)s)"
    )
    nodes.add_argument("--node", action="append", default=[], metavar="NAME", help="a kubelet of this name; repeatable")
    up.add_argument(
        "--kubelets", action=argparse.BooleanOptionalAction, default=True, help="or a control plane without nodes"
    )
    up.add_argument("--kwok", type=int, default=0, metavar="N", help="nodes played by kwok, named kwok-0 and on")
    up.add_argument(
        "--kwok-capacity", action="append", default=[], metavar="RESOURCE=AMOUNT", help="of each kwok node; repeatable"
    )
    up.add_argument("--dns", action="store_true", help="CoreDNS, for the names of Services and their pods")
    for part in ("apiserver", "controller-manager", "scheduler"):
        up.add_argument(f"--{part}-arg", action="append", default=[], metavar="--FLAG=VALUE", help="repeatable")
    up.add_argument(
        "--kubelet-config", action="append", default=[], metavar="KEY=JSON", help="a key of KubeletConfiguration"
    )


def _pairs(flag: str, items: Sequence[str]) -> dict[str, str]:
    for item in items:
        if "=" not in item:
            raise UsageError(f"{flag}: found {item!r}, expected KEY=VALUE")
    return dict(item.split("=", 1) for item in items)


def _spec(args: argparse.Namespace) -> Spec:
    names = tuple(args.node) or tuple(f"node-{index + 1}" for index in range(args.nodes))
    overrides = _pairs("--kubelet-config", args.kubelet_config)
    try:
        kubelet_config = {key: json.loads(value) for key, value in overrides.items()}
    except ValueError as error:
        raise UsageError(f"--kubelet-config: {error}, expected KEY=JSON") from None
    return Spec(
        nodes=names if args.kubelets else (),
        kwok_nodes=args.kwok,
        kwok_capacity=_pairs("--kwok-capacity", args.kwok_capacity),
        apiserver_args=tuple(args.apiserver_arg),
        controller_manager_args=tuple(args.controller_manager_arg),
        scheduler_args=tuple(args.scheduler_arg),
        kubelet_config=kubelet_config,
        dns=args.dns,
    )


def _up(args: argparse.Namespace, cluster: Cluster) -> int:
    cluster.start(_spec(args), say=lambda line: print(line, file=sys.stderr, flush=True))
    print(f"kubeconfig: {cluster.kubeconfig}")
    return 0


def _down(_: argparse.Namespace, cluster: Cluster) -> int:
    cluster.down()
    return 0


def _status(args: argparse.Namespace, cluster: Cluster) -> int:
    status = cluster.status()
    if args.output == "json":
        print(json.dumps(status, indent=2))
    else:
        print(f"cluster {status['name']}: {'running' if status['running'] else 'not running'}")
        for problem in status["problems"]:
            print(f"  problem: {problem}")
        for key in ("server", "kubeconfig"):
            if status[key]:
                print(f"  {key}: {status[key]}")
        for node in status["nodes"]:
            print(f"  node {node['name']}: kubelet folder {node['kubeletDir']}")
        if status["kwokNodes"]:
            print(f"  kwok nodes: {status['kwokNodes']}")
    return 0 if status["running"] else _FAILED


def _kubeconfig(args: argparse.Namespace, cluster: Cluster) -> int:
    if not cluster.kubeconfig.exists():
        raise ClusterError(f"no cluster {cluster.name} in {cluster.paths.home.parent}")
    print(cluster.kubeconfig.read_text(encoding="utf-8").rstrip() if args.content else cluster.kubeconfig)
    return 0


def _kubectl(args: argparse.Namespace, cluster: Cluster) -> int:
    command, environment = cluster.kubectl_command(*args.args)
    sys.stdout.flush()
    os.execve(command[0], command, environment)


def _features(_: argparse.Namespace, cluster: Cluster) -> int:
    for line in features.lines(lambda path: cluster.kubectl("get", "--raw", path)):
        print(line)
    return 0


def _load_image(args: argparse.Namespace, cluster: Cluster) -> int:
    for host in cluster.nodes:
        host.load_image(args.archive)
    return 0


def _kubelet(args: argparse.Namespace, cluster: Cluster) -> int:
    host = cluster.node(args.node)
    acts: dict[str, Callable[[], None]] = {
        "restart-kubelet": host.restart_kubelet,
        "kill-kubelet": host.kill_kubelet,
        "start-kubelet": host.start_kubelet,
    }
    acts[args.command]()
    return 0


def chosen_programs(words: Sequence[str]) -> list[str]:
    """What ``build`` is to build; UsageError for a name that is none."""
    if unknown := set(words) - {"all", *binaries.PROGRAMS}:
        raise UsageError(
            f"build: found {', '.join(sorted(unknown))}, expected all or of {', '.join(binaries.PROGRAMS)}"
        )
    return list(binaries.PROGRAMS) if "all" in words else list(words) or list(_DEFAULT_PROGRAMS)


def _build(args: argparse.Namespace) -> int:
    for name in chosen_programs(args.programs):
        print(binaries.build(name), flush=True)
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace, Cluster], int]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "kubeconfig": _kubeconfig,
    "kubectl": _kubectl,
    "features": _features,
    "load-image": _load_image,
    "restart-kubelet": _kubelet,
    "kill-kubelet": _kubelet,
    "start-kubelet": _kubelet,
}


def split_kubectl(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our words and kubectl's: behind ``kubectl``, our own flags come first and the rest is not ours to read."""
    words = list(argv)
    if words[:1] != ["kubectl"]:
        return words, []
    end = 1
    while end < len(words) and words[end].partition("=")[0] in _COMMON_FLAGS:
        end += 1 if "=" in words[end] else 2
    return words[:end], words[end:][1:] if words[end : end + 1] == ["--"] else words[end:]


def _run(args: argparse.Namespace) -> int:
    if args.command == "build":
        return _build(args)
    # What runs belongs to root, and so does finding and ending it. `up` names all else that is missing too.
    if os.geteuid() != 0 and args.command != "up":
        raise UsageError("clusters belong to root: run it with sudo")
    return _COMMANDS[args.command](args, Cluster.of(args.name, root=args.state_dir))


def main(argv: Sequence[str]) -> int:
    """Run one command; its exit code."""
    ours, kubectl_args = split_kubectl(argv)
    args = _parser().parse_args(ours)
    args.args = kubectl_args
    try:
        return _run(args)
    except UsageError as error:
        print(error, file=sys.stderr)
        return _USAGE
    except ClusterError as error:
        print(error, file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _FAILED
