"""Tables on terminals of any width: words and names stay whole, numbers stay, prose folds."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from cli.printing.console import show
from cli.printing.table import Column, Table, fitted, folded, less, prose

ROOT = Path(__file__).parents[3]
WORD = st.text("abcdefgh-/.0123456789", min_size=1, max_size=30)
PROSE = st.lists(WORD, max_size=12).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    others = range(draw(st.integers(0, 6)))
    columns = [Column("first"), *(Column(f"c{at}", draw(st.integers(0, 3)), draw(st.booleans())) for at in others)]
    table = Table(draw(PROSE), columns)
    for _ in range(draw(st.integers(1, 4))):
        table.add_row(*(draw(PROSE if column.prose else WORD) for column in columns))
    return table


@given(tables(), st.integers(20, 120), st.booleans())
def test_every_word_that_is_shown_is_whole_and_lines_are_no_longer_than_their_longest_word(
    table: Table, width: int, wide: bool
) -> None:
    table.wide = wide
    lines = [line.plain for line in table.lines(width)]
    shown = " ".join(lines).replace(";", " ").split()
    words = {word for row in table.rows for cell in row for word in str(cell).split()} | set(table.title.split())
    names = {column.name for column in table.columns} | {"left", "out", "for", "want", "of", "room:", "(-o", "wide)"}
    names |= {f"{column.name}," for column in table.columns}
    assert set(shown) <= words | names
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines)
    kept = [at for at, column in enumerate(table.columns) if wide or not column.rank]
    expected = sorted(word for row in table.rows for at in kept for word in str(row[at]).split() if word != "-")
    for word in set(expected):
        assert shown.count(word) >= expected.count(word), f"{word} is missing"


@given(tables(), st.integers(10, 100))
def test_on_a_screen_each_row_is_one_line_that_fits_or_has_its_name_alone(table: Table, width: int) -> None:
    table.cut, table.title = True, "t"
    lines = [line.plain for line in table.lines(width)]
    assert len(lines) == 2 + len(table.rows)
    words = {word for row in table.rows for cell in row for word in str(cell).split()}
    for line in lines[2:]:
        assert set(line.split()) <= words | {"..."}
        assert len(line) <= width or len(line.split()) == 1


def test_what_matters_least_goes_first_and_is_told() -> None:
    table = Table("Queues", ["queue", less("cohort", 2), less("state"), "waiting", prose("why")])
    table.add_row("research", "gpus", "open", "2", "Needs 3 cpu of flavor default")
    assert [line.plain for line in table.lines(60)][1].split() == ["queue", "cohort", "state", "waiting", "why"]
    assert [line.plain for line in table.lines(52)] == [
        "Queues",
        "queue     state  waiting  why",
        "research  open   2        Needs 3 cpu of flavor",
        "                          default",
        "left out for want of room: cohort (-o wide)",
    ]
    table.wide = True
    assert [line.plain for line in table.lines(52)][-2:] == ["                          default", "    cohort gpus"]


def test_a_column_that_never_goes_stands_below_where_it_does_not_fit() -> None:
    table = Table("", ["name", "node"])
    table.add_row("a" * 20, "b" * 20)
    assert [line.plain for line in table.lines(30)] == ["name", "a" * 20, f"    node {'b' * 20}"]
    assert [line.plain for line in table.lines(10)] == ["name", "a" * 20, "    node", f"    {'b' * 20}"]


def test_a_column_left_out_for_prose_comes_back_where_prose_stands_below() -> None:
    fit = fitted([Column("a"), less("b"), prose("c")], [[Text("x" * 10), Text("y" * 6), Text("z" * 30)]], 30)
    assert (fit.shown, fit.below, fit.left_out) == ((0, 1), (2,), ())


def test_a_sentence_folds_at_spaces_and_keeps_its_indent() -> None:
    lines = [line.plain for line in folded(Text("  it waits for nvidia.com/gpu\n\nend"), 16)]
    assert lines == ["  it waits for", "  nvidia.com/gpu", "", "end"]


def test_a_row_of_one_cell_is_a_line_across(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("t", ["a", "b"])
    table.add_row("1", "2")
    table.add_row("problem: this is longer than the columns")
    show(table)
    assert capsys.readouterr().out.splitlines() == ["t", "a  b", "1  2", "problem: this is longer than the columns"]


def test_no_command_has_a_table_of_another_kind() -> None:
    for file in sorted((ROOT / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
            assert not (isinstance(node, ast.ImportFrom) and node.module == "rich.table"), file
            assert not names & {"rich.table", "rich.columns"}, file
