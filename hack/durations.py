"""Draw the line between the tests of ``make check`` and those of ``make thorough``: ``python -m hack.durations XML``.

pytest --junitxml -> seconds by test function -> tests/thorough.txt, a name a line

Few tests take most of the time. Those that do, the slowest first, until ``SHARE`` of all of it is theirs, are thorough:
they run in ``make thorough``, which is part of ``make test``, so that ``make check`` is quick enough between two edits.
A test that is not in the list is quick.
"""

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LISTED: Final = ROOT / "tests" / "thorough.txt"
SHARE: Final = 0.80


def seconds(report: Path) -> dict[str, float]:
    """The seconds of each test function, all its cases together, by pytest's ``file::function``, and those of each
    state machine by ``file::class::runTest``.
    """
    by_test: defaultdict[str, float] = defaultdict(float)
    for case in ET.parse(report).iter("testcase"):
        *folders, last = case.get("classname", "").split(".")
        module, inside = ([*folders, last], "") if last.islower() else (folders, f"{last}::")
        name = case.get("name", "").partition("[")[0]
        by_test[f"{'/'.join(module)}.py::{inside}{name}"] += float(case.get("time", 0))
    return by_test


def slowest(by_test: Mapping[str, float], share: float = SHARE) -> list[str]:
    """The fewest tests that take ``share`` of the time together, by name."""
    names: list[str] = []
    left = share * sum(by_test.values())
    for name in sorted(by_test, key=by_test.__getitem__, reverse=True):
        if left <= 0:
            break
        names.append(name)
        left -= by_test[name]
    return sorted(names)


def main() -> None:
    _, *reports = sys.argv
    if len(reports) != 1:
        sys.exit("durations: expected one argument, the file that pytest --junitxml=FILE of all unit tests has written")
    by_test = seconds(Path(reports[0]))
    names = slowest(by_test)
    LISTED.write_text("".join(f"{name}\n" for name in names))
    print(f"{LISTED.relative_to(ROOT)}: {len(names)} of {len(by_test)} test functions")


if __name__ == "__main__":
    main()
