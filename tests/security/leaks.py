"""Looks for secrets wherever an error, or the log, could show them."""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from aioproduce.errors import TokenError

_TESTS = Path(__file__).parents[1]


def told(error: BaseException) -> str:
    """All that is printed of an error by anyone: with its causes, its attributes, and each frame's locals.

    The test's own frames, which come first, are left out: they know the secrets.
    """
    trace = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).is_relative_to(_TESTS):
        trace = trace.tb_next
    whole = traceback.TracebackException(type(error), error, trace, capture_locals=True)
    texts = ["".join(whole.format(chain=True)), str(error), repr(error), repr(error.args), repr(vars(error))]
    while trace is not None:
        # Not only the repr, which may hide what the attributes have.
        texts += [repr(getattr(value, "__dict__", None)) for value in trace.tb_frame.f_locals.values()]
        trace = trace.tb_next
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
        assert len(secret) > 3, "too short to be looked for"
        forms = (secret, quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1])
        for form in (*forms, base64.b64encode(secret.encode()).decode().rstrip("=")):
            at = text.find(form)
            assert at < 0, f"a secret is shown: {text[max(0, at - 300) : at + 100]}"
