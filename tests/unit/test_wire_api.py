"""Version negotiation: the highest common version, and errors that name both sides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aioproduce import wire
from aioproduce.errors import ProtocolError, UnsupportedVersionError
from aioproduce.wire.api import CLIENT_VERSIONS, ApiKey, ApiVersions
from aioproduce.wire.messages import ApiVersionsResponse
from aioproduce.wire.schema import known_versions, request_class, response_class

# What brokers of these releases answer to ApiVersions (KIP-896 lists the oldest of 4.x).
KAFKA_0_10 = {0: (0, 2), 1: (0, 2), 3: (0, 2), 18: (0, 0)}
KAFKA_0_11 = {0: (0, 3), 1: (0, 5), 3: (0, 4), 18: (0, 1), 22: (0, 0)}
KAFKA_4 = {0: (3, 13), 3: (0, 13), 18: (0, 4), 22: (0, 5)}


@pytest.mark.parametrize(
    ("broker", "produce", "metadata", "init_producer_id"), [(KAFKA_0_11, 3, 4, 0), (KAFKA_4, 13, 13, 5)]
)
def test_highest_common_version(
    broker: dict[int, tuple[int, int]], produce: int, metadata: int, init_producer_id: int
) -> None:
    versions = ApiVersions(broker)
    assert versions.version(ApiKey.PRODUCE) == produce
    assert versions.version(ApiKey.METADATA) == metadata
    assert versions.version(ApiKey.INIT_PRODUCER_ID) == init_producer_id


def test_a_newer_broker_is_spoken_to_in_our_newest_version() -> None:
    assert ApiVersions({0: (5, 99)}).version(ApiKey.PRODUCE) == 13


def test_a_broker_before_record_batch_v2_is_named_with_its_versions() -> None:
    versions = ApiVersions(KAFKA_0_10)
    assert not versions.supports(ApiKey.PRODUCE)
    assert versions.supports(ApiKey.METADATA)
    with pytest.raises(UnsupportedVersionError) as caught:
        versions.version(ApiKey.PRODUCE)
    error = caught.value
    assert (error.api, error.broker_versions, error.client_versions) == ("Produce", (0, 2), (3, 13))
    for part in (
        "too old for record batch v2",
        "0.11",
        "v0 to v2",
        "v3 to v13",
        "Metadata v0 to v2",
        "upgrade",
    ):
        assert part in str(error)


def test_an_api_that_the_broker_lacks() -> None:
    with pytest.raises(UnsupportedVersionError, match="does not offer InitProducerId") as caught:
        ApiVersions(KAFKA_0_10).version(ApiKey.INIT_PRODUCER_ID)
    assert caught.value.broker_versions is None


def test_a_broker_that_is_too_new() -> None:
    with pytest.raises(UnsupportedVersionError, match="use a newer aioproduce"):
        ApiVersions({0: (14, 20)}).version(ApiKey.PRODUCE)


@pytest.mark.parametrize("hostile", [{0: (5, 3)}, {0: (-5, -1)}, {0: (32767, -32768)}])
def test_ranges_that_make_no_sense_are_no_version(hostile: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(UnsupportedVersionError):
        ApiVersions(hostile).version(ApiKey.PRODUCE)


def test_from_response() -> None:
    response = ApiVersionsResponse(error_code=0, versions=KAFKA_4)
    assert ApiVersions.from_response(response).version(ApiKey.PRODUCE) == 13
    with pytest.raises(ProtocolError, match="UNSUPPORTED_VERSION"):
        ApiVersions.from_response(ApiVersionsResponse(error_code=35, versions=KAFKA_4))
    with pytest.raises(ProtocolError, match="UNKNOWN_CODE_999"):
        ApiVersions.from_response(ApiVersionsResponse(error_code=999, versions={}))


def test_every_version_that_we_claim_has_a_schema() -> None:
    for api, (lowest, highest) in CLIENT_VERSIONS.items():
        for version in range(lowest, highest + 1):
            for cls in (request_class(api, version), response_class(api, version)):
                assert (cls.__api_key__, cls.__version__) == (api, version)


def test_api_names_are_kafkas() -> None:
    from kio.schema.index import api_key_map

    assert {int(api): api.name.lower() for api in ApiKey} == {int(api): api_key_map[api] for api in ApiKey}
    assert ApiKey.INIT_PRODUCER_ID.display_name == "InitProducerId"


def test_unknown_schemas() -> None:
    assert known_versions(9999) is None
    with pytest.raises(ProtocolError, match="9999"):
        request_class(9999, 0)
    with pytest.raises(UnsupportedVersionError, match="v3 to v13"):
        response_class(0, 2)


def test_importing_the_wire_does_not_import_kio() -> None:
    modules = [path.stem for path in Path(wire.__path__[0]).glob("[a-z]*.py")]
    assert {"reader", "requests", "responses", "schema"} <= set(modules)
    program = (
        f"import sys, json; [__import__('aioproduce.wire.' + m) for m in {modules}]; "
        "print(json.dumps([m for m in sys.modules if m.split('.')[0] in ('kio', 'hypothesis')]))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == []


def test_preload_leaves_nothing_to_import() -> None:
    program = (
        "import sys; from aioproduce.wire.preload import preload;"
        "from aioproduce.wire.requests import encode_metadata;"
        "from aioproduce.wire.responses import _decoder;"
        "preload(); before = set(sys.modules);"
        "encode_metadata(13, 1, 'c', ['t'], allow_auto_topic_creation=True);"
        "[_decoder(k, v) for k, v in ((0, 13), (3, 13), (18, 4), (22, 5))];"
        "assert set(sys.modules) == before, set(sys.modules) - before"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
