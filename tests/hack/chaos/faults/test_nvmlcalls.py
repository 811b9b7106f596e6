"""What fails and hangs in turn is exactly what the agent calls."""

import inspect
import re
from pathlib import Path
from typing import Final

import pynvml

from hack.chaos.faults.nvmlcalls import ALL, CODES, NVML_CALLS, NVML_FAILURES
from simulator.nvml import codes
from simulator.nvml.library import FUNCTIONS

AGENT: Final = Path(__file__).parents[4] / "agent"
NAMED: Final = re.compile(r"\bnvml[A-Z]\w*")


def in_c(function: object, seen: frozenset[str] = frozenset()) -> set[str]:
    """The C functions that one of pynvml's calls, itself or by another of pynvml's."""
    if not inspect.isfunction(function) or function.__name__ in seen:
        return set()
    text = inspect.getsource(function)
    seen |= {function.__name__}
    inner = (in_c(getattr(pynvml, name, None), seen) for name in re.findall(r"\b(nvml[A-Z]\w*)\(", text))
    return set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', text)).union(*inner)


def test_every_call_of_the_agent_is_in_the_table_and_no_other() -> None:
    named = {name for file in AGENT.rglob("*.py") for name in NAMED.findall(file.read_text())}
    called = set().union(*(in_c(getattr(pynvml, name, None)) for name in named))
    first = {body: name for name, body in reversed(FUNCTIONS.items())}  # the name that its delays and failures have
    assert {first[FUNCTIONS[name]] for name in called} == set(NVML_CALLS) - {ALL}


def test_the_errors_are_nvmls_own_each_call_has_all_of_them() -> None:
    assert set(CODES.values()) <= codes.TEXTS.keys() | {codes.UNKNOWN}
    assert len(NVML_FAILURES) == len(NVML_CALLS) * len(CODES)
