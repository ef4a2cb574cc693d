"""Probes: one byte of memory for each block of statements, set when control comes by.

Used by `recorder` in the process of the tests, and by `site/sitecustomize.py` in every Python that a test starts.
A tracer costs something at every line of everything, the tests and the standard library too; a probe costs one
store, and only in our own functions. It works the same in threads, under uvloop and where compiled code calls back.

1. This file needs the standard library alone: it is loaded by its path, before there is a `tests` package.
2. The bytes are a file that every process of a run maps. What a child reached is known even if it is killed.
3. The numbers of the probes are settled before any process starts (`prepare`). A process that finds other sources
   than those loads them as they are, without probes.
4. Line numbers and names stay as they were: a probe stands on the line of the statement behind it. No bytecode of
   ours is written where Python keeps its own.
5. Compiled modules have no probes; only statements within functions have them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import marshal
import mmap
import os
import re
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

TYPE_CHECKING = False  # typing itself would be imported in every process that a test starts
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any

PACKAGE = Path(__file__).parents[2] / "aioproduce"

FOLDER = "AIOPRODUCE_REACH"
"""The environment's name for the folder of a run."""
HITS = "AIOPRODUCE_REACH_HITS"
"""The environment's name for the file of bytes of one process of tests and of its children."""

NAME = "__reached__"
"""What the bytes are called in a module with probes."""


class Probes:
    """What the probes of one package are: made by `prepare`, read by all processes.

    Attributes:
        folder: Where it is kept.
        count: How many probes there are.
        modules: By name: the hash of the source and the number of the first probe.
        places: By name: for each probe its function's qualified name, and the first line of what it stands for.
    """

    def __init__(self, folder: Path) -> None:
        stored = json.loads((folder / "probes.json").read_text(encoding="utf-8"))
        self.folder = folder
        self.count: int = stored["count"]
        self.modules: dict[str, tuple[str, int]] = {
            name: (sha, first) for name, (sha, first) in stored["modules"].items()
        }
        self.places: dict[str, list[tuple[str, int]]] = {
            name: [(function, line) for function, line in places] for name, places in stored["places"].items()
        }


