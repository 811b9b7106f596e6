"""Values of options that several commands have: durations, and the kubeconfig files where none is named."""

import os
import re
from pathlib import Path
from typing import Final

import click

from cli.words import given as say

_UNITS_S: Final = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION: Final = re.compile(r"(?:\d+[wdhms])+")


class Duration(click.ParamType[float]):
    """A duration such as ``7d`` or ``1h30m``, in seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value)
        if not _DURATION.fullmatch(text):
            self.fail(say.bad_window(text), param, ctx)
        return float(sum(int(number) * _UNITS_S[unit] for number, unit in re.findall(r"(\d+)([wdhms])", text)))


def default_kubeconfigs() -> tuple[Path, ...]:
    """The files of $KUBECONFIG that exist, as kubectl passes over the others, or all where none does; without the
    variable ~/.kube/config.
    """
    named = tuple(Path(path) for path in dict.fromkeys(os.environ.get("KUBECONFIG", "").split(os.pathsep)) if path)
    return tuple(path for path in named if path.exists()) or named or (Path.home() / ".kube" / "config",)
