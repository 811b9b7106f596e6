"""Names and words of the code: docstrings name their subject, names in them are there, one name has one meaning.

The openings of docstrings are those after which only its author knows who or what is meant. Where one of them is the
best first word it stays; there is a number of those, and it may only fall.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PRODUCT = (
    *("agent", "cli", "controller", "deviceplugin", "failpoints", "history", "inventory", "kube", "simulator"),
    "yamlfile",
)
OPENING = re.compile(
    r"`*(?:Of|By|As|In|For|So|With|From|Nothing|Without|To|Equal|Have|Between|At|On|Under|Are|Is|Among|Somebody|Nobody"
    r"|Neither|Who|Whose|Whoever|It|They|Its|Their|There|One of|What is|The same)(?![\w`])"
)
MOST_OPENINGS = 0
NAME = re.compile(r"``([A-Za-z_][\w.]*)(?:\(\))?``")
OTHERS = {
    # Names of other programs' code and API, in docstrings that give a source or say what is not read.
    "AllocatedDeviceStatus",
    "Allocator",
    "ClusterQeue",
    "GatherPools",
    "GetResetFields",
    "NV12",
    "SetDefaults_LimitRangeItem",
    "TriedFlavorIdx",
    "VF",
    "ValidateContainerResourceName",
    "ValidateGpuRequests",
    "ValidateImmutablePodGroupPodSpec",
    "ValidateResourceQuantityValue",
    "Xid79",
    "activeDeadlineSeconds",
    "await",
    "controlledResources",
    "defaultPodRequests",
    "device",
    "deviceinfo.go",
    "devicesToAllocate",
    "extendedResourceName",
    "lookup",
    "loop.create_server",
    "matchAttribute",
    "matchFields",
    "maxPriorityThreshold",
    "meta.UnsafeGuessKindToResource",
    "nameOverride",
    "nvcdi",
    "omitempty",
    "podManagementPolicy",
    "requeueAt",
    "restype",
    "runClient",
    "setInitContainer",
    "sortedcontainers",
    "torch.distributed",
    "unhealthyNodes",
    "updateModeForTASRequests",
    "usageDBConfig",
    "validateContainers",
    "validateJobTemplate",
    "validatePodResources",
    "validateResourceGroups",
}
SCHEDULER = ROOT / "controller/scheduler"
SHARED_TEST_NAMES = frozenset({"test_case"})
"""The one test of each system's corpus."""


class Docstring(NamedTuple):
    module: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.module.relative_to(ROOT)}:{self.line}: {self.text.strip().splitlines()[0]}"


@cache
def modules() -> tuple[Path, ...]:
    return tuple(path for room in PRODUCT for path in sorted((ROOT / room).rglob("*.py")))


@cache
def docstrings() -> tuple[Docstring, ...]:
    """Those of modules, types, functions and fields."""
    return tuple(
        Docstring(path, node.lineno, node.value.value)
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def test_docstrings_name_their_subject() -> None:
    found = [str(each) for each in docstrings() if OPENING.match(each.text.strip())]
    assert len(found) <= MOST_OPENINGS, "\n".join(found)


def test_the_number_of_openings_is_the_least_that_it_was() -> None:
    assert sum(1 for each in docstrings() if OPENING.match(each.text.strip())) == MOST_OPENINGS, "lower MOST_OPENINGS"


def test_an_opening_is_a_whole_word_at_the_beginning() -> None:
    for text, is_one in [
        ("Of this moment.", True),
        ("What is due.", True),
        ("``It`` stays.", False),
        ("Office hours.", False),
        ("The sameness.", False),
        ("The queue of this moment.", False),
    ]:
        assert bool(OPENING.match(text)) is is_one, text


def words(source: str) -> Iterator[str]:
    """The names of the code, without docstrings and comments."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ImportFrom(module=str(name)):
                yield from name.split(".")
            case ast.alias(name=name):
                yield from name.split(".")
            case ast.Constant(value=str(text)):
                yield from re.findall(r"[A-Za-z_]\w*", text)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name


def test_names_in_docstrings_are_names_of_the_code() -> None:
    known = {part for path in modules() for part in path.relative_to(ROOT).with_suffix("").parts}
    known.update({"hack", "tests", *(path.stem for path in (ROOT / "hack").rglob("*.py"))})
    known.update(path.parent.name for path in (ROOT / "hack").rglob("*.py"))
    for path in modules():
        source = path.read_text()
        texts = {(each.line, each.text) for each in docstrings() if each.module == path}
        known.update(word for word in words(_without(source, texts)))
    lost = [
        f"{each}: {name}"
        for each in docstrings()
        for name in NAME.findall(each.text)
        if name not in OTHERS and not all(part in known or part in OTHERS for part in name.split(".") if part)
    ]
    assert not lost, "\n".join(lost)


def _without(source: str, texts: set[tuple[int, str]]) -> str:
    """The source with its docstrings blank."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and (node.lineno, node.value.value) in texts
        ):
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            lines[first] = lines[first][: node.col_offset] + "..."
            lines[first + 1 : last + 1] = [""] * (last - first)
    return "\n".join(lines)


def test_a_public_type_of_the_scheduler_has_a_name_of_its_own() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(SCHEDULER.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_room_is_a_word_for_packages_and_not_for_capacity() -> None:
    room = re.compile(r"(?<![a-z])rooms?(?![a-z])|Rooms?(?![a-z])|roomy|roomiest")
    found = [str(each) for each in docstrings() if each.module.is_relative_to(SCHEDULER) and room.search(each.text)]
    for path in sorted(SCHEDULER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [getattr(node, field, None) for field in ("id", "attr", "arg", "name")]
            found += [
                f"{path.relative_to(ROOT)}: {name}" for name in names if isinstance(name, str) and room.search(name)
            ]
    assert not found, "\n".join(found)


def test_what_is_kept_for_a_preemptor_is_no_claim() -> None:
    """A claim is a ResourceClaim; what a queue does when it takes its quota back is to reclaim."""
    paths = sorted((SCHEDULER / "reservations").rglob("*.py"))
    assert paths
    assert [path.name for path in paths if re.search(r"(?<!re)(?<!Re)claim", path.read_text(), re.IGNORECASE)] == []


def test_a_test_has_a_name_of_its_own() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert twice.keys() <= SHARED_TEST_NAMES, twice
