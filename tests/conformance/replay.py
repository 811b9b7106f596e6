"""Other systems' own cases through our code: reading a case, running it, comparing what it wants with what came out.

Data flows ``cases(suite)`` -> the suite's runner, which builds objects, calls our code and compares -> the first
difference, or None. A runner registers itself with ``@runner("suite-name")`` in a module that the layout's
``suites.RUNNER_MODULES`` names. A runner never looks at a case's name.

There are three layouts: Kueue's scheduler cases (``tests/conformance/kueue``), those of its job kinds
(``tests/conformance/kueuejobs``), whose suites begin with ``jobs-``, and KAI's tables (``tests/conformance/kai``),
whose suites begin with ``integration_`` or ``unit_``; the input of one of these is the whole file.
"""

import functools
import json
import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from controller.scheduler.model.gates import FeatureGates
from tests.conformance import corpus


@dataclass(frozen=True, slots=True)
class Case:
    """One file of the corpus. ``input`` and ``expect`` are the file's JSON as it is."""

    suite: str
    slug: str
    harness: str
    input: Mapping[str, Any]
    expect: Mapping[str, Any]
    tags: tuple[str, ...] = ()
    corpus: str = ""
    """Empty for the scheduler's cases, else ``kueue-random``, ``kueue-jobs`` or ``kai``."""
    compare: str = ""
    """What the case looks at and what it ignores, in words."""

    def __str__(self) -> str:
        return f"{self.corpus}:{self.suite}/{self.slug}" if self.corpus == RANDOM else f"{self.suite}/{self.slug}"

    @property
    def gates(self) -> FeatureGates:
        """The defaults with exactly the gates that were not at theirs while the case ran."""
        return FeatureGates(self.input.get("featureGatesNonDefault") or {})


@dataclass(frozen=True, slots=True)
class Difference:
    path: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        return f"{self.path or 'value'}: expected {_shown(self.expected)}, found {_shown(self.found)}"


@dataclass(slots=True)
class Tally:
    """What came of the cases of one corpus in this run. ``declared``: a line for each difference on purpose."""

    ran: int = 0
    passed: int = 0
    declared: list[str] = field(default_factory=list)


RANDOM: Final = "kueue-random"
JOBS: Final = "kueue-jobs"
JOBS_PREFIX: Final = "jobs-"
KAI: Final = "kai"
KAI_PREFIXES: Final = ("integration_", "unit_")
TALLIES: dict[str, Tally] = {}
"""By corpus; a case that was run has counted itself here."""
Runner = Callable[[Case], Difference | None]
ABSENT = "(absent)"
RUNNERS: dict[str, Runner] = {}


def runner(suite: str) -> Callable[[Runner], Runner]:
    """Register the decorated function as the one that runs every case of ``suite``."""

    def register(run: Runner) -> Runner:
        if suite in RUNNERS:
            raise ValueError(f"suite {suite} has two runners")
        RUNNERS[suite] = run
        return run

    return register


def roots() -> dict[str, Path]:
    """Folders of ``<suite>/<slug>.json`` files by corpus: ``$TESSERA_CORPUS`` alone, else those of the shared data."""
    given = given_folder()
    if given is not None:
        return {"": given}
    return {
        "": corpus.folder("kueue"),
        RANDOM: corpus.folder(RANDOM),
        JOBS: corpus.folder(JOBS),
        KAI: corpus.folder(KAI),
    }


def given_folder() -> Path | None:
    """A folder of cases of all layouts, at any depth, beside files that are none."""
    given = os.environ.get("TESSERA_CORPUS")
    return Path(given) if given else None


def cases(root: Path, suite: str, name: str = "") -> Iterator[Case]:
    for file in sorted((root / suite).glob("*.json")):
        yield _case(file, json.loads(file.read_text(encoding="utf-8")), suite, name)


def _case(file: Path, data: Mapping[str, Any], suite: str, name: str) -> Case:
    if suite.startswith(KAI_PREFIXES):
        return Case(suite, file.stem, "", input=data, expect=data["expected"], corpus=KAI)
    return Case(
        suite=suite,
        slug=file.stem,
        harness=data.get("harness", ""),
        input=data["input"],
        expect=data["expect"],
        tags=tuple(data.get("tags") or ()),
        corpus=JOBS if suite.startswith(JOBS_PREFIX) else name,
        compare=data.get("compare", ""),
    )


