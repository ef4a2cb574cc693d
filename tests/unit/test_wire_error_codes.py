"""Error codes against Kafka's own table (listed by its jar, see tests/vectors/ListErrors.java) and kio's."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from aioproduce.wire import error_codes

JAVA = {
    int(code): (name, retriable == "true", stale == "true")
    for code, name, retriable, stale in (
        line.split("\t")
        for line in (Path(__file__).parents[1] / "vectors" / "kafka-errors.tsv").read_text().splitlines()
    )
}


def test_the_java_table_is_whole() -> None:
    assert sorted(JAVA) == list(range(-1, 134))


@pytest.mark.parametrize("code", sorted(JAVA))
def test_name_and_retriability_are_javas(code: int) -> None:
    name, retriable, stale = JAVA[code]
    assert error_codes.name_of(code) == name
    assert error_codes.is_retriable(code) is retriable
    assert (code in error_codes.INVALID_METADATA) is stale


@pytest.mark.parametrize("code", list(ErrorCode))
def test_name_and_retriability_are_kios(code: ErrorCode) -> None:
    assert error_codes.name_of(int(code)) == code.name.upper()
    assert error_codes.is_retriable(int(code)) is code.retriable


def test_constants_have_their_own_code() -> None:
    constants = {name: value for name, value in vars(error_codes).items() if isinstance(value, int)}
    assert len(constants) > 40
    assert {name: JAVA[value][0] for name, value in constants.items()} == {name: name for name in constants}


def test_stale_metadata_is_always_retriable() -> None:
    assert error_codes.INVALID_METADATA < error_codes.RETRIABLE


@pytest.mark.parametrize("code", [134, 999, -2, 32767, -32768])
def test_unknown_code_keeps_its_number_and_is_final(code: int) -> None:
    assert error_codes.name_of(code) == f"UNKNOWN_CODE_{code}"
    assert not error_codes.is_retriable(code)
    assert str(code) in error_codes.message_of(code)


@pytest.mark.parametrize("code", sorted(JAVA))
def test_every_code_has_a_message_of_one_line(code: int) -> None:
    message = error_codes.message_of(code)
    assert message
    assert "\n" not in message
    assert not message.endswith(".")
