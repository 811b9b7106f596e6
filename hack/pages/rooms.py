"""The pictures of ``docs/architecture.md``: which room imports which, drawn from the code.

``python -m hack.pages.rooms`` rewrites what stands between ``<!-- rooms: NAME -->`` and ``<!-- end -->``; ``--check``
exits with 1 when that is stale. A room is a folder or a module; an arrow is drawn for each import between siblings, at
whatever depth it stands. Some folders only put rooms together (``GROUPS``). Arrows that follow from others are left
out: where a imports b and b imports c, a -> c is not drawn. ``tests/hack/pages/test_rooms.py`` holds that no package
has a circle.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/architecture.md"
TOP = "tessera"
"""The name of the picture of all top-level packages."""

PACKAGES = (
    "agent",
    "cli",
    "controller",
    "deviceplugin",
    "failpoints",
    "history",
    "inventory",
    "kube",
    "kubeletapi",
    "simulator",
    "yamlfile",
)
GROUPS = (
    "controller.cluster",
    "controller.foreign",
    "controller.insight",
    "controller.jobs",
    "controller.objects",
    "controller.people",
    "controller.reconcile",
    "controller.scheduler.dra",
    "controller.scheduler.kai",
)
"""Folders that only put rooms together: their rooms stand beside those of the parent."""
_MARKED = re.compile(r"(<!-- rooms: ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Arrows = Mapping[str, set[str]]
"""From a room to those that it imports itself; every room is a key."""


@cache
def code() -> grimp.ImportGraph:
    """All imports between modules, those inside functions included."""
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def parents() -> list[str]:
    """Every package with rooms in it, and TOP."""
    return [TOP, *sorted({name.rpartition(".")[0] for name in code().modules if "." in name})]


def arrows(parent: str) -> Arrows:
    """Between the rooms of ``parent``, or between all packages for TOP."""
    prefix = "" if parent == TOP else f"{parent}."

    def room(module: str) -> str:
        if not module.startswith(prefix):
            return ""
        words = module.removeprefix(prefix).split(".")
        return ".".join(words[: 2 if f"{prefix}{words[0]}" in GROUPS else 1])

    imports: dict[str, set[str]] = {}
    for module in filter(room, code().modules):
        imported = filter(None, map(room, code().find_modules_directly_imported_by(module)))
        imports.setdefault(room(module), set()).update(imported)
    return {name: seen - {name} for name, seen in imports.items() if name != "__main__"}


def reached(graph: Arrows) -> dict[str, set[str]]:
    """From each room to those that it imports itself or through others."""
    reach = {name: set(seen) for name, seen in graph.items()}
    for through in graph:
        for name in graph:
            if through in reach[name]:
                reach[name] = reach[name] | reach[through]
    return reach


def circles(graph: Arrows) -> list[frozenset[str]]:
    """Rooms that import one another, directly or through others; each room is in one circle at most."""
    reach = reached(graph)
    found = {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}
    return sorted(found, key=sorted)


def needed(graph: Arrows) -> Iterator[tuple[str, str]]:
    """Arrows that do not follow from others; all arrows inside a circle are."""
    reach = reached(graph)
    for a, seen in graph.items():
        for b in seen:
            between = (c for c in seen - {b} if b in reach[c] and c not in reach[b] and a not in reach[c])
            if not any(between):
                yield a, b


def _heights(graph: Arrows) -> dict[str, int]:
    """How many rooms lie below each: a room is higher than those that it imports."""
    return {name: len(below) for name, below in reached(graph).items()}


def picture(graph: Arrows) -> str:
    """As mermaid draws it; the arrows of the highest room first, so that it reads well as text."""
    height = _heights(graph)

    def order(arrow: tuple[str, str]) -> list[tuple[int, str]]:
        return [(-height[name], name) for name in arrow]

    drawn = sorted(needed(graph), key=order)
    alone = sorted(graph.keys() - {name for arrow in drawn for name in arrow})
    lines = [*(f"  {a} --> {b}" for a, b in drawn), *(f"  {name}" for name in alone)]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```", ""])


def rewritten(page: str) -> str:
    """``page`` with each marked picture as the code has it."""
    return _MARKED.sub(lambda match: match[1] + picture(arrows(match[2])) + match[3], page)


def main() -> int:
    page = PAGE.read_text()
    fresh = rewritten(page)
    if "--check" in sys.argv[1:]:
        if fresh != page:
            print(f"{PAGE.relative_to(ROOT)} is stale: run .venv/bin/python -m hack.pages.rooms", file=sys.stderr)
        return int(fresh != page)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
