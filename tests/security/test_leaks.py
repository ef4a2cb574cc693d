"""The judge of secrets itself: it finds one wherever it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from aioproduce.errors import TokenError
from tests.security.leaks import check_error, check_log

SECRET = "s3cret/with+letters"
KEY = "sasl.oauthbearer.token.provider"


def leaking(message: str = "", cause: Exception | None = None, attribute: str = "") -> TokenError:
    error = TokenError(f"trouble {message} ({KEY})", setting=KEY)
    error.__cause__ = cause
    error.__dict__.update({"more": attribute} if attribute else {})
    return error


@pytest.mark.parametrize(
    "make",
    [
        lambda: leaking(SECRET),
        lambda: leaking("s3cret%2Fwith%2Bletters"),
        lambda: leaking("czNjcmV0L3dpdGgrbGV0dGVycw"),
        lambda: leaking(cause=ValueError(SECRET)),
        lambda: leaking(attribute=SECRET),
    ],
)
def test_a_secret_in_an_error_is_found(make: Callable[[], TokenError]) -> None:
    with pytest.raises(AssertionError):
        check_error(make(), [SECRET])


def test_a_secret_in_a_frame_is_found() -> None:
    # A frame that is not of the tests, as the judge has it.
    program = f"def fetch():\n    held = {SECRET!r}\n    raise error('trouble ({KEY})', setting={KEY!r})\n"
    names: dict[str, Any] = {"error": TokenError}
    exec(compile(program, "/elsewhere.py", "exec"), names)
    with pytest.raises(TokenError) as raised:
        names["fetch"]()
    with pytest.raises(AssertionError, match="a secret is shown"):
        check_error(raised.value, [SECRET])


def test_a_secret_in_the_log_is_found(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpcore2").debug("sent %s", SECRET)
    with pytest.raises(AssertionError):
        check_log(caplog, [SECRET])
