"""What an import loads, as a measure of what it costs: the modules are the same on any machine, the time is not.

For the record, with bytecode cached, on the machine of README's figures: `import aioproduce` takes 4 ms, and the
first use of `Producer` another 80 to 130 ms, as fast as the machine is at the time; the bound asked for is 150 ms.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Whatever takes milliseconds and is wanted by some users only, or not before a producer starts.
NOT_BEFORE_START = {
    "aioproduce.cli",
    "aioproduce.drivers.asyncio",
    "aioproduce.installation",
    "aioproduce.testing",
    "anyio",
    "asyncio",
    "concurrent",
    "cramjam",
    "crc32c",
    "email",
    "hypothesis",
    "importlib.metadata",
    "kio",
    "lz4",
    "multiprocessing",
    "pyarrow",
    "pydantic",
    "rich",
    "sniffio",
    "ssl",
    "subprocess",
    "trio",
    "typer",
    "uvloop",
}


def modules_loaded_by(program: str) -> set[str]:
    """Modules that the program adds to those of a bare interpreter (with what site-packages' hooks load)."""
    tell = "print(json.dumps([*set(sys.modules) - before]))"
    wrapped = f"import json, sys; before = set(sys.modules); {program}; {tell}"
    done = subprocess.run([sys.executable, "-c", wrapped], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert isinstance(loaded, list)
    return set(loaded)


def families(modules: set[str]) -> set[str]:
    """The modules with the packages they lie in: `kio.schema.index` gives `kio`, `kio.schema` and itself."""
    return {
        ".".join(parts[:depth])
        for parts in (module.split(".") for module in modules)
        for depth in range(1, len(parts) + 1)
    }


def test_the_package_alone_loads_next_to_nothing() -> None:
    loaded = modules_loaded_by("import aioproduce")

    assert {name for name in loaded if name.startswith("aioproduce")} == {"aioproduce", "aioproduce.version"}
    assert {name.partition(".")[0] for name in loaded} <= {
        "aioproduce",
        "__future__",
        "collections",
        "contextlib",
        "copyreg",
        "functools",
        "importlib",
        "keyword",
        "operator",
        "re",
        "reprlib",
        "types",
        "typing",
        "warnings",
        # The C halves of those.
        *(name for name in loaded if name.startswith("_")),
    }


@pytest.mark.parametrize(
    "program",
    [
        "from aioproduce import Producer",
        "import aioproduce; aioproduce.Producer('localhost:9092')",
        "import aioproduce; aioproduce.Producer('localhost:9092', compression_type='zstd')",
        "import aioproduce; [getattr(aioproduce, name) for name in ('ProducerConfig', 'DeliveryFuture', 'errors')]",
    ],
)
def test_what_is_heavy_or_optional_is_loaded_when_it_is_needed(program: str) -> None:
    assert families(modules_loaded_by(program)) & NOT_BEFORE_START == set()


def modules_loaded_by_start(**settings: str) -> set[str]:
    """Modules that are there once a producer was started, before it sent anything."""
    return modules_loaded_by(
        f"import asyncio, aioproduce; producer = aioproduce.Producer('localhost:9', **{settings!r});"
        "asyncio.run((lambda: producer.start())())"
    )


def test_the_start_pays_for_the_schemas_and_not_the_first_request() -> None:
    loaded = modules_loaded_by_start()

    for name in ("produce", "metadata", "api_versions", "init_producer_id"):
        assert any(module.startswith(f"kio.schema.{name}.v") for module in loaded), name
    assert families(loaded) & {"uvloop", "typer", "rich", "aioproduce.cli", "aioproduce.testing"} == set()


@pytest.mark.parametrize(
    ("compression", "libraries"),
    [
        ("none", {"crc32c"}),
        ("gzip", {"crc32c", "cramjam"}),
        ("snappy", {"crc32c", "cramjam"}),
        ("lz4", {"crc32c", "lz4", "lz4.frame"}),
        ("zstd", {"crc32c", "cramjam"}),
    ],
)
def test_the_start_pays_for_what_a_batch_needs_and_not_the_first_batch(
    compression: str, libraries: set[str]
) -> None:
    loaded = modules_loaded_by_start(compression_type=compression)

    assert loaded & {"crc32c", "cramjam", "lz4", "lz4.frame"} == libraries
