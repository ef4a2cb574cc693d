"""The house rules that a machine can hold and ruff does not: direction of imports, sizes, slots.

1. The import floors are those of ``pyproject.toml``; this runs the same check as ``make lint``, so that a bare
   ``pytest`` cannot miss it.
2. Sizes count code: docstrings, comments and blank lines make a module longer and easier to read. Tables of data
   are looked things up in, and not read at once.
3. Every rule is tried on an offender, so that none of them passes by looking at nothing.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

import aioproduce

PACKAGE = Path(aioproduce.__file__).parent
REPOSITORY = PACKAGE.parent
MODULES = sorted(PACKAGE.rglob("*.py"))
IDS = [str(path.relative_to(PACKAGE)) for path in MODULES]
CORE = PACKAGE / "core"

MODULE_LINES = 400
TABLES_OF_DATA = {"config/table.py", "metrics/catalog.py"}
FUNCTION_LINES = 65

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
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


def code_lines(source: str) -> int:
    """Lines with code on them: without docstrings (those of attributes, too), comments and blank lines."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


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
    # In a process of its own: it reconfigures logging, which disables every logger that there is.
    lint = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", lint], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_imports_go_in_a_circle() -> None:
    """Within a room, too, and within functions; annotations are for readers and may."""
    graph = grimp.build_graph("aioproduce", cache_dir=None, exclude_type_checking_imports=True)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(parse(path))


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_module_can_be_read_in_one_sitting(path: Path) -> None:
    lines = code_lines(path.read_text())
    is_data = path.relative_to(PACKAGE).as_posix() in TABLES_OF_DATA
    assert is_data or lines <= MODULE_LINES, f"{lines} lines of code: split it by subject"
    assert long_functions(parse(path), FUNCTION_LINES) == []


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: path.stem)
def test_core_classes_have_slots(path: Path) -> None:
    assert classes_without_slots(parse(path)) == []


def test_declarations_cimport_only_what_their_modules_import() -> None:
    """So the rules of imports hold for C, too; an import may be through another module."""
    graph = grimp.build_graph("aioproduce")
    for path in sorted(PACKAGE.rglob("*.pxd")):
        if path.parent.name == "_native":
            continue  # one room
        module = ".".join(("aioproduce", *path.relative_to(PACKAGE).with_suffix("").parts))
        for name in re.findall(r"from (aioproduce\S+) cimport", path.read_text()):
            assert graph.chain_exists(module, name), f"{module} cimports {name}, and does not import it"


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

    assert (
        code_lines(
            '"""Two\n\nlines."""\n\n# and a comment\na = (\n    1\n)  # three\nb: int\n"""What b is."""\n'
        )
        == 4
    )
    assert not ast.get_docstring(offender)
    assert classes_without_slots(offender) == ["Slotless"]
    assert long_functions(offender, 2) == ["long (3 lines)"]
    assert long_functions(offender, 3) == []
