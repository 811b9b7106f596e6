"""What the product's names and expressions are, read from its syntax trees: nothing is run or imported.

Annotations, constructors and the results of annotated functions are followed. What they do not tell is ``UNKNOWN``,
never a guess: a field that is written through such an expression is not found.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from hack.fields.kinds import UNKNOWN, Kind, called, collection, item, union, value

Function = ast.FunctionDef | ast.AsyncFunctionDef
Env = dict[str, Kind]
"""The types of a function's names."""
_THROUGH = ("Optional", "ClassVar", "Final", "Annotated", "Awaitable", "type")
_COPIES = ("list", "sorted", "tuple", "set", "frozenset", "reversed", "iter", "deque")


class Sources:
    """The modules, by dotted name."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.trees = {name: ast.parse(text) for name, text in texts.items()}
        self._names = {module: dict(_defined(tree)) for module, tree in self.trees.items()}
        self._fields: dict[tuple[Kind, str], Kind] = {}
        self._aliases: dict[tuple[str, str], Kind] = {}

    def find(self, module: str, name: str) -> tuple[str, ast.AST | None]:
        """The module and node that define what ``name`` means in ``module``; None if no module of ours does."""
        node = self._names.get(module, {}).get(name)
        return self.find(*node) if isinstance(node, tuple) else (module, node)

    def annotated(self, module: str, node: ast.AST | None) -> Kind:
        """The type that an annotation names, without None."""
        match node:
            case ast.Constant(value=str(text)):
                return self.annotated(module, ast.parse(text, mode="eval").body)
            case ast.BinOp(left=left, right=right):
                return union(self.annotated(module, left), self.annotated(module, right))
            case ast.Subscript(value=head, slice=inner):
                items = tuple(self.annotated(module, each) for each in getattr(inner, "elts", [inner]))
                name = ast.unparse(head).rpartition(".")[2]
                return items[0] if name in _THROUGH else union(collection(name, items), self.annotated(module, head))
            case ast.Name(id=name):
                return self._named(*self.find(module, name), name)
            case ast.Attribute(value=ast.Name(id=prefix), attr=name):
                imported = self._names[module].get(prefix)
                known = self.find(".".join(imported), name) if isinstance(imported, tuple) else (module, None)
                return self._named(*known, name)
        return UNKNOWN

    def _named(self, where: str, node: ast.AST | None, name: str) -> Kind:
        match node:
            case ast.ClassDef(name=own):
                return Kind(f"{where}.{own}")
            case ast.Assign(value=ast.Subscript() | ast.BinOp() as alias):
                if (where, name) not in self._aliases:
                    self._aliases[where, name] = UNKNOWN  # Ends the circle of a type like JSON's, that names itself.
                    self._aliases[where, name] = self.annotated(where, alias)
                return self._aliases[where, name]
        return collection(name) if node is None else UNKNOWN

    def line_of(self, kind: Kind) -> Iterator[tuple[str, ast.ClassDef]]:
        """The class and the module that defines it, then those that it inherits from."""
        where, node = self.find(*kind.name.rpartition(".")[::2])
        if isinstance(node, ast.ClassDef):
            yield where, node
            for base in node.bases:
                yield from self.line_of(self.annotated(where, base))

    def method(self, kind: Kind, name: str) -> tuple[str, Function] | None:
        for where, node in self.line_of(kind):
            for each in node.body:
                if isinstance(each, Function) and each.name == name:
                    return where, each
        return None

    def field(self, kind: Kind, attribute: str) -> Kind:
        """The type of an attribute or a property."""
        if (kind, attribute) not in self._fields:
            self._fields[kind, attribute] = UNKNOWN  # Ends a circle: an attribute that is assigned from itself.
            self._fields[kind, attribute] = self._field(kind, attribute)
        return self._fields[kind, attribute]

    def _field(self, kind: Kind, attribute: str) -> Kind:
        if found := self.method(kind, attribute):
            return self.returned(*found, kind)
        for where, node in self.line_of(kind):
            statements = declared(node).get(attribute, ())
            for _, statement in statements:
                if isinstance(statement, ast.AnnAssign):
                    return self.annotated(where, statement.annotation)
            given = (self.of(where, self.parameters(where, by, kind), each.value) for by, each in statements if by)
            if (known := union(*given)) != UNKNOWN:
                return known
        return UNKNOWN

    def returned(self, module: str, function: Function, own: Kind = UNKNOWN) -> Kind:
        text = ast.unparse(function.returns) if function.returns else ""
        kind = own if text.strip("'") == "Self" else self.annotated(module, function.returns)
        decorators = " ".join(ast.unparse(each) for each in function.decorator_list)
        return item(kind) if "contextmanager" in decorators else kind

    def parameters(self, module: str, function: Function | ast.Lambda, own: Kind = UNKNOWN) -> Env:
        given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        found = {each.arg: self.annotated(module, each.annotation) for each in given}
        return found | ({given[0].arg: own} if own != UNKNOWN and given and given[0].arg in ("self", "cls") else {})

    def bind(self, module: str, env: Env, target: ast.AST, kind: Kind) -> None:
        """Adds what ``target`` names to ``env``; a name that is bound twice has both types."""
        if isinstance(target, ast.Name):
            env[target.id] = union(env.get(target.id, UNKNOWN), kind)
        for index, each in enumerate(getattr(target, "elts", [])):
            self.bind(module, env, each, value(kind, index))

    def of(self, module: str, env: Env, node: ast.AST | None) -> Kind:  # noqa: C901 - a case for each form
        """The type of an expression."""
        match node:
            case ast.Name(id=name):
                return env[name] if name in env else self._constant(module, name)
            case ast.Attribute(value=owner, attr=attribute):
                return union(*(self.field(each, attribute) for each in self.of(module, env, owner).members()))
            case ast.Subscript(value=row, slice=index):
                at = index.value if isinstance(index, ast.Constant) and isinstance(index.value, int) else None
                return union(*(self._at(each, at) for each in self.of(module, env, row).members()))
            case ast.Call():
                return self._called(module, env, node)
            case ast.BoolOp(values=several):
                return union(*(self.of(module, env, each) for each in several))
            case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
                return union(self.of(module, env, one), self.of(module, env, other))
            case ast.NamedExpr(value=inner) | ast.Await(value=inner) | ast.Starred(value=inner):
                return self.of(module, env, inner)
            case ast.Tuple(elts=several):
                return Kind("tuple", tuple(self.of(module, env, each) for each in several))
            case ast.List(elts=several):
                return Kind("list", (union(*(self.of(module, env, each) for each in several)),))
            case ast.Dict() | ast.DictComp():
                return Kind("dict")
            case ast.Set() | ast.SetComp():
                return Kind("set")
            case ast.ListComp(elt=inner, generators=loops) | ast.GeneratorExp(elt=inner, generators=loops):
                local = dict(env)
                for loop in loops:
                    self.bind(module, local, loop.target, self.iterated(self.of(module, local, loop.iter)))
                return Kind("list", (self.of(module, local, inner),))
        return UNKNOWN

    def iterated(self, kind: Kind) -> Kind:
        """What a loop over it yields."""
        own = (item(self.returned(*found, each)) for each in kind.members() if (found := self.method(each, "__iter__")))
        return union(item(kind), *own)

    def _at(self, kind: Kind, index: int | None) -> Kind:
        found = self.method(kind, "__getitem__")
        return self.returned(*found, kind) if found else value(kind, index)

    def _constant(self, module: str, name: str) -> Kind:
        where, node = self.find(module, name)
        match node:
            case ast.AnnAssign(annotation=annotation):
                return self.annotated(where, annotation)
            case ast.Assign(value=given):
                return self.of(where, {}, given)
        return UNKNOWN

    def _called(self, module: str, env: Env, node: ast.Call) -> Kind:
        match node.func:
            case ast.Name(id="cast"):
                return self.annotated(module, node.args[0])
            case ast.Name(id="next" | "min" | "max"):
                return self.iterated(self.of(module, env, node.args[0]))
            case ast.Name(id="enumerate"):
                return Kind("list", (Kind("tuple", (UNKNOWN, self.iterated(self.of(module, env, node.args[0])))),))
            case ast.Name(id="zip"):
                several = tuple(self.iterated(self.of(module, env, each)) for each in node.args)
                return Kind("list", (Kind("tuple", several),))
            case ast.Name(id=name) if name in _COPIES:
                return Kind("list", tuple(self.iterated(self.of(module, env, each)) for each in node.args))
            case ast.Name(id=name) if name not in env:
                where, found = self.find(module, name)
                return self.returned(where, found) if isinstance(found, Function) else self.annotated(module, node.func)
            case ast.Attribute(value=owner, attr=name):
                results = [self._result(each, name) for each in self.of(module, env, owner).members()]
                return union(*results) if results != [UNKNOWN] else self.annotated(module, node.func)
        return UNKNOWN

    def _result(self, kind: Kind, method: str) -> Kind:
        found = self.method(kind, method)
        return self.returned(*found, kind) if found else called(kind, method)


Declaration = tuple[Function | None, ast.Assign | ast.AnnAssign]
"""A statement that assigns an attribute, with its method; the method is None in the class's body."""


@cache
def declared(node: ast.ClassDef) -> Mapping[str, Sequence[Declaration]]:
    """The attributes that a class assigns itself."""
    by_name = defaultdict(list)
    for each in node.body:
        for inner in ast.walk(each) if isinstance(each, Function) else (each,):
            if isinstance(inner, ast.AnnAssign | ast.Assign):
                by, prefix = (each, "self.") if isinstance(each, Function) else (None, "")
                for name in _targets(inner, prefix):
                    by_name[name].append((by, inner))
    return by_name


def _targets(node: ast.Assign | ast.AnnAssign, prefix: str) -> list[str]:
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
    texts = [ast.unparse(inner) for each in targets for inner in getattr(each, "elts", [each])]
    return [text.removeprefix(prefix) for text in texts if text.startswith(prefix)]


def _defined(tree: ast.Module) -> Iterator[tuple[str, ast.AST | tuple[str, str]]]:
    """The names of a module, with the node that defines it or the module and name that it is imported from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((each.asname or each.name, (node.module or "", each.name)) for each in node.names)
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node
