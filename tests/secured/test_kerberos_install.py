"""CI gets Debian's Kerberos; another machine is told what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import kerberos_install
from tests.secured import kdc

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_installed_in_ci_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    apt = tmp_path / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "$@" >> {told}\n')
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(kdc, "PROGRAMS", ("no-such-program",))
    monkeypatch.delenv("AIOPRODUCE_REQUIRE_KAFKA", raising=False)
    assert "the tests with GSSAPI will skip" in kerberos_install.install()
    assert not told.exists()
    monkeypatch.setenv("AIOPRODUCE_REQUIRE_KAFKA", "1")
    assert kerberos_install.install() == "Kerberos was installed"
    assert told.read_text().splitlines()[-1].endswith(" krb5-kdc krb5-admin-server")
    monkeypatch.setattr(kdc, "PROGRAMS", ("apt-get",))
    assert kerberos_install.install() == "Kerberos is there"
