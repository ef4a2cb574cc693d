"""The settings as types are those of the table: the names, the types, and what an editor shows of each."""

from __future__ import annotations

import ast
import inspect
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import aioproduce
from aioproduce.config import KEYS, Secret, settings
from aioproduce.config.config_def import Key
from aioproduce.config.settings import PlainSettings, ProducerKeywords, ProducerSettings
from aioproduce.config.settings_source import key_help, settings_source

TAKEN = [key for key in KEYS.values() if not key.is_refused]
HINTS = get_type_hints(ProducerKeywords)


def parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def documented() -> dict[str, str]:
    """The keys that the module has, with the text below each."""
    found = {}
    for node in ast.parse(Path(settings.__file__).read_text()).body:
        if isinstance(node, ast.ClassDef):
            for field, text in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign):
                    assert isinstance(field.target, ast.Name)
                    assert isinstance(text, ast.Expr)
                    assert isinstance(text.value, ast.Constant)
                    found[field.target.id] = inspect.cleandoc(str(text.value.value))
    return found


def test_the_module_is_what_the_table_prints() -> None:
    assert Path(settings.__file__).read_text() == settings_source(), (
        "run `python -m aioproduce.config types > aioproduce/config/settings.py`"
    )


def test_the_names_are_those_of_the_table() -> None:
    assert set(HINTS) == {key.keyword for key in TAKEN}
    assert set(HINTS) - set(get_type_hints(ProducerSettings)) == {"bootstrap_servers"}
    assert set(get_type_hints(ProducerSettings)) - set(get_type_hints(PlainSettings)) == {
        "key_serializer",
        "value_serializer",
    }
    assert ProducerKeywords.__required_keys__ == frozenset()


def test_it_is_public() -> None:
    assert aioproduce.ProducerSettings is ProducerSettings


@pytest.mark.parametrize("key", TAKEN, ids=[key.name for key in TAKEN])
def test_an_editor_shows_what_a_key_does(key: Key) -> None:
    text = documented()[key.keyword]
    assert text == key_help(key)
    assert " ".join(text.split()).lower().startswith(key.text[:20].lower())
    assert "Accepts " in text
    assert "Default:" in text


@pytest.mark.parametrize("key", TAKEN, ids=[key.name for key in TAKEN])
def test_what_the_type_allows_is_accepted(key: Key) -> None:
    for part in parts(HINTS[key.keyword]):
        if get_origin(part) is Literal:
            for word in get_args(part):
                key.parse(word)
        elif part is types.NoneType:
            key.parse(None)
        elif part is bool:
            assert (key.parse(True), key.parse(False)) == (True, False)
        elif part is Secret:
            assert key.parse(Secret("hidden")).reveal() == "hidden"
        elif part in (int, float):
            assert type(key.parse(key.default if isinstance(key.default, int | float) else 1)) is part


@pytest.mark.parametrize("key", TAKEN, ids=[key.name for key in TAKEN])
def test_what_the_type_forbids_would_be_refused(key: Key) -> None:
    """A number that is no number, a word that is none of the words: what a checker objects to is an error, too."""
    kinds = parts(HINTS[key.keyword])
    if str not in kinds:
        with pytest.raises(aioproduce.errors.ConfigError):
            key.parse("no such word")
    if int not in kinds and float not in kinds and get_origin(kinds[0]) is not Literal:
        with pytest.raises(aioproduce.errors.ConfigError):
            key.parse(7.5)
