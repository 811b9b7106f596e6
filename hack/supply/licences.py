"""The licence of a package as an SPDX expression, from what the package says of itself, and whether it is allowed."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

_OR: Final = " OR "
_AND: Final = " AND "


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``licences.toml``."""

    allowed: frozenset[str]
    words: Mapping[str, str]
    packages: Mapping[str, str]


class Said(msgspec.Struct, frozen=True):
    """What a package's metadata has: the fields License-Expression and License, and its classifiers."""

    expression: str | None = None
    licence: str | None = None
    classifiers: Sequence[str] = ()


class UnknownLicenceError(ValueError):
    """A package says no licence, or one that is not allowed: a person must look at it."""


def expression(name: str, said: Said, rules: Rules) -> str:
    """The SPDX expression for the package ``name``, which is allowed; UnknownLicenceError otherwise."""
    stated = _stated(name, said, rules)
    if stated is None:
        told = said.licence or ", ".join(said.classifiers) or "nothing"
        raise UnknownLicenceError(
            f"{name}: its licence is {told[:80]!r}, expected an SPDX identifier or words in licences.toml"
        )
    if not allows(rules, stated):
        raise UnknownLicenceError(
            f"{name}: its licence is {stated!r}, expected one of {', '.join(sorted(rules.allowed))}"
        )
    return stated


def allows(rules: Rules, found: str) -> bool:
    """Whether allowed licences satisfy an expression. One with brackets they never do: a person reads it."""
    return any(all(each in rules.allowed for each in choice.split(_AND)) for choice in found.split(_OR))


def _stated(name: str, said: Said, rules: Rules) -> str | None:
    if name in rules.packages:
        return rules.packages[name]
    if said.expression:
        return said.expression
    if said.licence:
        known = rules.words.get(said.licence, said.licence)
        if allows(rules, known):
            return known
    stated = {rules.words[each] for each in said.classifiers if each in rules.words}
    return stated.pop() if len(stated) == 1 else None
