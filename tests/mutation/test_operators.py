"""Each operator: what it makes of a small piece of code, and what it leaves alone."""

from __future__ import annotations

import ast

import pytest

from tests.mutation.operators import OPERATORS, is_left_alone, is_pointless


def changes(operator: str, source: str) -> list[str]:
    """The code that an operator makes of the first statement, or of the first expression in it."""
    statement = ast.parse(source).body[0]
    nodes = [statement, *(node for node in ast.walk(statement) if node is not statement)]
    made = [
        ast.unparse(ast.fix_missing_locations(each)) for node in nodes for each in OPERATORS[operator](node)
    ]
    assert ast.unparse(statement) == ast.unparse(ast.parse(source)), "the operator changed its argument"
    return made


@pytest.mark.parametrize(
    ("operator", "source", "expected"),
    [
        ("comparison", "a < b", ["a <= b"]),
        ("comparison", "0 <= a < b", ["0 < a < b", "0 <= a <= b"]),
        ("comparison", "a is None", ["a is not None"]),
        ("comparison", "a not in b", ["a in b"]),
        ("comparison", "a == b", ["a != b"]),
        ("connective", "a and b", ["a or b"]),
        ("connective", "a or b or c", ["a and b and c"]),
        ("condition", "if a:\n    b()", ["if not a:\n    b()"]),
        ("condition", "if not a:\n    b()", ["if a:\n    b()"]),
        ("condition", "a if b > c else d", ["a if not b > c else d"]),
        ("condition", "if a is b:\n    c()", []),
        ("condition", "if a and b:\n    c()", []),
        ("condition", "while True:\n    a()", []),
        ("negation", "a and not b", ["a and b"]),
        ("negation", "return_(key=not a)", ["key=a"]),
        ("negation", "a = not b", ["a = b"]),
        ("dropped-call", "a.b(c)", ["pass"]),
        ("dropped-call", "await a.b(c)", ["pass"]),
        ("dropped-call", "a = b()", []),
        ("dropped-assignment", "a.b = c", ["pass"]),
        ("dropped-assignment", "a[b] = c", ["pass"]),
        ("dropped-assignment", "a = b", []),
        ("dropped-assignment", "a = b.c = d", ["a = d"]),
        ("dropped-assignment", "a, b.c = d", ["a, _ = d"]),
        ("dropped-assignment", "a += b", ["pass"]),
        ("dropped-assignment", "del a[b]", ["pass"]),
        ("dropped-assignment", "del a", []),
        ("dropped-raise", "raise ValueError(a)", ["pass"]),
        ("number", "a[1:]", ["2", "0"]),
        ("number", "a(0.5)", ["1.5", "-0.5"]),
        ("number", "a('1')", []),
        ("truth", "a(b=True)", ["False"]),
        ("truth", "a(1)", []),
        ("returned", "return", ["pass"]),
        ("returned", "return a", ["return None"]),
        ("returned", "return a < b", ["return not a < b"]),
        ("returned", "return None", []),
        ("jump", "continue", ["break"]),
        ("jump", "break", ["continue"]),
        ("extreme", "min(a, b)", ["max(a, b)"]),
        ("extreme", "a.min(b)", []),
        ("arithmetic", "a + b", ["a - b"]),
        ("arithmetic", "a + 'b'", []),
        ("arithmetic", "a -= b", ["a += b"]),
        ("arithmetic", "a | b", ["a & b"]),
    ],
)
def test_what_an_operator_makes(operator: str, source: str, expected: list[str]) -> None:
    assert changes(operator, source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "assert a < b",
        "raise RuntimeError(a + b)",
        "raise AssertionError",
        "if TYPE_CHECKING:\n    a = 1",
        "def __repr__(self):\n    return a",
    ],
)
def test_what_is_left_alone(source: str) -> None:
    assert is_left_alone(ast.parse(source).body[0])


@pytest.mark.parametrize(
    "source", ["_log.warning('a', 1 + 2)", "self._bounded_log.info(a, 1)", "assert_never(a)"]
)
def test_the_arguments_of_logs_are_left_alone(source: str) -> None:
    statement = ast.parse(source).body[0]
    assert isinstance(statement, ast.Expr)
    assert is_left_alone(statement.value)
    assert not is_left_alone(statement), "the whole line may be dropped"


@pytest.mark.parametrize("source", ["raise ValueError(a)", "if a:\n    b = 1", "a: int = 1", "self.log(1)"])
def test_what_is_not_left_alone(source: str) -> None:
    assert not is_left_alone(ast.parse(source).body[0])


def test_an_initial_value_is_not_dropped() -> None:
    assert is_pointless("dropped-assignment", "A.__init__")
    assert not is_pointless("dropped-assignment", "A.move")
    assert not is_pointless("number", "A.__init__")
