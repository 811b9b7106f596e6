"""Arguments of plugins, parsed as Go's ``flag`` package does.

Volcano starts a plugin with the arguments before the first wrong one, and logs that. Here the job's owner gets a
complaint instead: a job that runs there runs here.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from controller.jobs.framework.raw import JobError, parsed_flag, shown
from controller.objects.meta import Struct

Value = str | int | bool

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


class Parsed(Struct, frozen=True, kw_only=True):
    """Parsed arguments. ``values`` has every flag; ``complaint`` is one sentence without its field, empty if nothing is
    wrong.

    A complaint never has the value of a text: that may be a private key.
    """

    values: dict[str, Value]
    complaint: str = ""

    def text(self, name: str) -> str:
        return str(self.values[name])

    def number(self, name: str) -> int:
        return int(self.values[name])

    def on(self, name: str) -> bool:
        return bool(self.values[name])


def parsed(arguments: Sequence[str], defaults: Mapping[str, Value]) -> Parsed:
    """The arguments, parsed. ``defaults``: every flag of the plugin by its name; the type of each is that of its
    default.
    """
    values = dict(defaults)
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if not argument.startswith("-") or argument in ("-", "--"):
            break
        name, has_value, value = argument.removeprefix("-").removeprefix("-").partition("=")
        if name not in values:
            return Parsed(values=values, complaint=_expected(defaults, argument.partition("=")[0]))
        is_switch = isinstance(defaults[name], bool)
        if not has_value and is_switch:
            value = "true"
        elif not has_value:
            if not left:
                return Parsed(values=values, complaint=f"expected a value after {shown(argument)}, found none")
            value = left.pop(0)
        try:
            values[name] = _read(value, defaults[name])
        except JobError as error:
            return Parsed(values=values, complaint=f"--{name}{error}")
    return Parsed(values=values)


def _expected(defaults: Mapping[str, Value], found: str) -> str:
    known = " or ".join(f"--{name}" for name in defaults) or "no argument"
    return f"expected {known}, found {shown(found)}"


def _read(value: str, default: Value) -> Value:
    if isinstance(default, bool):
        return parsed_flag(value, "")
    if isinstance(default, str):
        return value
    if _NUMBER.fullmatch(value) is None:
        raise JobError(f": expected an integer, found {shown(value)}")
    return int(value)
