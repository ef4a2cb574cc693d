"""What conversations are held with: the values of a `Credential`.

Made by the sources in `security.tokens`; taken by the mechanisms (`oauthbearer`, `plain`, `scram`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from aioproduce.config.secret import Secret


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token, with the SASL extensions that go with it (KIP-342).

    Attributes:
        value: The token as it is sent.
        extensions: Names and values, e.g. Confluent Cloud's `logicalCluster` and `identityPoolId`.
    """

    value: Secret
    extensions: Mapping[str, str] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UserPassword:
    """A name and its password, for PLAIN and SCRAM.

    Attributes:
        username: The name.
        password: The password.
    """

    username: str
    password: Secret
