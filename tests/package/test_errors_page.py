"""The page on errors and the classes are held together, and a traceback names the section.

The site and a host of repositories give its sections the same anchors, because a heading is the name of a class and
nothing else.
"""

from __future__ import annotations

import builtins
import copy
import pickle
import re
import traceback
from pathlib import Path

import pytest

from aioproduce.config import KEYS
from aioproduce.errors import DOCUMENTATION, DeliveryError, NotStartedError, ProducerError
from tests.unit.error_samples import keywords_of, public_errors, sample_of

REPOSITORY = Path(__file__).parents[2]
PAGE = "reference/errors"
TEXT = (REPOSITORY / "docs" / f"{PAGE}.md").read_text()
LABELS = ("Raised by", "Try again", "In the log", "Cause and remedy")


def sections() -> dict[str, str]:
    """Each class that has a heading of its own, with the text below it."""
    parts = re.split(r"^#{2,} (.+)$", TEXT, flags=re.MULTILINE)
    return {
        title: text for title, text in zip(parts[1::2], parts[2::2], strict=True) if title.endswith("Error")
    }


SECTIONS = sections()


@pytest.fixture(params=public_errors(), ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[ProducerError]:
    found: type[ProducerError] = request.param
    return found


def public_base(kind: type) -> type:
    return public_base(kind.__bases__[0]) if kind.__name__.startswith("_") else kind


def test_each_class_has_a_section_and_each_section_a_class() -> None:
    assert sorted(SECTIONS) == sorted(kind.__name__ for kind in public_errors())
    assert len(re.findall(r"^#{2,} \w+Error$", TEXT, re.MULTILINE)) == len(SECTIONS)  # no anchor twice


def test_a_section_says_what_else_an_error_is(kind: type[ProducerError]) -> None:
    """By parents of ours, which are links, and by classes of Python's or of another library."""
    first = SECTIONS[kind.__name__].strip().split("\n\n")[0].split(". ")[0]
    named = set(re.findall(r"\[(\w+)\]\(#\w+\)", first)) | set(re.findall(r"`(\w+)`", first))
    parents = {public_base(base).__name__ for base in kind.__bases__}
    assert named == ({"Exception"} if kind is ProducerError else parents)


def test_a_section_lists_the_attributes(kind: type[ProducerError]) -> None:
    """Those that the docstring names; a private parent has no section."""
    documented = {
        name
        for each in (kind, *(base for base in kind.__bases__ if base.__name__.startswith("_")))
        for name in re.findall(
            r"^ {8}(\w+): ", (each.__doc__ or "").partition("Attributes:\n")[2], re.MULTILINE
        )
    }
    listed = re.findall(r"^  - `([a-z_]+)`: ", SECTIONS[kind.__name__], re.MULTILINE)
    inherited = {
        name for base in kind.__mro__[1:] for name in re.findall(r"^ {8}(\w+): ", base.__doc__ or "", re.M)
    }
    assert sorted(set(listed) | inherited) == sorted(documented | inherited)
    assert len(listed) == len(set(listed))
    assert keywords_of(kind).keys() <= set(listed) | inherited


def test_a_section_says_when_whether_to_try_again_whether_written_and_what_helps(
    kind: type[ProducerError],
) -> None:
    assert tuple(re.findall(r"^- \*\*(?!Attributes)(.+?):\*\*", SECTIONS[kind.__name__], re.M)) == LABELS


def test_settings_on_the_page_are_settings() -> None:
    dotted = set(re.findall(r"`([a-z]+(?:\.[a-z]+)+)(?:=\w+)?`", TEXT))
    others = {
        # Of topics and brokers, of the sink on Spark, of Spark; a header; modules and attributes of Python.
        *("max.message.bytes", "min.insync.replicas", "transaction.max.timeout.ms", "advertised.listeners"),
        "offsets.retention.minutes",
        *("on.error", "id.column", "row.order", "spark.jars.packages", "ap.id", "partitioner.class"),
        *(
            "concurrent.futures",
            "aioproduce.errors",
            "aioproduce.spark",
            "aioproduce.audit",
            "error.documentation",
        ),
        *("aioproduce.compat.confluent", "aioproduce.testing.simulation"),
    }
    assert dotted - others <= KEYS.keys()
    assert len(dotted - others) > 10


def test_links_within_the_page_lead_somewhere() -> None:
    anchors = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    }
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(links) > 90
    assert {
        link for link in links if link.removeprefix("#") not in anchors
    } == set()  # and it links to no other page


def test_a_traceback_ends_with_the_address_of_the_section(kind: type[ProducerError]) -> None:
    error = sample_of(kind)
    address = f"{DOCUMENTATION}#{kind.__name__.lower()}"
    assert error.documentation == address  # type: ignore[attr-defined]
    assert "".join(traceback.format_exception(error)).endswith(f"{error}\nSee {address}\n")
    assert address not in str(error)
    assert address not in repr(error)
    assert DOCUMENTATION.endswith(f"/{PAGE}.html")


def test_the_address_costs_an_error_nothing() -> None:
    assert vars(NotStartedError("not started")) == {}


def test_a_users_own_class_names_its_parents_section() -> None:
    class OrderError(DeliveryError):
        pass

    assert OrderError.documentation == f"{DOCUMENTATION}#deliveryerror"


def test_notes_come_after_the_address_and_stay_with_their_error() -> None:
    error = NotStartedError("not started")
    error.add_note("of this one")
    for again in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert traceback.format_exception_only(again) == [
            "aioproduce.errors.NotStartedError: not started\n",
            f"See {DOCUMENTATION}#notstartederror\n",
            "of this one\n",
        ]
    assert "of this one" not in "".join(traceback.format_exception_only(NotStartedError("another")))


def test_builtin_parents_stay() -> None:
    """What a user's `except TimeoutError` catches is part of the interface."""
    caught = {
        kind.__name__: sorted(base.__name__ for base in kind.__mro__ if base.__module__ == builtins.__name__)
        for kind in public_errors()
    }
    assert {name for name, bases in caught.items() if "TimeoutError" in bases} >= {
        "DeliveryTimeoutError",
        "MaxBlockTimeoutError",
        "BufferExhaustedError",
        "FlushTimeoutError",
    }
    assert "ConnectionError" in caught["TlsError"]
    assert "ValueError" in caught["SerializationError"]
