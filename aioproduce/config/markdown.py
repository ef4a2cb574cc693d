"""Prints the table of keys as the page `docs/reference/configuration.md`.

Used by `python -m aioproduce.config` and the CLI; a test compares the checked-in page with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aioproduce.config.config_def import REQUIRED, Key
from aioproduce.config.table import SECTIONS

_HEAD: Final = """\
# Configuration

Every producer key of Kafka 4.3 and its support in aioproduce. This page is generated from the table that the code
itself uses: `python -m aioproduce.config > docs/reference/configuration.md`.

The same keys have four spellings: keyword arguments with underscores for dots (`linger_ms=5`), a mapping with
their own names (`{"linger.ms": 5}`), a Java `.properties` file (`linger.ms=5`), and environment variables
(`KAFKA_LINGER_MS=5`, read by `ProducerConfig.from_environment()`). Values are typed, or strings as in a properties
file. Defaults are those of Kafka's Java client 4.3. An unknown key, a value out of range and settings that
contradict each other raise `ConfigError`, which names the key and, if there is a similar one, the key that was
probably meant.

A refused key is one that this version does not support. It accepts only values that change nothing, so that
existing files load, and raises `ConfigError` with the reason for any other. The values of passwords, tokens and
other secrets are never shown.

For environment variables, `KAFKA_SASL_PASSWORD_FILE` names a file with the value of `KAFKA_SASL_PASSWORD`, which is
how containers receive secrets; a newline at its end is ignored. Variables that begin with `KAFKA_` and are not keys
are ignored, because container images and Kubernetes set such variables. One that is similar to a key raises
`ConfigError`. The prefix can be changed. The command line reads `AIOPRODUCE_LINGER_MS` etc.: its options override
them, and they override the file of `--config`.
"""
_TAKEN: Final = "| key | type | default | values | what it does |\n|---|---|---|---|---|"
_REFUSED: Final = (
    "| refused key | Kafka's default | accepted | why, and what to use instead |\n|---|---|---|---|"
)


def markdown_page() -> str:
    """Return the whole page, as it is checked in."""
    return "\n".join([_HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for title, keys in SECTIONS.items():
        yield f"## {title}\n"
        for is_refused, head in ((False, _TAKEN), (True, _REFUSED)):
            if rows := [_row(key) for key in keys if key.is_refused is is_refused]:
                yield "\n".join([head, *rows, ""])


def _row(key: Key) -> str:
    name, default, allowed = f"`{key.name}`", default_cell(key), key.kind.allowed
    if key.is_refused:
        return markdown_row(name, default, allowed, key.text[0].upper() + key.text[1:])
    return markdown_row(name, key.kind.label, default, allowed, key.text)


def default_cell(key: Key) -> str:
    """Return a key's default as a cell of a table."""
    if key.default_text is not None:
        return key.default_text
    if key.default is REQUIRED or key.default is None:
        return "none" if key.default is None else "required"
    if isinstance(key.default, bool):
        return f"`{str(key.default).lower()}`"
    return f"`{key.default}`" if key.default != "" else "empty"


def markdown_row(*cells: str) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
