"""The client's side of GSSAPI, with a broker that says anything, and a Kerberos library that answers anything.

1. Any message gives an answer or an AuthenticationError, which names a setting or none.
2. It ends well only after mutual authentication, an offer of no security layer, and the choice of it.

The library's context has a stand-in, for there is no ticket without a KDC: `tests/security/test_gssapi.py` has one.
The input, in turn: what the library does, in a byte, and what it makes of it; how long the broker's message is, and
the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

import pytest

from aioproduce.errors import AuthenticationError
from aioproduce.security.mechanism import Work
from tests.fuzz.target import Source, Target

gssapi = pytest.importorskip("gssapi", reason="the library gssapi has no wheel here: pip install gssapi")

from gssapi.raw.misc import GSSError  # noqa: E402

from aioproduce.security.gssapi import Gssapi  # noqa: E402

CODES = (0, 2529638919, 2529638949, 2529639066, 2529639068, 1, 2529639107)
MAJORS = (851968, 458752, 131072, 720896, 589824)


class Context:
    """Stands in for gssapi.SecurityContext."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.complete = False
        self.is_mutual = False
        self.offered = b""
        self.chosen = b""

    @property
    def actual_flags(self) -> int:
        return int(gssapi.RequirementFlag.mutual_authentication) if self.is_mutual else 0

    def answer(self) -> bytes:
        does = self.source.byte()
        if does & 0x80:
            raise GSSError(MAJORS[does % len(MAJORS)], CODES[self.source.below(len(CODES))])
        self.complete = bool(does & 1)
        self.is_mutual = bool(does & 2)
        return self.source.take(does >> 2 & 7)

    def step(self, token: bytes | None = None) -> bytes | None:
        return self.answer() or None

    def unwrap(self, token: bytes) -> SimpleNamespace:
        self.offered = self.answer()
        return SimpleNamespace(message=self.offered)

    def wrap(self, choice: bytes, encrypt: bool) -> SimpleNamespace:
        assert not encrypt
        self.chosen = choice
        return SimpleNamespace(message=self.answer())


def run(data: bytes) -> None:
    source = Source(data)
    context = Context(source)
    client = Gssapi("broker", "kafka")
    was_mutual = False
    with (
        mock.patch.object(gssapi, "SecurityContext", return_value=context),
        mock.patch.object(gssapi, "Credentials", return_value=None),
    ):
        answer: object = client.start()
        try:
            while True:
                if isinstance(answer, Work):
                    answer = answer.run()
                was_mutual |= context.complete and context.is_mutual
                if answer is None:
                    assert was_mutual
                    assert len(context.offered) == 4
                    assert context.offered[0] & 1
                    assert context.chosen == b"\1\0\0\0"
                    return
                assert isinstance(answer, bytes)
                if not source:
                    return
                size = source.byte()
                answer = client.step(bytes(200_000) if size == 255 else source.take(size & 7))
        except AuthenticationError as error:
            check(error)


def check(error: AuthenticationError) -> None:
    assert error.mechanism == "GSSAPI"
    assert error.setting is None or error.setting in str(error)
    assert len(str(error)) < 700


def seeds() -> Iterator[bytes]:
    # A token; complete and mutual; the offer of four bytes; the choice; the end.
    yield bytes([4, 65, 1, 66, 3, 1, 67, 19, 1, 0, 0, 0, 3, 0])
    yield bytes([4, 65, 1, 66, 3, 1, 67, 19, 6, 0, 0, 0])
    yield bytes([4, 65, 1, 66, 1])
    for major in range(5):
        yield bytes([0x80 + major, major])
    yield bytes([4, 65, 255])


TARGETS = {"sasl_gssapi": Target(run, seeds, max_size=128)}
