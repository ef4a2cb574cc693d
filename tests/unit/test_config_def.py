"""A table of keys and the reader of mappings: what every table gets by being one, on a table made for the test."""

from __future__ import annotations

import logging
import traceback

import pytest

from aioproduce.config import Key
from aioproduce.config.config_def import REQUIRED, ConfigDef, Conflict
from aioproduce.config.kinds import IGNORED, TEXT, Choice, Int, Unused
from aioproduce.errors import ConfigError

TABLE = ConfigDef(
    (
        Key("level", Int(0, 9), 3, aliases=("depth", "level.*")),
        Key("colour", Choice(("red", "green")), "red", becomes="paint"),
        Key("pin", Int(0, 9999), 0, has_secret=True),
        Key("place", TEXT, REQUIRED),
        Key("sound", Unused("STRING", "off"), "off", "there is no sound; leave it out", becomes="colour"),
        Key("smell", Unused("STRING"), None, "nobody smells anything."),
        Key("taste", IGNORED, None),
        Key("speed", IGNORED, None, "is a car's"),
    ),
    (
        Conflict(
            "level",
            lambda v, given: v["colour"] == "green" and "level" in given,
            "colour={v[colour]!r} has no level={v[level]}",
        ),
    ),
    unknown="no key {!r}",
    otherwise="look at the table",
)


def refused(**settings: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        TABLE.parse(settings)
    return caught.value


def test_values_are_parsed_and_defaults_added() -> None:
    values, given = TABLE.parse({"depth": " 7 ", "place": "here"})

    assert values == {"level": 7, "colour": "red", "pin": 0, "place": "here"}
    assert given == {"level", "place"}
    assert TABLE.parse({})[0]["place"] is None


def test_a_wrong_value_is_named_as_the_user_named_the_key() -> None:
    error = refused(depth=10)

    assert str(error) == "depth=10 is out of range: it accepts 0 to 9."
    assert error.key == "depth"


def test_names_that_begin_alike_are_one_key() -> None:
    assert TABLE.parse({"level.of.water": 2})[0]["level"] == 2


def test_an_unknown_name_is_told_before_a_wrong_value() -> None:
    error = refused(level=10, colur="red")

    assert str(error) == "no key 'colur': did you mean 'colour'?"
    assert (error.key, error.suggestion) == ("colur", "colour")
    assert str(refused(zzz=1)) == "no key 'zzz': look at the table"


def test_a_refused_key_says_why_and_what_to_set_instead() -> None:
    error = refused(sound=["on"])

    assert str(error) == "sound is refused: there is no sound; leave it out. It accepts only off."
    assert (error.key, error.suggestion) == ("sound", "colour")
    assert "sound" not in TABLE.parse({"taste": 1})[0]
    assert str(refused(smell="")) == "smell is refused: nobody smells anything."


def test_what_is_ignored_is_told_where_the_table_has_a_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aioproduce"):
        values, given = TABLE.parse({"taste": "sweet", "speed": 9})

    assert (values, given) == ({**TABLE.defaults}, frozenset())
    assert [record.getMessage() for record in caplog.records] == ["speed is a car's"]


def test_a_conflict_is_told_with_the_values() -> None:
    assert TABLE.parse({"colour": "green"})[0]["colour"] == "green"
    error = refused(colour="green", level="4")

    assert str(error) == "colour='green' has no level=4"
    assert error.key == "level"


def test_a_key_can_be_declared_secret() -> None:
    error = refused(pin="12345-hush")

    assert str(error) == "pin=<hidden> is not a whole number: it accepts 0 to 9999."
    assert "hush" not in "".join(traceback.format_exception(error))
    assert TABLE["pin"].shown(1234) == "pin=<hidden>"
    # By its own name, too, whatever it is called where it is held.
    assert Key("ssl.key.password", TEXT, None).shown("hush", "phrase") == "phrase=<hidden>"


def test_a_name_stands_once() -> None:
    with pytest.raises(AssertionError, match="depth is twice in the table"):
        ConfigDef([TABLE["level"], Key("depth", TEXT, "")], unknown="{}", otherwise="")
