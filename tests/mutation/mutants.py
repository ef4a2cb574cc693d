"""Find all mutants of a module, name them, make their code, draw a sample.

1. A mutant's name depends neither on lines nor on other functions. It is made of the module, the function, the
   operator, what is changed, and a number where the same change is possible several times.
2. `function_hash` changes with every change of the function except its layout and comments. An argument that a
   mutant is equivalent holds only for the function that its author read.
3. Only statements of functions and methods are changed: their code can be swapped in place. Constants of modules
   and classes, default values and decorators are left alone.
4. The sample of a module is the mutants with the least hashes of seed and name: a change elsewhere does not alter
   it.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.mutation.operators import OPERATORS, is_left_alone, is_pointless

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import CodeType

_TEXT: Final = 90
"""How many characters of code a name shows."""

_UNSEEN_FIELDS: Final = frozenset({"annotation", "returns", "decorator_list", "bases", "type_params"})

_SOURCES: Final[dict[Path, str]] = {}
"""The files as their mutants were found in them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function.

    Attributes:
        name: See invariant 1.
        module: As `targets` names it.
        path: The module's file.
        unit: The qualified name of the outermost function around the change: whose code is swapped.
        function: The dotted names of the classes and functions around the change.
        line: Of the statement that is changed.
        function_hash: See invariant 2.
        place: Which node it is, in the order of `_nodes`.
        operator: Which operator of `OPERATORS` makes it.
        variant: Which of the operator's answers it is.
    """

    name: str
    module: str
    path: Path
    unit: str
    function: str
    line: int
    function_hash: str
    place: int
    operator: str
    variant: int


@dataclass(frozen=True, slots=True)
class _Site:
    node: ast.AST
    statement: ast.stmt
    unit: Function
    unit_name: str
    function: str


def _nodes(tree: ast.Module) -> Iterator[_Site]:
    """All nodes that may be changed, always in the same order."""
    for statement in tree.body:
        yield from _outside(statement, ())


def _outside(node: ast.stmt, names: tuple[str, ...]) -> Iterator[_Site]:
    """What is not within a function: only functions matter."""
    if is_left_alone(node):
        return
    if isinstance(node, Function):
        name = ".".join((*names, node.name))
        for statement in _without_docstring(node):
            yield from _inside(statement, _Site(statement, statement, node, name, name))
    elif isinstance(node, ast.ClassDef):
        for statement in node.body:
            yield from _outside(statement, (*names, node.name))
    elif isinstance(node, ast.If):
        for statement in (*node.body, *node.orelse):
            yield from _outside(statement, names)


def _inside(node: ast.AST, around: _Site) -> Iterator[_Site]:
    if is_left_alone(node):
        return
    statement = node if isinstance(node, ast.stmt) else around.statement
    yield (site := _Site(node, statement, around.unit, around.unit_name, around.function))
    if isinstance(node, Function | ast.ClassDef):
        site = _Site(node, statement, around.unit, around.unit_name, f"{around.function}.{node.name}")
        below: list[ast.AST] = [*_without_docstring(node)]
    else:
        below = [
            child
            for field, value in ast.iter_fields(node)
            if field not in _UNSEEN_FIELDS
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST)
        ]
    for child in below:
        yield from _inside(child, site)


def _without_docstring(node: Function | ast.ClassDef) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def mutants_of(module: str, path: Path) -> list[Mutant]:
    """All mutants of one module, as it is now: a file that changes later does not change them."""
    _SOURCES[path] = path.read_text(encoding="utf-8")
    found: list[Mutant] = []
    names: Counter[str] = Counter()
    hashes: dict[str, str] = {}
    for place, site in enumerate(_nodes(ast.parse(_SOURCES[path]))):
        for operator, change in OPERATORS.items():
            if is_pointless(operator, site.function):
                continue
            for variant, changed in enumerate(change(site.node)):
                name = f"{module}:{site.function} {operator}: {_description(site, changed)}"
                names[name] += 1
                found.append(
                    Mutant(
                        name=name if names[name] == 1 else f"{name} ({names[name]})",
                        module=module,
                        path=path,
                        unit=site.unit_name,
                        function=site.function,
                        line=site.statement.lineno,
                        function_hash=hashes.setdefault(site.unit_name, _hash_of(site.unit)),
                        place=place,
                        operator=operator,
                        variant=variant,
                    )
                )
    return found


def _hash_of(unit: Function) -> str:
    text = "\n".join(ast.unparse(statement) for statement in _without_docstring(unit))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _description(site: _Site, changed: ast.AST) -> str:
    before = _head(site.node)
    if isinstance(changed, ast.Pass):
        return f"no {before}"
    after = _head(changed)
    whole = _head(site.statement)
    return f"{before} -> {after}" + (f" in {whole}" if whole != before else "")


def _head(node: ast.AST) -> str:
    """A node's code, without the suites of a statement."""
    if isinstance(node, ast.If | ast.While):
        text = f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    elif isinstance(node, ast.For | ast.AsyncFor):
        text = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
    elif isinstance(node, ast.With | ast.AsyncWith):
        text = "with " + ", ".join(ast.unparse(item) for item in node.items)
    else:
        text = ast.unparse(node)
    text = " ".join(text.split())
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"


class _Replacer(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else self.generic_visit(node)


def mutated_code(mutant: Mutant) -> CodeType:
    """The code of the whole module with the mutant's change."""
    tree = ast.parse(_SOURCES[mutant.path], str(mutant.path))
    node = next(site.node for place, site in enumerate(_nodes(tree)) if place == mutant.place)
    changed = list(OPERATORS[mutant.operator](node))[mutant.variant]
    _Replacer(node, changed).visit(tree)
    return compile(ast.fix_missing_locations(tree), str(mutant.path), "exec", dont_inherit=True)


def sample(by_module: Mapping[str, Iterable[Mutant]], count: int, seed: int) -> list[Mutant]:
    """Draw mutants, from each module in proportion to how many it has, and at least one."""
    drawn: list[Mutant] = []
    lists = {module: list(mutants) for module, mutants in by_module.items()}
    total = sum(map(len, lists.values()))
    for mutants in lists.values():
        share = len(mutants) if count >= total else round(count * len(mutants) / total) or 1
        drawn += sorted(mutants, key=lambda mutant: _order(seed, mutant.name))[:share]
    return drawn


def _order(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed} {name}".encode()).digest()
