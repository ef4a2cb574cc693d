"""The Kerberos of the tests: the one that is there, or in CI the Debian packages (`tests.debian`).

Whatever is missing is said, and the tests with GSSAPI then skip with the reason.
"""

from __future__ import annotations

import sys

from tests import debian
from tests.secured.kdc import why_not


def install() -> str:
    """Install it if that is wanted and possible; says what came of it."""
    if why_not() is None:
        return "Kerberos is there"
    packages = ("krb5-kdc", "krb5-admin-server")
    return debian.install("Kerberos", packages, "the tests with GSSAPI will skip")


if __name__ == "__main__":
    print(install(), file=sys.stderr)
