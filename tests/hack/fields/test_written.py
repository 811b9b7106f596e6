"""Fields that several modules write: the finder on small sources, and every such field of the product has its words."""

import pytest

from hack.fields.sources import Sources
from hack.fields.written import fields, product

RECORD = """
class Record:
    def __init__(self) -> None:
        self.state = 0
        self.marks: set[str] = set()
        self.rows: dict[str, list[int]] = {}
        self.child: Record | None = None

class Shelf:
    records: dict[str, Record]

    def first(self) -> Record: ...
"""


def found(writer: str, record: str = RECORD) -> set[str]:
    """The fields of ``record`` that the module ``writer`` writes."""
    sources = Sources({"a.record": record, "b.writer": f"from a.record import Record, Shelf\n{writer}"})
    return {field.name for field in fields(sources)}


@pytest.mark.parametrize(
    "statement",
    [
        "record.state = 1",
        "record.state += 1",
        "del record.state",
        "record.child.state = 1",
        "record.state, other = 1, 2",
    ],
)
def test_an_assignment_to_an_attribute_is_a_write(statement: str) -> None:
    assert found(f"def f(record: Record) -> None:\n    {statement}") == {"state"}


@pytest.mark.parametrize(
    ("statement", "field"),
    [
        ("record.marks.add('x')", "marks"),
        ("record.rows['x'] = []", "rows"),
        ("del record.rows['x']", "rows"),
        ("record.rows['x'].append(1)", "rows"),
        ("record.rows.setdefault('x', []).append(1)", "rows"),
        ("record.rows.clear()", "rows"),
    ],
)
def test_a_change_of_the_collection_in_an_attribute_is_a_write(statement: str, field: str) -> None:
    assert found(f"def f(record: Record) -> None:\n    {statement}") == {field}


@pytest.mark.parametrize(
    "statement", ["print(record.state)", "record.rows.get('x')", "len(record.marks)", "record.unknown = 1"]
)
def test_a_read_and_an_attribute_that_no_class_declares_are_no_writes(statement: str) -> None:
    assert found(f"def f(record: Record) -> None:\n    {statement}") == set()


@pytest.mark.parametrize(
    "body",
    [
        "def f():\n    record = Record()\n    record.state = 1",
        "def f(shelf: Shelf):\n    shelf.first().state = 1",
        "def f(shelf: Shelf):\n    for record in shelf.records.values():\n        record.state = 1",
        "def f(shelf: Shelf):\n    if (record := shelf.records.get('x')) is not None:\n        record.state = 1",
        "def f(several: list[Record]):\n    [record] = [each for each in several]\n    record.state = 1",
        "def f(several: list['Record | None']):\n    for at, record in enumerate(several):\n        record.state = at",
        "def f(record: Record):\n    def inner():\n        record.state = 1",
        "class Writer:\n    record: Record\n    def f(self):\n        self.record.state = 1",
        "class Writer:\n    def __init__(self, shelf: Shelf):\n        shelf.records['x'].state = 1",
        "class W:\n    def __init__(self, it: Shelf): self.it = it\n    def f(self): self.it.first().state = 1",
        "class Special(Record):\n    def f(self):\n        self.state = 1",
        "Few = tuple[Record, int]\ndef f(few: Few):\n    few[0].state = 1",
    ],
)
def test_the_receiver_is_known_by_annotations_constructors_and_results(body: str) -> None:
    assert found(body) == {"state"}


def test_what_is_not_known_is_not_guessed() -> None:
    assert found("def f(record, shelf: Shelf):\n    record.state = 1\n    shelf.other().state = 1") == set()


def test_a_class_writes_its_own_fields() -> None:
    own = RECORD + "\ndef reset(record: Record) -> None:\n    record.state = 0\n"
    assert found("", own) == set()


def said(of_class: str, below: str) -> str:
    return f'''
class Record:
    """{of_class}"""

    def __init__(self) -> None:
        self.state = 0
        """{below}"""
'''


@pytest.mark.parametrize(
    ("of_class", "below"),
    [
        ("A record.", "The step; ``Writer`` sets it."),
        ("A record. ``state`` is the step, which ``Writer`` sets.", ""),
        ("A record.", "The step; ``advance`` sets it."),
        ("A record.", "The step; the module ``writer`` sets it."),
        ("A record.", "The step; set by ``b.writer``."),
    ],
)
def test_a_sentence_below_the_field_or_in_the_class_names_the_writer(of_class: str, below: str) -> None:
    assert unnamed(said(of_class, below)) == []


@pytest.mark.parametrize(
    ("of_class", "below"),
    [("", ""), ("A record. ``Writer`` sets it.", ""), ("A record.", "The step."), ("", "Writers set it.")],
)
def test_a_field_without_meaning_or_writer_is_found(of_class: str, below: str) -> None:
    assert unnamed(said(of_class, below)) == ["state"]


def unnamed(record: str) -> list[str]:
    writer = (
        "from a.record import Record\nclass Writer:\n    def advance(self, record: Record):\n        record.state = 1"
    )
    return [field.name for field in fields(Sources({"a.record": record, "b.writer": writer})) if field.unnamed()]


def test_every_field_that_another_module_writes_says_who_writes_it() -> None:
    several = list(fields(product()))
    known = {field.owner.rpartition(".")[2] for field in several}
    assert known >= {"PendingWorkload", "LedgerEntry", "QuotaNode", "QueueState", "Entry"}
    assert not [str(field) for field in several if field.unnamed()]
