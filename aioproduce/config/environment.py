"""Settings from environment variables: `KAFKA_SECURITY_PROTOCOL` for `security.protocol`.

Used by `ProducerConfig.from_environment` and the CLI. A name is a prefix and the key in capitals, with underscores
for dots. `..._FILE` names a file that holds the value, which is how containers receive secrets.

Invariants:
1. Messages do not contain values.
2. A variable with the prefix that is not a key is ignored: container images and Kubernetes set such variables
   (`KAFKA_HEAP_OPTS`, `KAFKA_PORT_9092_TCP`). One that is similar to a key is an error, because it is probably a
   typo.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aioproduce.config.table import KEYS
from aioproduce.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "KAFKA_"

_FILE: Final = "_FILE"
_NAMES: Final = {key.keyword.upper(): key.name for key in KEYS.values()}
_NEARLY: Final = (
    0.9  # KAFKA_SSL_KEYSTORE_FILENAME, which Confluent's images use, has 0.77 with the nearest key
)
_SECRET_BYTES_MAX: Final = 2**20


def load_environment(
    prefix: str = ENVIRONMENT_PREFIX, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the keys and values in environment variables.

    Args:
        prefix: The prefix of the names.
        environ: The variables.

    Returns:
        Dotted key -> text; `ProducerConfig.from_mapping` checks them.

    Raises:
        ConfigError: If a name is similar to a key's, if a key is set twice, or if a file cannot be read.

    Example:
        >>> load_environment(environ={"KAFKA_BOOTSTRAP_SERVERS": "broker:9092", "KAFKA_HEAP_OPTS": "-Xmx1g"})
        {'bootstrap.servers': 'broker:9092'}
    """
    settings: dict[str, str] = {}
    for variable, text in environ.items():
        if not variable.startswith(prefix):
            continue
        # For a key that itself ends in `_FILE`, such as `..._ASSERTION_FILE`, the value is not a file to read here.
        key = _NAMES.get(variable.removeprefix(prefix))
        if key is None and (key := _key_of_file(variable.removeprefix(prefix))) is not None:
            text = _content(variable, text)
        if key is None:
            _refuse_what_is_nearly_a_key(variable, prefix)
        elif key in settings:
            raise ConfigError(
                f"{prefix}{_written(key)} and {prefix}{_written(key)}{_FILE} are both set", key=key
            )
        else:
            settings[key] = text
    return settings


def _written(key: str) -> str:
    return KEYS[key].keyword.upper()


def _key_of_file(name: str) -> str | None:
    return _NAMES.get(name.removesuffix(_FILE)) if name.endswith(_FILE) else None


def _content(variable: str, path: str) -> str:
    """Return the content of the file, without the newline at its end."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_SECRET_BYTES_MAX + 1)
        if len(content) > _SECRET_BYTES_MAX:
            raise ConfigError(
                f"{variable} names a file of more than {_SECRET_BYTES_MAX} bytes: is it the right file?"
            )
        return content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{variable} names a file that cannot be read: {reason}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{variable} names a file that is not UTF-8.") from None


def _refuse_what_is_nearly_a_key(variable: str, prefix: str) -> None:
    near = difflib.get_close_matches(
        variable.removeprefix(prefix)[:200].removesuffix(_FILE), _NAMES, n=1, cutoff=_NEARLY
    )
    if near:
        raise ConfigError(
            f"The environment variable {variable} is not a key: did you mean {prefix}{near[0]}?",
            key=variable,
            suggestion=prefix + near[0],
        )
