"""The command line, built from the table. Values stay text: they are read together with environment and file."""

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import NoReturn

from agent.config.table import FLAG_ALIASES, NVIDIA, OPTIONS, Option
from inventory import __version__
from yamlfile.parsers import BOOL

_EXAMPLES = """\
examples:
  tessera-agent --config /etc/tessera/config.yaml
  tessera-agent --simulate fleet.yaml --node-name node-1 --kubelet-dir /tmp/kubelet --kubeconfig none
  TESSERA_LOG_LEVEL=debug tessera-agent --device-list-strategy cdi-cri

A flag wins over its variable TESSERA_<FLAG>, that over NVIDIA's variables, those over the config file.
"""


def parse_args(argv: Sequence[str]) -> Mapping[str, str]:
    """The flags given, by name, as text; a flag given more than once is joined by commas.

    Prints and exits with 0 for --help and --version, with 2 for an unknown flag.
    """
    # One dash is as good as two, as with NVIDIA's plugin.
    parsed = vars(_parser().parse_args([re.sub(r"^-(?=[a-z][a-z-])", "--", word) for word in argv]))
    return {name: ",".join(texts) for name, texts in parsed.items() if texts}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print one line and exit with code 2; argparse would print all flags before it."""
        self.exit(2, f"{self.prog}: command line: {message} (--help lists the flags)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tessera-agent",
        description="Finds this node's GPUs, shares them, advertises them to kubelet, and watches their health.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", "-v", action="version", version=f"tessera-agent {__version__}")
    nvidia = parser.add_argument_group("NVIDIA's device plugin's flags")
    aliases: dict[str, list[str]] = {}
    for alias, flag in FLAG_ALIASES.items():
        aliases.setdefault(flag, []).append(alias)
    for option in OPTIONS:
        if option.flag:
            _add(nvidia if option in NVIDIA else parser, option, aliases.get(option.flag, []))
    return parser


def _add(group: argparse._ActionsContainer, option: Option, aliases: list[str]) -> None:
    names = (option.flag, *aliases)
    text = option.help + (f" (default: {option.default})" if option.default else "")
    if option.parser is BOOL:
        group.add_argument(*names, dest=option.flag, help=text, nargs="?", const=("true",), metavar="BOOL", type=_one)
    elif option.parser.many:
        group.add_argument(*names, dest=option.flag, help=text, action="extend", metavar="LIST", type=_one)
    else:
        group.add_argument(*names, dest=option.flag, help=text, metavar="VALUE", type=_one)


def _one(text: str) -> tuple[str, ...]:
    return (text,)
