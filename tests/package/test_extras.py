"""Each extra of pyproject.toml: what it brings is named by an error where it is missing, and by nobody else.

1. A library is missing here by an entry of `sys.modules` that says so: the import fails as it would, by that name.
2. Every extra has a row; one that is added without is a failure.
3. What belongs to no extra, or to another one, works without it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PYPROJECT["project"]["optional-dependencies"]

PACKAGE = Path(__file__).parents[2] / "aioproduce"

# What is for people who develop, and is a list of what others have.
COLLECTIONS = {"bench", "dev", "docs"}
# Nothing of ours asks for them: they are the loop that the caller runs.
NEVER_ASKED_FOR = {"uvloop", "trio"}

# Extra, the library that is missing, and a program that wants it.
ASKED_BY_IMPORT = [
    ("prometheus", "prometheus_client", "import aioproduce.reporters.prometheus"),
    ("prometheus", "prometheus_client", "import aioproduce.integrations.service_metrics"),
    ("opentelemetry", "opentelemetry", "import aioproduce.reporters.opentelemetry"),
    ("aiokafka", "aiokafka", "import aioproduce.compat.aiokafka"),
    ("confluent", "confluent_kafka", "import aioproduce.compat.confluent"),
    ("tls", "cryptography", "from aioproduce.testing import FakeCluster; FakeCluster(security='SSL')"),
    ("fastapi", "fastapi", "import aioproduce.integrations.fastapi"),
    ("aiohttp", "aiohttp", "import aioproduce.integrations.aiohttp"),
    ("fastapi", "starlette", "import aioproduce.integrations.starlette"),
    ("faststream", "faststream", "import aioproduce.integrations.faststream"),
    ("avro", "fastavro", "from aioproduce.serializers import AvroSerializer"),
    ("protobuf", "google.protobuf", "from aioproduce.serializers import ProtobufSerializer"),
    ("protobuf", "google", "from aioproduce.serializers import ProtobufSerializer"),
    ("registry", "httpx2", "from aioproduce.serializers import SchemaRegistryClient"),
    ("oauth", "httpx2", "import aioproduce.security.tokens.endpoint"),
    (
        "oauth",
        "joserfc",
        "from aioproduce.security.tokens.assertion import SignedAssertion; SignedAssertion(private_key_file='a')",
    ),
    (
        "msk-iam",
        "aws_msk_iam_sasl_signer",
        "from aioproduce.security.tokens.msk import MskSource; MskSource('eu-west-1')",
    ),
    (
        "arrow",
        "pyarrow",
        "from aioproduce.producer.arrow import arrow_pieces; arrow_pieces(None, {}, has_topic=True)",
    ),
    (
        "dashboard",
        "uvicorn",
        "import asyncio, aioproduce.dashboard; from aioproduce import Producer;"
        " asyncio.run(aioproduce.dashboard.serve(Producer('localhost:1'), port=0).__aenter__())",
    ),
    (
        "tls",
        "cryptography",
        "import tempfile; from aioproduce.security.key_files import TrustStore;"
        " f = tempfile.NamedTemporaryFile(); f.write(b'\\x30\\x03\\x02\\x01\\x03'); f.flush();"
        " TrustStore(location=f.name).read()",
    ),
    ("gssapi", "gssapi", "import aioproduce.security.gssapi"),
    ("spark", "pyspark", "from aioproduce.spark import register"),
    ("spark", "pyarrow", "from aioproduce.spark import register"),
    ("spark", "pandas", "from aioproduce.spark import register"),
    ("spark", "pyspark", "import pyspark_aioproduce"),
]
# Extra, library, and a program that says it on stderr or stdout and not by an exception of ours.
TOLD = [
    ("cli", "typer", "import aioproduce.cli; aioproduce.cli.main(['--help'])"),
    ("cli", "rich", "import aioproduce.cli; aioproduce.cli.main(['--help'])"),
    (
        "plot",
        "matplotlib",
        "import aioproduce.cli; aioproduce.cli.main(['perf', '--topic', 't', '--num-records', '1', "
        "'--record-size', '1', '--throughput', '-1', '-b', 'localhost:1', '--plot', 'a.svg'])",
    ),
    (
        "telemetry",
        "opentelemetry.proto",
        "from aioproduce.producer.telemetry_payload import TelemetryPayload;"
        " print(TelemetryPayload(None, 0, {}).unavailable())",
    ),
]
# What needs no extra, or another one than what is missing.
INDEPENDENT = [
    ("google", "from aioproduce.serializers import AvroSerializer, SchemaRegistryClient"),
    ("fastavro", "from aioproduce.serializers import ProtobufSerializer, JsonSchemaSerializer"),
    ("httpx2", "from aioproduce.serializers import SerializingProducer, JsonSerializer, StringSerializer"),
    ("httpx2", "from aioproduce.serializers import Schema, Serializer, record_name, JsonSchemaSerializer"),
    ("httpx2", "from aioproduce.testing import FakeSchemaRegistry, FakeCluster"),
    ("httpx2", "from aioproduce.security.tokens import file, msk, provider, unsecured"),
    ("joserfc", "from aioproduce.security.tokens import endpoint, grants, assertion"),
    ("fastavro", "from aioproduce.testing import FakeSchemaRegistry, FakeCluster"),
    ("fastapi", "import aioproduce.integrations.aiohttp"),
    ("aiohttp", "import aioproduce.integrations.fastapi"),
    ("faststream", "import aioproduce.integrations.logging"),
    ("gssapi", "from aioproduce.security import jaas, oauthbearer, plain, scram"),
    *(
        (
            missing,
            "from aioproduce import ProducerConfig; from aioproduce.security.making import make_security;"
            " make_security(ProducerConfig.from_mapping({'bootstrap.servers': 'a:1',"
            " 'security.protocol': 'SASL_SSL', 'sasl.mechanism': 'SCRAM-SHA-512',"
            " 'sasl.username': 'a', 'sasl.password': 'b'}))",
        )
        for missing in ("gssapi", "cryptography", "httpx2", "joserfc", "aws_msk_iam_sasl_signer")
    ),
    ("aiokafka", "import aioproduce.compat.confluent"),
    ("confluent_kafka", "import aioproduce.compat.aiokafka"),
    ("trio", "import aioproduce, asyncio; from aioproduce import Producer; Producer('localhost:1')"),
    ("uvloop", "import aioproduce, asyncio; from aioproduce import Producer; Producer('localhost:1')"),
]


def ids(rows: list[tuple[str, str, str]]) -> list[str]:
    return [f"{extra}-{library}" for extra, library, _ in rows]


def run_without(library: str, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{library!r}] = None\n{program}"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("extra", "library", "program"), ASKED_BY_IMPORT, ids=ids(ASKED_BY_IMPORT))
def test_what_is_missing_raises_an_error_that_names_the_extra(extra: str, library: str, program: str) -> None:
    indented = program.replace("\n", "\n    ")
    done = run_without(
        library,
        f"""
