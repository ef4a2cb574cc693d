"""Where the settings of a command come from, and which of them wins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from aioproduce.cli.settings import build_config, parse_separator
from aioproduce.config import ProducerConfig, Secret
from aioproduce.errors import ConfigError

SECRET = "hunter2-do-not-show"


def built(file: Path | None = None, overrides: Sequence[str] = ()) -> ProducerConfig:
    return build_config(
        bootstrap="a:1",
        file=None if file is None else str(file),
        overrides=overrides,
        options={"acks": None},
        client_id="me",
    )


def test_security_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(f"{SECRET}\n")
    for name, value in (
        ("SECURITY_PROTOCOL", "SASL_SSL"),
        ("SASL_MECHANISM", "SCRAM-SHA-256"),
        ("SASL_USERNAME", "me"),
        ("SASL_PASSWORD_FILE", str(password)),
        ("PURE", "1"),  # of somebody else
    ):
        monkeypatch.setenv(f"AIOPRODUCE_{name}", value)
    config = built()
    assert (config.security_protocol, config.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-256")
    assert config.sasl_password == Secret(SECRET)


def test_options_go_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("linger.ms=1\nretry.backoff.ms=1\nbatch.size=1\n")
    monkeypatch.setenv("AIOPRODUCE_LINGER_MS", "2")
    monkeypatch.setenv("AIOPRODUCE_RETRY_BACKOFF_MS", "2")
    config = built(file, ["linger.ms=3"])
    assert (config.linger, config.retry_backoff, config.batch_size) == (0.003, 0.002, 1)


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("\\t", b"\t"),
        ("\t", b"\t"),
        ("\\x1F", b"\x1f"),
        ("\\\\t", b"\\t"),
        ("::", b"::"),
        ("\u20ac", b"\xe2\x82\xac"),
        ("a\\x00\\\\", b"a\x00\\"),
    ],
)
def test_separators(text: str, separator: bytes) -> None:
    assert parse_separator(text) == separator


@pytest.mark.parametrize("text", ["", "\n", "\\x0a", "\\n", "\\x1", "\\", "\\\n"])
def test_what_is_no_separator(text: str) -> None:
    with pytest.raises(ConfigError, match="--key-separator"):
        parse_separator(text)


def test_a_password_without_its_sign_is_in_no_message() -> None:
    with pytest.raises(ConfigError, match="-X takes key=value") as caught:
        built(overrides=[f"sasl.password:{SECRET}"])
    assert SECRET not in str(caught.value)
