"""Looks for secrets wherever an error, the log, or an object could show them.

`check_error` and `check_log` are for one error of a source of tokens; `Shown` takes all that a whole run shows.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import html
import json
import logging
import pickle
import traceback
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from aioproduce.config.secret import Secret
from aioproduce.errors import TokenError

_TESTS = Path(__file__).parents[1]
_URLSAFE = str.maketrans("+/", "-_")


def told(error: BaseException) -> str:
    """All that is printed of an error by anyone: with its causes, its attributes, and each frame's locals.

    The test's own frames are left out: they know the secrets.
    """
    texts = []
    link: BaseException | None = error
    while link is not None:
        whole = traceback.TracebackException(type(link), link, link.__traceback__, capture_locals=True)
        whole.stack[:] = [frame for frame in whole.stack if not Path(frame.filename).is_relative_to(_TESTS)]
        texts += [*whole.format(chain=False), str(link), repr(link), repr(link.args), repr(vars(link))]
        for frame, _ in traceback.walk_tb(link.__traceback__):
            if not Path(frame.f_code.co_filename).is_relative_to(_TESTS):
                # Not only the repr, which may hide what the attributes have.
                texts += [repr(getattr(value, "__dict__", None)) for value in frame.f_locals.values()]
        # Those that are suppressed too.
        link = link.__cause__ or link.__context__
    return "\n".join(texts)


def check_error(error: TokenError, secrets: Iterable[str], setting: str | None = None) -> str:
    """Check what every error of a source keeps to; give its message.

    Args:
        error: The error.
        secrets: What must not be in it, in no form.
        setting: Which setting it names.
    """
    assert error.__cause__ is None
    assert error.__context__ is None
    assert error.setting is not None
    assert error.setting in str(error)
    assert setting is None or error.setting == setting
    assert len(str(error)) < 1500
    assert str(error).isprintable(), str(error)
    _check_absent(told(error), secrets)
    return str(error)


def check_log(caplog: pytest.LogCaptureFixture, secrets: Iterable[str]) -> None:
    """Check that the log of a test has none of them."""
    assert caplog.handler.level <= logging.DEBUG
    _check_absent(caplog.text + "\n".join(repr(record.__dict__) for record in caplog.records), secrets)


def _check_absent(text: str, secrets: Iterable[str]) -> None:
    for secret in secrets:
        for form in forms_of(secret):
            at = text.find(form)
            assert at < 0, f"a secret is shown: {text[max(0, at - 300) : at + 100]}"


def forms_of(secret: str) -> frozenset[str]:
    """A secret as it is, and as it may stand in a text all the same; of a long one its halves too.

    Bytes are looked for as their repr has them, and as `latin-1` reads them.
    """
    assert len(secret) > 3, "too short to be looked for"
    middle = len(secret) // 2
    parts = [secret] if len(secret) < 16 else [secret, secret[:middle], secret[middle:]]
    return frozenset(form for part in parts for form in _forms_of_one(part))


def _forms_of_one(secret: str) -> Iterator[str]:
    data = secret.encode()
    yield from (secret, repr(secret)[1:-1], quote(secret, safe=""), quote_plus(secret))
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], html.escape(secret))
    yield from (data.hex(), data.hex().upper(), data.hex(" "))
    for encoded in (data, secret.encode("utf-16-le"), secret.encode("utf-16-be")):
        yield from (encoded.decode("latin-1"), repr(encoded)[2:-1])
        for before in range(3):  # what stands before it in the same base64 moves it by so many bytes
            # The first and the last letters have bits of the neighbours.
            text = base64.b64encode(bytes(before) + encoded)[[0, 2, 3][before] :]
            inner = text.rstrip(b"=")[: -1 if (before + len(encoded)) % 3 else None].decode()
            yield from (inner, inner.translate(_URLSAFE))


@dataclass
class Shown:
    """All that was shown, by where; and whether a secret is in it."""

    texts: dict[str, set[str]] = field(default_factory=dict)

    def add(self, where: str, *things: object) -> None:
        """Take a text or bytes as they are, and anything else in each way in which it is printed."""
        texts = self.texts.setdefault(where, set())
        for thing in things:
            if isinstance(thing, str):
                texts.add(thing)
            elif isinstance(thing, bytes):
                texts.add(thing.decode("latin-1"))
            else:
                texts.update((repr(thing), str(thing), f"{thing}"))

    def add_error(self, where: str, error: BaseException) -> None:
        """Take an error with all that is printed of it, as a logger and a traceback with locals have it."""
        self.add(where, told(error), "".join(traceback.format_exception(error)))

    def add_object(self, where: str, thing: object) -> None:
        """Take an object: printed, copied, pickled as far as that goes, and each text that it holds within."""
        self.add(where, thing, *held(thing))
        for function in (pickle.dumps, copy.copy, copy.deepcopy, vars):
            try:
                self.add(where, function(thing))
            except Exception as error:  # it refuses, which shows nothing either
                self.add_error(where, error)

    def leaks(self, secrets: Mapping[str, str]) -> dict[str, set[str]]:
        """Where a secret is seen -> which, by name."""
        found: dict[str, set[str]] = {}
        for name, secret in secrets.items():
            forms = forms_of(secret)
            for where, texts in self.texts.items():
                if any(form in text for text in texts for form in forms):
                    found.setdefault(where, set()).add(name)
        return found


@contextlib.contextmanager
def listening(shown: Shown) -> Iterator[None]:
    """Take every line of every logger, at every level, and every warning."""
    root = logging.getLogger()
    handler = _Listener(shown)
    level = root.level
    shown.add("log")
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
            shown.add("warnings", *(repr(vars(warning)) for warning in warned))


class _Listener(logging.Handler):
    def __init__(self, shown: Shown) -> None:
        super().__init__(logging.DEBUG)
        self._shown = shown

    def emit(self, record: logging.LogRecord) -> None:
        self._shown.add("log", record.getMessage(), repr(vars(record)))
        if record.exc_info and record.exc_info[1] is not None:
            self._shown.add_error("log", record.exc_info[1])


def held(thing: object) -> Iterator[str]:
    """Each text and the repr of all bytes that an object of ours holds, but for what a `Secret` hides."""
    seen: set[int] = set()
    waiting: list[object] = [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (Secret, type, ModuleType)):
            continue
        seen.add(id(one))
        if isinstance(one, str):
            yield one
        elif isinstance(one, (bytes, bytearray)):
            yield repr(bytes(one[:100_000]))
        elif isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset, deque)):
            waiting += one
        elif isinstance(one, partial):
            waiting += [one.func, one.args, one.keywords]
        elif isinstance(one, MethodType):
            waiting += [one.__self__, one.__func__]
        elif isinstance(one, FunctionType) and _is_ours(one):
            waiting += [cell.cell_contents for cell in one.__closure__ or () if cell != CellType()]
        elif _is_ours(type(one)):
            waiting += [getattr(one, name, None) for name in _attributes(one)]


def _is_ours(named: Any) -> bool:
    module: str = named.__module__ or ""
    return module.startswith("aioproduce") and not module.startswith("aioproduce.testing")


def _attributes(thing: object) -> Iterator[str]:
    yield from getattr(thing, "__dict__", ())
    for kind in type(thing).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            is_private = name.startswith("__") and not name.endswith("__")
            yield f"_{kind.__name__.lstrip('_')}{name}" if is_private else name
