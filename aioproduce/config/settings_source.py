"""Prints the table of keys as the module `settings`: the settings as types.

Called by `python -m aioproduce.config types`; a test holds the checked-in module to it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

from aioproduce.config.config_def import Key
from aioproduce.config.kinds import SERIALIZER
from aioproduce.config.markdown import default_cell
from aioproduce.config.table import SECTIONS

_HEAD: Final = '''\
"""The settings of a producer as keyword arguments, for type checkers and editors.

The table of keys prints this module: `python -m aioproduce.config types > aioproduce/config/settings.py`. No
producer reads it: the table itself decides what is accepted.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from aioproduce.config.secret import Secret
from aioproduce.config.user_objects import ChoosesPartition, CredentialsProvider, Serializer, TokenProvider
from aioproduce.errors import DeliveryError

# fmt: off


class PlainSettings(TypedDict, total=False):
    """Kafka's producer keys, with underscores for dots, without serializers."""
'''
_SETTINGS: Final = '''
class ProducerSettings(PlainSettings, total=False):
    """Kafka's producer keys, with underscores for dots: the keyword arguments of `Producer`.

    A function of your own passes them on with their types by `Unpack`.

    Example:
        >>> def made(**settings: Unpack[ProducerSettings]) -> Producer[Any, Any]:
        ...     return Producer("localhost:9092", **settings)
    """
'''
_KEYWORDS: Final = '''
class ProducerKeywords(ProducerSettings, total=False):
    """All keys: also the one that producers take first."""
'''
_WIDTH: Final = 106
_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")


def settings_source() -> str:
    """The whole module, as it is checked in."""
    keys = [key for section in SECTIONS.values() for key in section if not key.is_refused]
    servers = [key for key in keys if key.name == "bootstrap.servers"]
    serializers = [key for key in keys if key.kind is SERIALIZER]
    plain = [key for key in keys if key not in servers and key not in serializers]
    parts = (_HEAD, *_fields(plain), _SETTINGS, *_fields(serializers), _KEYWORDS, *_fields(servers))
    return "\n".join(parts)


def _fields(keys: Iterable[Key]) -> Iterator[str]:
    for key in keys:
        yield textwrap.indent(f'{_annotated(key)}\n"""{key_help(key)}\n"""\n', "    ")


def _annotated(key: Key) -> str:
    line = f"{key.keyword}: {key.kind.annotation}"
    if len(line) <= _WIDTH:
        return line
    words, _, rest = key.kind.annotation.partition("]")
    listed = textwrap.indent(textwrap.fill(words.removeprefix("Literal["), _WIDTH - 8), "    ")
    return f"{key.keyword}: Literal[\n{listed},\n]{rest}"


def key_help(key: Key) -> str:
    """What an editor shows of a key: what it does, the values and the default."""
    text = key.text[0].upper() + key.text[1:]
    values = f"Accepts {key.kind.allowed}. Default: {default_cell(key)}."
    paragraphs = (textwrap.fill(_LINK.sub(r"\1", part), _WIDTH) for part in (text, values))
    return "\n\n".join(paragraphs)