@functools.cache
def sorted_out(folder: Path) -> tuple[tuple[Case, ...], tuple[Path, ...]]:
    """The folder's cases, and its other files. A case names its suite; where it does not, its folder is named so."""
    found, others = [], []
    for file in sorted(folder.rglob("*.json*")):
        data = _read(file)
        suite = data.get("suite") or file.parent.name
        of_kai = str(suite).startswith(KAI_PREFIXES)
        if data.keys() >= ({"expected", "resolved", "run"} if of_kai else {"input", "expect"}):
            found.append(_case(file, data, suite, RANDOM if RANDOM in file.relative_to(folder).parts else ""))
        else:
            others.append(file)
    return tuple(found), tuple(others)


def _read(file: Path) -> Mapping[str, Any]:
    """The file's object; an empty one where it holds none."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return data if isinstance(data, Mapping) else {}


Judge = Callable[[Difference], bool]
"""Whether a difference is of some kind."""
ANY: Final = object()
"""Any value at all."""


def at(path: str, expected: Any = ANY, found: Any = ANY) -> Judge:
    """A difference whose whole path matches ``path``, a regular expression. A value that is given as a function is
    asked about what is there; any other must be equal. The path of a value as a whole is empty.
    """
    pattern = re.compile(path)

    def judge(difference: Difference) -> bool:
        there = pattern.fullmatch(difference.path) is not None
        return there and _is(difference.expected, expected) and _is(difference.found, found)

    return judge


def _is(value: Any, wanted: Any) -> bool:
    if wanted is ANY:
        return True
    return bool(wanted(value)) if callable(wanted) else type(wanted) is type(value) and bool(wanted == value)


def one_of(*judges: Judge) -> Judge:
    return lambda difference: any(judge(difference) for judge in judges)


@dataclass(frozen=True, slots=True)
class Rule:
    """A difference on purpose. ``applies`` is given the case's ``input`` and never sees which case it is; ``differs``
    is given what differs: another difference of the same input is none of this rule's.
    """

    reason: str
    applies: Callable[[Mapping[str, Any]], bool]
    differs: Judge
    concerns: Callable[[Mapping[str, Any], Difference], bool] = lambda _given, _difference: True
    """Whether what differs is about the very object for which the rule applies."""

    def covers(self, given: Mapping[str, Any], difference: Difference) -> bool:
        return self.differs(difference) and self.applies(given) and self.concerns(given, difference)


def check(case: Case, rules: Sequence[Rule]) -> None:
    """Run the case and count it. A failure's first line is ``FAIL suite/slug: first difference``."""
    tally = TALLIES.setdefault(case.corpus, Tally())
    tally.ran += 1
    try:
        difference = RUNNERS[case.suite](case)
    except Exception as error:  # noqa: BLE001 - whatever is raised is this case's failure, in the form of any other
        pytest.fail(f"FAIL {case}: raised {type(error).__name__}: {error}\n{traceback.format_exc()}", pytrace=False)
    if difference is None:
        tally.passed += 1
        return
    rule = next((rule for rule in rules if rule.covers(case.input, difference)), None)
    if rule is None:
        pytest.fail(f"FAIL {case}: {difference}", pytrace=False)
    tally.declared.append(f"DIFFERENT {case}: {rule.reason}: {difference}")


def all_cases() -> Iterator[Case]:
    """Every case of every corpus, whether or not anything here can run it."""
    given = given_folder()
    if given is not None:
        yield from sorted_out(given)[0]
        return
    for name, root in roots().items():
        for suite in sorted(folder.name for folder in root.iterdir() if folder.is_dir()):
            yield from cases(root, suite, name)


def cases_that(are_in_force: Callable[[Case], bool]) -> Iterator[Case]:
    """None where there is no corpus: a test beside those of the cases fails then."""
    try:
        roots()
    except FileNotFoundError:
        return
    yield from filter(are_in_force, all_cases())


def first_difference(expected: Any, found: Any, path: str = "") -> Difference | None:
    """Compare JSON-like values exactly, keys in sorted order, lists in order; the first place where they differ."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key in sorted(expected.keys() | found.keys()):
            below = f"{path}.{key}" if path else str(key)
            difference = first_difference(expected.get(key, ABSENT), found.get(key, ABSENT), below)
            if difference is not None:
                return difference
        return None
    if _is_list(expected) and _is_list(found):
        for index, (wanted, got) in enumerate(zip(expected, found, strict=False)):
            difference = first_difference(wanted, got, f"{path}[{index}]")
            if difference is not None:
                return difference
        return None if len(expected) == len(found) else Difference(f"{path}.length", len(expected), len(found))
    same = type(expected) is type(found) and expected == found
    return None if same else Difference(path, expected, found)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _shown(value: Any) -> str:
    text = value if value is ABSENT else json.dumps(value, default=str, sort_keys=True)
    return text if len(text) <= 300 else f"{text[:300]}..."