class _Inserter(ast.NodeTransformer):
    """Puts a probe at the head of every suite in a function, and behind every statement that has suites."""

    def __init__(self, first: int) -> None:
        self.places: list[tuple[str, int]] = []
        self._first = first
        self._path: list[str] = []
        self._depth = 0

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self._path.append(node.name)
        depth, self._depth = self._depth, 0
        node.body = [self.visit(statement) for statement in node.body]
        self._depth = depth
        self._path.pop()
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        self._path.append(node.name)
        self._depth += 1
        documented = node.body[:1] if ast.get_docstring(node, clean=False) is not None else []
        node.body = documented + self._suite(node.body[len(documented) :])
        self._depth -= 1
        self._path.pop()
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            return node if not isinstance(node, ast.Module) else super().generic_visit(node)
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            suite = getattr(node, field, None)
            if isinstance(suite, list) and suite:
                is_suite = self._depth > 0 and field not in ("handlers", "cases")
                setattr(node, field, self._suite(suite) if is_suite else [self.visit(each) for each in suite])
        return node

    def _suite(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        suite: list[ast.stmt] = []
        is_due = True
        for statement in statements:
            if is_due and not isinstance(statement, ast.Global | ast.Nonlocal):
                suite.append(self._probe(statement))
                is_due = False
            suite.append(self.visit(statement))
            is_due = is_due or hasattr(statement, "body") or isinstance(statement, ast.Match)
        return suite

    def _probe(self, statement: ast.stmt) -> ast.stmt:
        number = self._first + len(self.places)
        self.places.append((".".join(self._path), statement.lineno))
        probe = ast.parse(f"{NAME}[{number}] = 1").body[0]
        for node in ast.walk(probe):
            if isinstance(node, ast.stmt | ast.expr):
                node.lineno = node.end_lineno = statement.lineno
                node.col_offset = node.end_col_offset = statement.col_offset
        return probe


def insert(source: str, path: str, first: int) -> tuple[CodeType, list[tuple[str, int]]]:
    """Compile a module with probes, numbered from `first`: the code, and each probe's function and line."""
    inserter = _Inserter(first)
    tree = inserter.visit(ast.parse(source, path))
    return compile(tree, path, "exec", dont_inherit=True), inserter.places


def prepare(folder: Path, package: Path) -> Probes:
    """Number the probes of a package's sources and keep the code with them; what is there already is replaced."""
    (folder / "code").mkdir(parents=True, exist_ok=True)
    modules: dict[str, tuple[str, int]] = {}
    places: dict[str, list[tuple[str, int]]] = {}
    count = 0
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        source = path.read_bytes()
        code, places[name] = insert(source.decode(), str(path), count)
        modules[name] = (_hash(source), count)
        (folder / "code" / name).write_bytes(marshal.dumps(code))
        count += len(places[name])
    stored = {"count": count, "modules": modules, "places": places}
    (folder / "probes.json").write_text(json.dumps(stored), encoding="utf-8")
    return Probes(folder)


def _hash(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


class _ProbedLoader(SourceFileLoader):
    """Loads one module with its probes."""

    def __init__(self, fullname: str, path: str, finder: ProbedFinder) -> None:
        super().__init__(fullname, path)
        self._finder = finder

    def get_code(self, fullname: str) -> CodeType | None:
        sha, _ = self._finder.probes.modules.get(fullname, ("", 0))
        if _hash(self.get_data(self.path)) != sha:
            return super().get_code(fullname)
        code: CodeType = marshal.loads((self._finder.probes.folder / "code" / fullname).read_bytes())
        return code

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[NAME] = self._finder.hits
        super().exec_module(module)


class ProbedFinder:
    """Finds the package's sources, for `_ProbedLoader` to load; compiled modules are left to others.

    Attributes:
        probes: The run's.
        hits: One byte for each probe.
    """

    def __init__(self, probes: Probes, hits: Path) -> None:
        self.probes = probes
        self.hits = _mapped(hits, probes.count)
        self._zeros = bytes(probes.count)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for the modules that have numbers."""
        if fullname not in self.probes.modules:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return spec
        loader = _ProbedLoader(fullname, spec.loader.path, self)
        locations = spec.submodule_search_locations
        return importlib.util.spec_from_file_location(
            fullname, spec.loader.path, loader=loader, submodule_search_locations=locations
        )

    def remap(self, hits: Path) -> None:
        """Set the bytes of another file from here on: for a process that was forked."""
        self.hits = _mapped(hits, self.probes.count)
        for name in self.probes.modules:
            module = sys.modules.get(name)
            if module is not None and NAME in module.__dict__:
                module.__dict__[NAME] = self.hits

    def clear(self) -> None:
        """Nothing has been reached."""
        self.hits[:] = self._zeros

    def reached(self) -> list[int]:
        """The numbers of the probes that were reached since."""
        return [found.start() for found in re.finditer(rb"\x01", self.hits[:])]


def _mapped(hits: Path, count: int) -> mmap.mmap:
    with hits.open("a+b") as file:
        if file.seek(0, os.SEEK_END) < count:
            file.truncate(count)
        return mmap.mmap(file.fileno(), count)


def install(folder: Path, hits: Path) -> ProbedFinder:
    """Load the package with probes from here on, in this process and in those that it starts."""
    finder = ProbedFinder(Probes(folder), hits)
    present: list[Any] = list(sys.meta_path)
    sys.meta_path[:] = [each for each in present if type(each).__name__ != ProbedFinder.__name__]
    sys.meta_path.insert(0, finder)
    os.environ[FOLDER], os.environ[HITS] = str(folder), str(hits)
    site = str(Path(__file__).parent / "site")
    paths = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and each != site]
    os.environ["PYTHONPATH"] = os.pathsep.join([site, *paths])
    return finder


def blocks(probes: Probes, module: str) -> Iterator[tuple[int, str, int]]:
    """Each probe of a module: its number, its function and its line."""
    _, first = probes.modules[module]
    for offset, (function, line) in enumerate(probes.places[module]):
        yield first + offset, function, line
