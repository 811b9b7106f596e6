"""A contract of our own for import-linter, for what its contracts cannot say: who may act, by an allow-list.

``acting`` names the modules that may reach clocks, threads, sockets, processes, chance and logs. Every other module
decides: it imports none of ``effects`` and no acting module, so that none of them is reached by any way round. A
forbidden contract would have to name the many that decide, and a new module would be in no list.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class ActingContract(Contract):
    """``acting``: names of modules, ``*`` for any part of a name; ``effects``: packages outside the project.

    An acting module that reaches no effect breaks the contract too: so no entry lets pass what comes later, and a name
    that ends in ``_shell`` is true.
    """

    acting = fields.ListField(subfield=fields.StringField())
    effects = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 - import-linter's signature
        roots = {str(name) for name in self.session_options["root_packages"]}
        entries, effects = list(_texts(self.acting)), set(_texts(self.effects))
        own = sorted(name for name in graph.modules if name.partition(".")[0] in roots)
        acting = {name for name in own if any(fnmatchcase(name, entry) for entry in entries)}
        broken = []
        for name in own:
            imported = graph.find_modules_directly_imported_by(name)
            reached = sorted(each for each in imported if each.partition(".")[0] in effects or each in acting)
            if reached and name not in acting:
                broken.append(f"{name} decides and imports {reached[0]}")
            elif name in acting and not reached:
                broken.append(f"{name} may act and does not: it decides")
        broken += [f"acting: {entry} is no module" for entry in entries if not _any(own, entry)]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["broken"]:
            output.print_error(line)


def _texts(field: object) -> Iterable[str]:
    """A field has the values of the contract in its place once the contract is made."""
    return cast("Iterable[str]", field)


def _any(names: Iterable[str], entry: str) -> bool:
    return any(fnmatchcase(name, entry) for name in names)