from aioproduce.errors import MissingExtraError
try:
    {indented}
except MissingExtraError as error:
    assert isinstance(error, ImportError)
    print(error.extra, error.name, error)
""",
    )

    assert done.returncode == 0, done.stderr
    told_extra, told_library, message = done.stdout.split(" ", 2)
    assert told_extra == extra
    assert told_library.partition(".")[0] == library.partition(".")[0]
    assert message.strip().endswith(f"which is not installed: pip install 'aioproduce[{extra}]'")


@pytest.mark.parametrize(("extra", "library", "program"), TOLD, ids=ids(TOLD))
def test_what_is_missing_is_told_with_the_extra(extra: str, library: str, program: str) -> None:
    done = run_without(library, program)

    assert f"pip install 'aioproduce[{extra}]'" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("library", "program"), INDEPENDENT, ids=[f"{library}-{program[:60]}" for library, program in INDEPENDENT]
)
def test_what_does_not_need_it_works_without(library: str, program: str) -> None:
    done = run_without(library, program)

    assert (done.returncode, done.stderr) == (0, "")


def test_every_extra_has_a_row() -> None:
    rows = {extra for extra, _, _ in ASKED_BY_IMPORT + TOLD}

    assert rows | NEVER_ASKED_FOR | COLLECTIONS == set(EXTRAS)
    assert not rows & NEVER_ASKED_FOR


MADE = ("MissingExtraError", "MissingExtraError.unless_installed")


def test_every_error_of_the_package_has_a_row() -> None:
    """The tests above try the places that raise it for another library or another extra."""
    raised = set()
    for source in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(MADE):
                told = {each.arg: each.value for each in node.keywords}
                name = told["name"]
                library = str(name.value).partition(".")[0] if isinstance(name, ast.Constant) else "any"
                raised.add((ast.literal_eval(told["extra"]), library))

    tried = {(extra, library.partition(".")[0]) for extra, library, _ in ASKED_BY_IMPORT}
    tried |= {(extra, "any") for extra, _ in tried}
    assert raised - tried == {("trio", "trio>=0")}  # of a version that is too old
    assert len(raised) > 5


def test_an_extra_that_is_named_exists() -> None:
    """Whatever the package tells people to install."""
    named = {
        part.partition("]")[0]
        for source in PACKAGE.rglob("*.py")
        for part in source.read_text().split("aioproduce[")[1:]
    }
    assert named - {"extra", "{extra}"} <= set(EXTRAS)
    assert {"avro", "cli", "dashboard"} & named
