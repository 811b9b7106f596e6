"""Tables for people: no word and no name is ever broken, however narrow the terminal is.

Columns hold names and numbers, which stay whole; those that hold ``prose`` fold at spaces. Where a table is too wide,
prose folds first; then columns are left out, the one of the highest ``rank`` first, and a line says which; then cells
that may not be left out stand below their row. A ``wide`` table leaves no column out. In a pipe there is room for all
columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from cli.printing.output import visible

GAP: Final = 2
"""The number of spaces between two columns."""
_PROSE: Final = 24
"""The least width of prose while other columns can be left out for it."""
_INDENT: Final = 4
"""The indent of a cell that stands below its row."""

_MORE: Final = " ..."

Cell = str | Text


class Column(Struct, frozen=True):
    """A column. ``rank`` 0 is never left out; others are left out the earlier the higher their rank. ``prose`` is
    words, or names behind commas.
    """

    name: str
    rank: int = 0
    prose: bool = False


def less(name: str, rank: int = 1) -> Column:
    """A column that may be left out."""
    return Column(name, rank)


def prose(name: str, rank: int = 0) -> Column:
    return Column(name, rank, prose=True)


class Table:
    """A table that ``cli.printing.console.show`` prints. ``wide``: no column is left out. ``cut``: each row takes one
    line, as on a screen of so many lines: text without room is cut after a word, and the title tells what was left out.
    """

    def __init__(self, title: str, columns: Iterable[str | Column]) -> None:
        self.title = title
        self.columns = [Column(each) if isinstance(each, str) else each for each in columns]
        self.rows: list[tuple[Cell, ...]] = []
        self.wide = False
        self.cut = False

    def add_column(self, column: str | Column) -> None:
        self.columns.append(Column(column) if isinstance(column, str) else column)

    def add_row(self, *cells: Cell) -> None:
        """Add a row. With fewer cells than columns it is a line across them."""
        self.rows.append(cells)

    def fits(self, width: int) -> bool:
        """Whether no cell has to stand below its row, with columns left out that may be."""
        rows = [tuple(_text(cell) for cell in row) for row in self.rows if len(row) == len(self.columns)]
        return not fitted(self.columns, rows, width).below

    def leaves_out(self, width: int) -> bool:
        """Whether a column is left out, or stands below its row."""
        rows = [tuple(_text(cell) for cell in row) for row in self.rows if len(row) == len(self.columns)]
        fit = fitted(self.columns, rows, width, cut=self.cut)
        return bool(fit.left_out or fit.below)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.lines(options.max_width)

    def lines(self, width: int) -> Iterator[Text]:
        rows = [tuple(_text(cell) for cell in row) for row in self.rows]
        whole = [row for row in rows if len(row) == len(self.columns)]
        fit = fitted(self.columns, whole, width, wide=self.wide, cut=self.cut)
        # A title that is cut itself names what matters most.
        gone = sorted(fit.left_out, key=lambda at: self.columns[at].rank) if self.cut else fit.left_out
        names = ", ".join(self.columns[at].name for at in gone if self.columns[at].name)
        if self.title:
            title = Text(visible(self.title) + (f", without {names}" if self.cut and names else ""), style="italic")
            yield from _cut(title, width) if self.cut else folded(title, width)
        if any(column.name for column in self.columns):
            yield _line([Text(self.columns[at].name, style="bold") for at in fit.shown], fit.widths)
        for row in rows:
            if len(row) < len(self.columns):
                yield from folded(Text(" ").join(row), width)
            else:
                yield from _row(self.columns, row, fit, width, cut=self.cut)
        if fit.left_out and not self.cut:
            yield from folded(Text(f"left out for want of room: {names} (-o wide)", style="dim"), width)


class Fit(Struct, frozen=True):
    """The columns by their places: those ``shown`` with their widths, those below each row, those left out."""

    shown: tuple[int, ...]
    widths: tuple[int, ...]
    below: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()


def fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int, *, wide: bool = False, cut: bool = False
) -> Fit:
    """The columns that are shown in lines of ``width``. Pure."""
    full = [max([_width(column.name), *(_widest_line(row[at]) for row in rows)]) for at, column in enumerate(columns)]
    least = list(full)
    for at, column in enumerate(columns):
        if column.prose:
            words = max([_width(column.name), *(_widest_word(row[at]) for row in rows)])
            # Where a row is one line, its first word has to be read, with the dots behind it.
            least[at] = max(words, min(full[at], _PROSE)) if not cut else min(full[at], max(words + len(_MORE), _PROSE))
    shown, gone = list(range(len(columns))), []
    while _sum(least, shown) > width:
        droppable = [at for at in shown[1:] if columns[at].rank or cut]
        if not droppable:
            break
        worst = max(droppable, key=lambda at: (columns[at].rank, at))
        shown.remove(worst)
        gone.append(worst)
    below: list[int] = []
    # Prose reads well below its row; names and numbers go there only where nothing else helps.
    while not cut and _sum(least, shown) > width and len(shown) > 1:
        told = max(shown[1:], key=lambda at: (columns[at].prose, at))
        shown.remove(told)
        below.append(told)
    # A column left out for prose that then stands below has its room again.
    for at in sorted(gone, key=lambda at: (columns[at].rank, at)):
        if _sum(least, [*shown, at]) > width:
            break
        gone.remove(at)
        shown = sorted([*shown, at])
    if wide:
        below, gone = [*below, *gone], []
    return Fit(tuple(shown), _widths(full, least, shown, width), tuple(sorted(below)), tuple(sorted(gone)))


def _sum(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[at] for at in shown) + GAP * (len(shown) - 1)


def _widths(full: Sequence[int], least: Sequence[int], shown: Sequence[int], width: int) -> tuple[int, ...]:
    """The widths of the columns: each has its least; the rest goes to those that want more, evenly."""
    widths = {at: least[at] for at in shown}
    room = width - _sum(least, shown)
    while room > 0 and (short := [at for at in shown if widths[at] < full[at]]):
        for at in short:
            more = min(full[at] - widths[at], max(1, room // len(short)), room)
            widths[at] += more
            room -= more
    return tuple(widths.values())


def _row(columns: Sequence[Column], row: Sequence[Text], fit: Fit, width: int, *, cut: bool) -> Iterator[Text]:
    placed = zip(fit.shown, fit.widths, strict=True)
    cells = [_cut(row[at], of) if cut else list(folded(row[at], of)) for at, of in placed]
    for number in range(max(len(lines) for lines in cells)):
        yield _line([lines[number] if number < len(lines) else Text() for lines in cells], fit.widths)
    told = [at for at in fit.below if row[at].plain.strip() not in ("", "-")]
    if told:
        parts = [Text.assemble(f"{columns[at].name} " if columns[at].name else "", row[at]) for at in told]
        words = Text("; ").join(parts)
        for line in folded(words, max(1, width - _INDENT)):
            yield Text.assemble(" " * _INDENT, line)


def _line(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    made = Text(no_wrap=True, overflow="ignore")
    for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        made.append_text(cell)
        if number < len(cells) - 1:
            made.append(" " * (width - cell.cell_len + GAP))
    made.rstrip()
    return made


def _cut(cell: Text, width: int) -> list[Text]:
    """The cell cut after as many of its words as there is room for."""
    line = next(iter(cell.split("\n")), Text())
    if line.cell_len <= width:
        return [line]
    kept = next(folded(line, max(1, width - len(_MORE))))
    return [Text.assemble(kept, _MORE) if kept.cell_len <= width - len(_MORE) else Text(_MORE.strip())]


def folded(text: Text, width: int) -> Iterator[Text]:
    """The lines of the text, folded at spaces alone: a word that is longer than ``width`` has a line of its own. The
    continuation of an indented line has its indent.
    """
    for line in text.split("\n", allow_blank=True) or [Text()]:
        if line.cell_len <= width:
            yield _one(line)
            continue
        indent = len(line.plain) - len(line.plain.lstrip(" "))
        start, at = 0, indent
        while at < len(line):
            end = line.plain.find(" ", at)
            end = len(line) if end < 0 else end
            before = indent if start else 0
            if at > start + indent - before and before + _width(line.plain[start:end]) > width:
                yield _one(Text.assemble(" " * before, _stripped(line[start:at])))
                start = at
            at = end + 1
        yield _one(Text.assemble(" " * indent if start else "", _stripped(line[start:])))


def _one(line: Text) -> Text:
    line.no_wrap, line.overflow = True, "ignore"
    return line


def _stripped(line: Text) -> Text:
    line.rstrip()
    return line


def _text(cell: Cell) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(visible(cell))


def _width(text: str) -> int:
    return Text(text).cell_len


def _widest_line(text: Text) -> int:
    return max((_width(line) for line in text.plain.split("\n")), default=0)


def _widest_word(text: Text) -> int:
    return max((_width(word) for word in text.plain.split()), default=0)
