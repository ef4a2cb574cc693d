"""An exporter whose library is missing says which extra brings it; the others do not need it."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("prometheus_client", "opentelemetry"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(("module", "library"), [("prometheus", "prometheus_client")])
def test_the_error_names_the_extra(module: str, library: str) -> None:
    code = f"""
from aioproduce.errors import MissingExtraError
try:
    import aioproduce.reporters.{module}
except MissingExtraError as error:
    assert isinstance(error, ImportError)
    print(error, error.extra, error.name)
"""
    told = run(code)
    assert f"pip install 'aioproduce[{module}]'" in told
    assert told.endswith(f"{module} {library}")


@pytest.mark.parametrize("module", ["json_lines", "logging", "worker_files", "sources"])
def test_the_others_need_none(module: str) -> None:
    assert run(f"import aioproduce.reporters.{module}; print('imported')") == "imported"
