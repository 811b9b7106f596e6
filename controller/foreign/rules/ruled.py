"""A kind of another batch system with its rules: for this process, and for the API server's policies."""

from collections.abc import Iterable
from typing import Any, Final, Literal

from controller.jobs.framework.kind import Refusal, Review, Rule, refused
from controller.jobs.framework.raw import Json, sequence
from controller.jobs.rules import cel
from controller.objects.meta import Struct

System = Literal["volcano", "kai"]


class ForeignKind(Struct, frozen=True, kw_only=True):
    """A kind with its rules. ``variables``: in CEL, what its sentences use, each those before it.

    ``defaults``: in CEL, patches of new objects. ``deletions``: rules about an object that is to be deleted; in CEL it
    is ``oldObject``.
    """

    system: System
    group: str
    version: str
    kind: str
    plural: str
    rules: tuple[Rule, ...]
    own_variables: tuple[tuple[str, str], ...] = ()
    defaults: str = ""
    deletions: tuple[Rule, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def variables(self) -> dict[str, str]:
        return {"updated": "oldObject != null", **dict(self.own_variables)}

    @property
    def says(self) -> dict[str, str]:
        return all_sentences(self.rules)

    @property
    def deletion_says(self) -> dict[str, str]:
        return all_sentences(self.deletions)


def all_sentences(rules: Iterable[Rule]) -> dict[str, str]:
    """All sentences in CEL, by their names, in the order of the rules."""
    return {name: said for rule in rules for name, said in rule.says.items()}


def created(kind: ForeignKind, given: Json) -> tuple[Refusal, ...]:
    return refused(kind.rules, Review(new=given))


def updated(kind: ForeignKind, before: Json, given: Json) -> tuple[Refusal, ...]:
    return refused(kind.rules, Review(new=given, before=before))


def deleted(kind: ForeignKind, given: Json) -> tuple[Refusal, ...]:
    return refused(kind.deletions, Review(new=given))


MOST: Final = cel.MOST_PLACES
"""The number of a list's items that are checked: CEL has a budget, and objects with longer lists cannot be queued."""


def first_items(given: Json, *path: str) -> list[Json]:
    return [each for each in sequence(given, *path)[:MOST] if isinstance(each, dict)]


def bounded(items: str) -> str:
    """The first items of a list, which is an expression, in CEL."""
    return f"{list(range(MOST))}.filter(b, b < size({items})).map(b, {items}[b])"


def listed(names: Iterable[str]) -> str:
    """A list of texts as a literal of CEL."""
    return f"[{', '.join(map(cel.quoted, names))}]"


def place(before: str, index: str, after: str = "") -> str:
    """The path of an item, in CEL: ``before`` and ``after`` are texts, ``index`` an expression."""
    return cel.text(cel.quoted(f"{before}["), f"string({index})", cel.quoted(f"]{after}"))


def duplicates(items: Iterable[Any]) -> list[Any]:
    """The items that occur more than once, in the order of their first occurrence."""
    seen = list(items)
    return [each for place, each in enumerate(seen) if seen.count(each) > 1 and seen.index(each) == place]
