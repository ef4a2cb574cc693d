"""What a mutant changes: a table of operators, each from a node of the syntax tree to what may stand in its place.

1. An operator never changes the tree that it is given: it answers with new nodes.
2. A change is one that a test can see. Texts are left alone, also those of logs and errors, and so are annotations,
   default values, `assert` statements and errors that say that the program itself is wrong (`INTERNAL`).
3. A change that is sure to fail at once says nothing about the tests. So assignments in `__init__` are not dropped,
   and texts are not subtracted.
"""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Node = TypeVar("_Node", bound=ast.AST)

INTERNAL: Final = frozenset({"RuntimeError", "AssertionError", "NotImplementedError"})
"""Errors about the program itself: no test can bring them about without breaking it first."""

SKIPPED_FUNCTIONS: Final = frozenset({"__repr__", "__str__"})

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ORDER: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult,
}

_LOGGERS: Final = ("_log", "log", "_logger", "logger", "_bounded_log")


def comparison(node: ast.AST) -> Iterator[ast.AST]:
    """`<` and `<=`, `==` and `!=`, `is` and `is not`, `in` and `not in`."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[place] = _COMPARISONS[type(operator)]()
            yield changed


def connective(node: ast.AST) -> Iterator[ast.AST]:
    """`and` and `or`."""
    if isinstance(node, ast.BoolOp):
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield changed


def condition(node: ast.AST) -> Iterator[ast.AST]:
    """The condition of `if`, `while` and of a conditional expression, negated where no other operator does it."""
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not _is_negated_elsewhere(node.test):
        changed = copy.copy(node)
        test = copy.deepcopy(node.test)
        is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        changed.test = test.operand if is_not else _at(ast.UnaryOp(ast.Not(), test), test)  # type: ignore[attr-defined]
        yield changed


def _is_negated_elsewhere(test: ast.expr) -> bool:
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and not isinstance(test.ops[0], _ORDER)
    return isinstance(test, ast.BoolOp | ast.Constant)


def negation(node: ast.AST) -> Iterator[ast.AST]:
    """`not x` as an operand or a value becomes `x`."""
    if isinstance(node, ast.BoolOp):
        for place, operand in enumerate(node.values):
            if isinstance(operand, ast.UnaryOp) and isinstance(operand.op, ast.Not):
                changed = copy.deepcopy(node)
                changed.values[place] = copy.deepcopy(operand.operand)
                yield changed
    elif isinstance(node, ast.Return | ast.Assign | ast.keyword):
        value = node.value
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
            changed_value = copy.copy(node)
            changed_value.value = copy.deepcopy(value.operand)
            yield changed_value


def dropped_call(node: ast.AST) -> Iterator[ast.AST]:
    """A call for its effect is left out, awaited or not."""
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            yield _nothing(node)


def dropped_assignment(node: ast.AST) -> Iterator[ast.AST]:
    """An assignment to an attribute or an item, an augmented assignment or a `del` is left out."""
    if isinstance(node, ast.Assign):
        targets = [each for target in node.targets for each in _flat(target)]
        if any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
            yield (
                _nothing(node)
                if not any(isinstance(each, ast.Name) for each in targets)
                else _names_only(node)
            )
    elif isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Delete) and not any(isinstance(target, ast.Name) for target in node.targets)
    ):
        yield _nothing(node)


def _names_only(node: ast.Assign) -> ast.AST:
    """`left = self.right = x` without the attribute; a tuple of both kinds keeps the attribute's old value."""
    kept = [target for target in node.targets if isinstance(target, ast.Name)]
    if kept and all(not isinstance(target, ast.Tuple) for target in node.targets):
        changed = copy.copy(node)
        changed.targets = list(kept)
        return changed
    changed = copy.deepcopy(node)
    for target in changed.targets:
        for place, element in enumerate(target.elts if isinstance(target, ast.Tuple) else []):
            if isinstance(element, ast.Attribute | ast.Subscript) and isinstance(target, ast.Tuple):
                target.elts[place] = _at(ast.Name("_", ast.Store()), element)
    return changed


