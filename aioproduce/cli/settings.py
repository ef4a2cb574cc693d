"""From options, environment and a properties file to a `ProducerConfig`.

Called by the commands. The first of these that sets a key wins: `-X`, a named option (`--acks`,
`--bootstrap-server`), the environment (`AIOPRODUCE_SECURITY_PROTOCOL`, or `AIOPRODUCE_SASL_PASSWORD_FILE` for a
value in a file), the file of `--config`.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from aioproduce.config import ProducerConfig, load_environment, load_properties
from aioproduce.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX: Final = "AIOPRODUCE_"
ENVIRONMENT: Final = f"{PREFIX}BOOTSTRAP_SERVERS"
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_ESCAPES: Final = {b"t": b"\t", b"\\": b"\\"}


def build_config(
    *,
    bootstrap: str | None,
    file: str | None,
    overrides: Sequence[str],
    options: Mapping[str, str | None],
    client_id: str,
) -> ProducerConfig:
    """Return the configuration of a command's producer.

    Configured serializers are checked, and not used: keys and values are bytes from the input.

    Args:
        bootstrap: `--bootstrap-server`.
        file: `--config`.
        overrides: Each `-X key=value`.
        options: Kafka's key -> the value of its named option, `None` if that was not given.
        client_id: The default of `client.id`.

    Raises:
        ConfigError: if a key or value is wrong, or `bootstrap.servers` is missing.
    """
    settings: dict[str, object] = {"client.id": client_id}
    if file is not None:
        settings.update(load_properties(file))
    settings.update(load_environment(PREFIX))
    if bootstrap is not None:
        settings["bootstrap.servers"] = bootstrap
    settings.update({key: value for key, value in options.items() if value is not None})
    for override in overrides:
        key, found, value = override.partition("=")
        if not found or not key.strip():
            # Without its text: it may be a password without its `=`.
            raise ConfigError("-X takes key=value, e.g. -X linger.ms=20")
        settings[key.strip()] = value
    require_servers(settings, "the file of --config")
    config = ProducerConfig.from_mapping(settings)
    return dataclasses.replace(config, key_serializer=None, value_serializer=None)


def require_servers(settings: Mapping[str, object], place: str) -> None:
    """Raise ConfigError if `bootstrap.servers` is missing; the message also names `place` as one to set it."""
    if "bootstrap.servers" not in settings:
        raise ConfigError(
            f"nothing says where the cluster is: give --bootstrap-server host:port, set {ENVIRONMENT}, or put "
            f"bootstrap.servers into {place} (without a cluster: `aioproduce dev` starts one)",
            key="bootstrap.servers",
        )


def parse_headers(headers: Sequence[str]) -> list[tuple[str, bytes | None]]:
    """Return the headers of each `--header name=value`.

    Raises:
        ConfigError: if one has no `=`, or a name that is not Unicode.
    """
    parsed: list[tuple[str, bytes | None]] = []
    for header in headers:
        name, found, value = header.partition("=")
        if not found:
            raise ConfigError(f"--header takes name=value, not {header!r}")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"the name of header {header!r} is not UTF-8") from error
        # Bytes of the command line that are not UTF-8 stay the same.
        parsed.append((name, value.encode(errors="surrogateescape")))
    return parsed


def parse_separator(text: str) -> bytes:
    r"""Return the bytes of `--key-separator`; `\t` is a tab, `\x1f` a byte, `\\` a backslash.

    Raises:
        ConfigError: if it is empty, has a newline, or has a backslash before anything else.
    """

    def meant(escape: re.Match[bytes]) -> bytes:
        name = escape[1]
        if len(name) == 3:
            return bytes.fromhex(name[1:].decode())
        if name not in _ESCAPES:
            raise ConfigError(
                f"--key-separator {text!r} has a backslash that means nothing: \\t is a tab, \\xNN a byte by its "
                "hexadecimal number, \\\\ a backslash"
            )
        return _ESCAPES[name]

    separator = _ESCAPE.sub(meant, text.encode(errors="surrogateescape"))
    if not separator or b"\n" in separator:
        raise ConfigError("--key-separator must have one or more characters, and no newline")
    return separator
