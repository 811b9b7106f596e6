"""The table of docs/nightly.md: each part with its last run. The page itself is where results are kept."""

import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.nightly.parts import Part

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/nightly.md"
NEVER: Final = "not run yet"
_MARKED: Final = re.compile(r"(<!-- nightly -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD: Final = "| part | what it shows | command | minutes at most | commit | date | result | minutes |"


@dataclass(frozen=True)
class LastRun:
    """``result``: ``green``, or why it was red. ``minutes``: how long it took."""

    commit: str
    date: str
    result: str
    minutes: str


def table(parts: Iterable[Part], runs: Mapping[str, LastRun]) -> str:
    """The lines between the marks."""
    rows = [_HEAD, "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for part in parts:
        run = runs.get(part.name)
        last = [NEVER, "", "", ""] if run is None else [run.commit, run.date, run.result, run.minutes]
        command = f"`{_shown(part)}`"
        rows.append(f"| {' | '.join([f'`{part.name}`', part.shows, command, f'{part.limit_min:g}', *last])} |")
    return "\n".join(rows) + "\n"


def read(text: str) -> dict[str, LastRun]:
    """The runs that a page tells of, by the name of the part."""
    marked = _MARKED.search(text)
    rows = [line.strip("|").split("|") for line in marked[0].splitlines() if line.startswith("| `")] if marked else []
    cells = [[cell.strip() for cell in row] for row in rows]
    return {row[0].strip("`"): LastRun(*row[4:8]) for row in cells if row[4] != NEVER}


def written(text: str, parts: Iterable[Part], runs: Mapping[str, LastRun]) -> str:
    """The page with this table. Raises ValueError where it has no marks."""
    made, count = _MARKED.subn(lambda found: found[1] + table(parts, runs) + found[2], text)
    if count != 1:
        raise ValueError(f"{PAGE.name}: found {count} places for the table, expected one")
    return made


def record(part: Part, run: LastRun, parts: Iterable[Part], page: Path = PAGE) -> None:
    """Keep the part's run, in place of the one before."""
    text = page.read_text()
    page.write_text(written(text, parts, {**read(text), part.name: run}))


def commit(root: Path = ROOT) -> str:
    """What is checked out, with ``+`` where files differ from it, the page apart."""
    found = _git(root, "rev-parse", "--short=8", "HEAD").strip()
    changed = _git(root, "status", "--porcelain", "--", ".", f":!{PAGE.relative_to(ROOT)}").strip()
    return f"{found}+" if changed else found


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def _shown(part: Part) -> str:
    return " ".join(part.command).replace("{share}", "--target ...").replace("{day}", "DAY")
