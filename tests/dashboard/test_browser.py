"""Where the tests of the page find their Chromium, and what they say where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Error, async_playwright

from tests import browser_install, debian
from tests.dashboard.browser import find_chromium, launch


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("AIOPRODUCE_CHROMIUM", raising=False)
    return tmp_path


def test_none(empty_path: Path) -> None:
    with pytest.raises(
        LookupError, match="no Chromium: apt-get install chromium, or playwright install chromium"
    ):
        find_chromium(str(empty_path / "missing"))


def test_the_named_one_goes_before_playwrights_and_that_before_the_systems(
    empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, downloaded = empty_path / "chromium", empty_path / "downloaded"
    system.touch(mode=0o755)
    assert find_chromium(str(downloaded)) == str(system)
    downloaded.touch()
    assert find_chromium(str(downloaded)) == str(downloaded)
    monkeypatch.setenv("AIOPRODUCE_CHROMIUM", "/opt/chrome")
    assert find_chromium(str(downloaded)) == "/opt/chrome"


def stand_in(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def as_in_ci(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIOPRODUCE_REQUIRE_KAFKA", "1")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return empty_path


def test_ci_installs_debians(as_in_ci: Path) -> None:
    told = as_in_ci / "told"
    stand_in(as_in_ci / "apt-get", f'echo "$DEBIAN_FRONTEND" "$@" >> {told}')
    assert browser_install.install() == "Chromium was installed"
    assert told.read_text().splitlines() == [
        "noninteractive update --quiet",
        "noninteractive install --quiet --yes --no-install-recommends chromium",
    ]
    (as_in_ci / "chromium").touch(mode=0o755)
    told.unlink()
    assert browser_install.install() == "Chromium is there"
    assert not told.exists()


def test_what_hinders_it_is_said(as_in_ci: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "takes root and apt-get" in browser_install.install()
    stand_in(as_in_ci / "apt-get", 'echo "Could not get lock" >&2; exit 100')
    assert "apt-get update --quiet failed: Could not get lock" in browser_install.install()
    stand_in(as_in_ci / "apt-get", "exec /bin/sleep 60")
    monkeypatch.setattr(debian, "TIMEOUT", 0.05)
    assert "did not end within 0.05 s" in browser_install.install()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "takes root and apt-get" in browser_install.install()
    monkeypatch.delenv("AIOPRODUCE_REQUIRE_KAFKA")
    assert "tests of the dashboard's page will skip" in browser_install.install()


async def test_it_asks_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "arguments"
    instead = tmp_path / "chromium"
    stand_in(instead, f'printf "%s\\n" "$@" > {told}')
    monkeypatch.setenv("AIOPRODUCE_CHROMIUM", str(instead))
    async with async_playwright() as playwright:
        with pytest.raises(Error, match="closed"):
            await launch(playwright)
    assert set(told.read_text().splitlines()) >= {
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-quic",
        "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        "--no-first-run",
    }
