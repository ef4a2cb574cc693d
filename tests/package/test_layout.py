"""The house rules that a machine can hold and ruff does not: direction of imports, sizes, slots.

1. The import floors are those of ``pyproject.toml``; this runs the same check as ``make lint``, so that a bare
   ``pytest`` cannot miss it.
2. Sizes count what must be read at once. The style asks for about 500 lines a module and 50 a function; what is
   held here is the point where "about" ends.
3. Every rule is tried on an offender, so that none of them passes by looking at nothing.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import aioproduce

PACKAGE = Path(aioproduce.__file__).parent
REPOSITORY = PACKAGE.parent
MODULES = sorted(PACKAGE.rglob("*.py"))
IDS = [str(path.relative_to(PACKAGE)) for path in MODULES]
CORE = PACKAGE / "core"

MODULE_LINES = 600
FUNCTION_LINES = 65

# Their instances have no attributes of their own, or their machinery makes the slots.
SLOTLESS_BASES = {"Enum", "IntEnum", "Flag", "Protocol", "NamedTuple", "Exception"}


def long_functions(tree: ast.Module, limit: int) -> list[str]:
    """Functions whose statements, without the docstring, span more lines than the limit."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = node.body[0] if ast.get_docstring(node) else None
            length = _span(node) - (_span(documented) if documented else 0)
            if length > limit:
                found.append(f"{node.name} ({length} lines)")
    return found


def _span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def classes_without_slots(tree: ast.Module) -> list[str]:
    """Classes that declare no ``__slots__``, neither by hand nor as ``dataclass(slots=True)``."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        bases = {ast.unparse(base).split("[")[0].rpartition(".")[2] for base in node.bases}
        has_slots = any("slots=True" in ast.unparse(decorator) for decorator in node.decorator_list) or any(
            isinstance(target, ast.Name) and target.id == "__slots__"
            for statement in node.body
            for target in _targets(statement)
        )
        if not has_slots and not bases & SLOTLESS_BASES:
            found.append(node.name)
    return found


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def test_imports_only_go_down() -> None:
    # In a process of its own: it configures logging anew, which disables every logger that there is.
    lint = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", lint], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(parse(path))


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_module_can_be_read_in_one_sitting(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MODULE_LINES, f"{lines} lines: split it by subject"
    assert long_functions(parse(path), FUNCTION_LINES) == []


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: path.stem)
def test_core_classes_have_slots(path: Path) -> None:
    assert classes_without_slots(parse(path)) == []


def test_the_rules_find_offenders() -> None:
    offender = ast.parse(
        "class Slotless:\n"
        "    def method(self): pass\n"
        "class Slotted:\n"
        '    __slots__ = ("a",)\n'
        "class State(enum.Enum): pass\n"
        "@dataclass(frozen=True, slots=True)\n"
        "class Value: pass\n"
        "def long():\n"
        '    """Two\n    lines."""\n'
        "    a = 1\n"
        "    return a\n"
    )

    assert not ast.get_docstring(offender)
    assert classes_without_slots(offender) == ["Slotless"]
    assert long_functions(offender, 2) == ["long (3 lines)"]
    assert long_functions(offender, 3) == []
