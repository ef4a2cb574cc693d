"""The compiled part of the package: every module of `aioproduce/_native`, from its `.py`.

Everything else about the package stands in `pyproject.toml`.

1. Without Cython there is nothing to compile, and without a working C compiler an extension is left out
   (`optional`): the package installs all the same and runs interpreted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup


def native_extensions() -> list[Any]:
    """One extension per module; what starts with an underscore supports the others and stays as it is."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    root = Path(__file__).parent
    modules = sorted(
        path.relative_to(root)
        for path in root.glob("aioproduce/_native/*.py")
        if not path.name.startswith("_")
    )
    arguments = [] if sys.platform == "win32" else ["-O3"]
    extensions: list[Any] = cythonize(
        [
            Extension(
                ".".join(module.with_suffix("").parts), [module.as_posix()], extra_compile_args=arguments
            )
            for module in modules
        ],
        # Away from the sources: what lies beside them is packed into wheels.
        build_dir="build/cython",
        language_level=3,
    )
    for extension in extensions:
        # Only now: cythonize() makes new extensions, without this.
        extension.optional = True
    return extensions


setup(ext_modules=native_extensions())
