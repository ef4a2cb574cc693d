"""The table of the matrix says what a run's results say, and what is wanting."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from tests.integration.security_table import main, table

if TYPE_CHECKING:
    from pathlib import Path

PASSED = '<testcase name="test_records_arrive[tls1.3-PLAIN-trio]"/>'
FAILED = '<testcase name="test_records_arrive[tls1.3-PLAIN-trio]"><failure message="no"/></testcase>'
SKIPPED = '<testcase name="test_records_arrive[mutual-GSSAPI-asyncio]"><skipped message="no KDC"/></testcase>'
OTHERS = '<testcase name="test_librdkafka_writes[plaintext-none]"/><testcase name="test_java_writes[mutual-none]"/>'


def page(cases: str) -> tuple[list[str], bool]:
    text, is_sound = table(ET.fromstring(f"<testsuites><testsuite>{cases}</testsuite></testsuites>"))
    return text.splitlines(), is_sound


def row(lines: list[str], *names: str) -> list[str]:
    [found] = [line for line in lines if line.startswith(f"| {' | '.join(names)} |")]
    return [mark.strip() for mark in found.strip("|").split("|")][2:]


def test_each_client_has_its_column() -> None:
    lines, is_sound = page(PASSED + SKIPPED + OTHERS)
    assert is_sound
    assert row(lines, "tls1.3", "PLAIN")[2] == "passed"
    assert row(lines, "plaintext", "none")[4] == "passed"
    assert row(lines, "mutual", "none")[5] == "passed"
    number = row(lines, "mutual", "GSSAPI")[0].removeprefix("skipped (").removesuffix(")")
    assert f"{number}. no KDC" in lines
    number = row(lines, "tls1.3", "PLAIN")[0].strip("()")
    assert f"{number}. Not in this run." in lines
    assert len([line for line in lines if line.startswith("| ")]) == 1 + 4 * 8


def test_a_failure_is_seen(tmp_path: Path) -> None:
    assert row(page(FAILED)[0], "tls1.3", "PLAIN")[2] == "**failed**"
    results, target = tmp_path / "results.xml", tmp_path / "page.md"
    for case, status in ((PASSED, 0), (FAILED, 1)):
        results.write_text(f"<testsuites>{case}</testsuites>")
        assert main([str(results), "--target", str(target)]) == status
    assert "**failed**" in target.read_text()
