"""The facts of this installation: whether the hot path is compiled, by which tools, and the libraries.

`build_info()` is public, for bug reports and deployments. The producer calls `tell_if_interpreted()` at its start.
The module is imported only when one of the two is needed. (A module named `build_info` would hide the function.)

Invariants:

1. The facts of an extension are read from its own binary (the build record that `setup.py` puts there), never from
   a file next to it, which could belong to another build.
2. An interpreted hot path is logged once per process, through `logging`. An import stays silent, and nothing breaks
   if warnings are errors.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final, final

from aioproduce import _native
from aioproduce.version import VERSION

_log = logging.getLogger("aioproduce")

_LIBRARIES: Final = ("kio", "crc32c", "cramjam", "lz4", "anyio", "uvloop", "trio")
_RECORD: Final = re.compile(
    rb"aioproduce build record: module=([\w.]+); sources=([0-9a-f]{64}); "
    rb"cython=([^;\0]+); options=([^;\0]*); compiler=([^\0]+)\0"
)
_SILENCER: Final = "AIOPRODUCE_PURE"

_is_told = False


@final
@dataclass(frozen=True, slots=True)
class NativeModule:
    """One module of the hot path.

    Attributes:
        name: The module's name within `aioproduce`, e.g. `core.sender`.
        is_compiled: Whether the extension is loaded, and not the source next to it.
        cython: The version of Cython that translated it; `None` if it is interpreted or has no build record.
        options: The C compiler's options that `setup.py` and `CFLAGS` set, as in `"-O3 -g0"`; the last one counts.
        compiler: The C compiler, as in `"GCC 12.2.0"`.
        source_digest: The SHA-256 digest of the sources that it was compiled from (see `setup.py`).
    """

    name: str
    is_compiled: bool
    cython: str | None = None
    options: str | None = None
    compiler: str | None = None
    source_digest: str | None = None


@final
@dataclass(frozen=True, slots=True)
class BuildInfo:
    """The facts of an installation of aioproduce.

    Attributes:
        version: The version of aioproduce.
        modules: The modules of the hot path.
        python: Implementation and version, as in `"CPython 3.11.7"`.
        is_free_threaded: Whether this Python was built to run without the GIL.
        platform: System and machine.
        libraries: Name and version of each library that aioproduce uses; `None` if it is not installed (uvloop
            and trio are optional).
        has_hardware_crc32c: Whether the processor's own instruction computes checksums.
    """

    version: str
    modules: tuple[NativeModule, ...]
    python: str
    is_free_threaded: bool
    platform: str
    libraries: tuple[tuple[str, str | None], ...]
    has_hardware_crc32c: bool

    @property
    def compiled(self) -> bool:
        """Whether all of the hot path is compiled."""
        return all(module.is_compiled for module in self.modules)

    @property
    def interpreted_modules(self) -> tuple[str, ...]:
        """The modules of the hot path that are not compiled."""
        return tuple(module.name for module in self.modules if not module.is_compiled)

    def as_dict(self) -> dict[str, Any]:
        """Return all facts as a dictionary for `json.dumps()`."""
        return {**asdict(self), "compiled": self.compiled, "libraries": dict(self.libraries)}

    def __str__(self) -> str:
        libraries = ", ".join(f"{name} {number or '(not installed)'}" for name, number in self.libraries)
        return (
            f"aioproduce {self.version}, {self._how_built()}; {self.python} on {self.platform}; {libraries}"
        )

    def _how_built(self) -> str:
        if self.interpreted_modules:
            return f"interpreted ({', '.join(self.interpreted_modules)})"
        # Modules of one build have the same makers. A mixture of builds shows each.
        makers: dict[str, set[str]] = {}
        for module in self.modules:
            by = (
                f"Cython {module.cython}, {module.compiler}"
                if module.cython
                else "by other means than setup.py"
            )
            makers.setdefault(by, set()).add(module.options or "")
        told = (f"{by} {' or '.join(sorted(options))}".rstrip() for by, options in sorted(makers.items()))
        return f"compiled ({' / '.join(told)})"


def build_info() -> BuildInfo:
    """Return the facts of this installation.

    This takes some milliseconds: it loads the hot path and reads its files.

    Example:
        >>> print(aioproduce.build_info())
        aioproduce 0.1.0, compiled (Cython 3.3.1, GCC 12... -O1 -g0 or -O3 -g0); CPython 3.11... on Linux ...
        >>> aioproduce.build_info().compiled
        True
    """
    import platform
    import sysconfig

    from crc32c import hardware_based

    return BuildInfo(
        version=VERSION,
        modules=tuple(_module(name) for name in _module_names()),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        is_free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        platform=f"{platform.system()} {platform.machine()}",
        libraries=tuple((name, _version(name)) for name in _LIBRARIES),
        has_hardware_crc32c=bool(hardware_based),
    )


def tell_if_interpreted() -> None:
    """Log once that the hot path is interpreted, with the reason and the remedy.

    It uses `logging`, not `warnings`: no line of the caller's code can change the installation, and the message
    must not become an exception. `AIOPRODUCE_PURE=1` means that it is intended, and silences the message.
    """
    global _is_told
    if _is_told:
        return
    _is_told = True
    interpreted = [name for name in _module_names() if not _is_compiled(name)]
    if interpreted and os.environ.get(_SILENCER) != "1":
        _log.warning(
            "the hot path runs interpreted, several times slower: no compiled extension of %s for %s was found. "
            "Install a C compiler and reinstall (pip install --force-reinstall --no-cache-dir --no-deps "
            "aioproduce), or use a platform with a wheel; set %s=1 if this is intended",
            ", ".join(f"aioproduce.{name}" for name in interpreted),
            sys.implementation.cache_tag,
            _SILENCER,
        )


def _module_names() -> list[str]:
    """Return the modules of `_native`, and those of other folders that have a `.pxd`."""
    hot = {f"_native.{each.name}" for each in iter_modules(_native.__path__) if not each.name.startswith("_")}
    package = Path(_native.__path__[0]).parent
    declared = (path.relative_to(package).with_suffix("").parts for path in package.rglob("*.pxd"))
    return sorted(hot | {".".join(parts) for parts in declared if parts[0] != "_native"})


def _file(name: str) -> Path:
    return Path(import_module(f"aioproduce.{name}").__file__ or "")


def _is_compiled(name: str) -> bool:
    return _file(name).name.endswith(tuple(EXTENSION_SUFFIXES))


def _module(name: str) -> NativeModule:
    if not _is_compiled(name):
        return NativeModule(name, is_compiled=False)
    record = _RECORD.search(_file(name).read_bytes())
    if record is None:
        return NativeModule(name, is_compiled=True)
    _, digest, cython, options, compiler = (part.decode() for part in record.groups())
    return NativeModule(name, True, cython, options, compiler, source_digest=digest)


def _version(library: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:
        return None