def number(node: ast.AST) -> Iterator[ast.AST]:
    """A number, one more and one less."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        for step in (1, -1):
            yield _at(ast.Constant(node.value + step), node)  # type: ignore[operator]


def truth(node: ast.AST) -> Iterator[ast.AST]:
    """`True` and `False`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield _at(ast.Constant(not node.value), node)


def returned(node: ast.AST) -> Iterator[ast.AST]:
    """A value that is returned becomes None, a truth its contrary; a return without a value is left out."""
    if not isinstance(node, ast.Return):
        return
    if node.value is None:
        yield _nothing(node)
    elif isinstance(node.value, ast.Compare) and isinstance(node.value.ops[0], _ORDER):
        yield _at(ast.Return(_at(ast.UnaryOp(ast.Not(), copy.deepcopy(node.value)), node.value)), node)
    elif not isinstance(node.value, ast.Constant | ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield _at(ast.Return(_at(ast.Constant(None), node.value)), node)


def jump(node: ast.AST) -> Iterator[ast.AST]:
    """`continue` and `break`."""
    if isinstance(node, ast.Continue):
        yield _at(ast.Break(), node)
    elif isinstance(node, ast.Break):
        yield _at(ast.Continue(), node)


def extreme(node: ast.AST) -> Iterator[ast.AST]:
    """`min` and `max`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        changed = copy.deepcopy(node)
        changed.func = _at(ast.Name("max" if node.func.id == "min" else "min", ast.Load()), node.func)
        yield changed


def arithmetic(node: ast.AST) -> Iterator[ast.AST]:
    """`+` and `-`, `*` and `//`, `&` and `|`, also in augmented assignments."""
    if isinstance(node, ast.BinOp) and not (_is_text(node.left) or _is_text(node.right)):
        changed = copy.deepcopy(node)
        changed.op = _ARITHMETIC[type(node.op)]()
        yield changed
    elif isinstance(node, ast.AugAssign) and not _is_text(node.value):
        changed_statement = copy.deepcopy(node)
        changed_statement.op = _ARITHMETIC[type(node.op)]()
        yield changed_statement


def dropped_raise(node: ast.AST) -> Iterator[ast.AST]:
    """An error is not raised."""
    if isinstance(node, ast.Raise):
        yield _nothing(node)


OPERATORS: Final[dict[str, Callable[[ast.AST], Iterator[ast.AST]]]] = {
    operator.__name__.replace("_", "-"): operator
    for operator in (
        comparison,
        connective,
        condition,
        negation,
        dropped_call,
        dropped_assignment,
        dropped_raise,
        number,
        truth,
        returned,
        jump,
        extreme,
        arithmetic,
    )
}


def is_left_alone(node: ast.AST) -> bool:
    """Whether neither a node nor anything below it is changed."""
    if isinstance(node, ast.Assert | ast.arguments | ast.AnnAssign | ast.JoinedStr):
        return not isinstance(node, ast.AnnAssign) or node.value is None
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name in SKIPPED_FUNCTIONS
    if isinstance(node, ast.Raise):
        return _raised(node) in INTERNAL
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Call) and (_is_log(node) or _name(node.func) in ("assert_never", "cast"))


def is_pointless(operator: str, function: str) -> bool:
    """Whether a change by an operator could only fail at once, in the function of that name."""
    return operator == "dropped-assignment" and function.rpartition(".")[2] == "__init__"


def _raised(node: ast.Raise) -> str:
    error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return _name(error) if error is not None else ""


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_log(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and _name(node.func.value) in _LOGGERS


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple)


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _flat(element)
    else:
        yield target


def _nothing(node: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Pass(), node)


def _at(new: _Node, old: ast.AST) -> _Node:
    return ast.copy_location(new, old)
