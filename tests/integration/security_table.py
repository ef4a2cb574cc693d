"""The table of `docs/reference/security-matrix.md`, made of what a run of the matrix wrote down.

    .venv/bin/python -m pytest tests/integration/test_security_matrix_kafka.py \\
        tests/integration/test_secured_kafka.py --junitxml=build/security-matrix.xml
    .venv/bin/python -m tests.integration.security_table build/security-matrix.xml

A cell that was not tried, was skipped or failed says why below the table; the exit status is 1 where one failed.
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Final

from tests.secured.cells import CELLS, Cell

TARGET: Final = Path(__file__).parents[2] / "docs" / "reference" / "security-matrix.md"

COLUMNS: Final = {
    **{client: ("test_records_arrive", f"-{client}") for client in ("asyncio", "uvloop", "trio", "blocking")},
    "librdkafka": ("test_librdkafka_writes", ""),
    "Java": ("test_java_writes", ""),
}
"""Heading -> the test, and how the name of its parameters ends behind the cell."""

_HEAD: Final = """\
# The security matrix

Every transport with every mechanism, against a real Apache Kafka on loopback. The first four columns are
aioproduce's producer on each event loop (`blocking` is `BlockingProducer`). It sends 200 records with keys, half of
them over new connections, and librdkafka reads them back over plaintext. The other two columns are other clients
on the same listeners. `OAUTHBEARER` uses an unsecured token. `OIDC` uses a token that a token endpoint signs and
the brokers verify with its JWKS. `MSK` is AWS's login with a stand-in for its signer.
`python -m tests.integration.security_table` writes this page; do not edit it.

"""


def table(results: ET.Element) -> tuple[str, bool]:
    """The page, and whether every cell that was tried has passed."""
    cases = {str(case.get("name")): case for case in results.iter("testcase")}
    whys: list[str] = []
    is_sound = True
    lines = [f"| transport | mechanism | {' | '.join(COLUMNS)} |", "|---|---|" + "---|" * len(COLUMNS)]
    for cell in CELLS:
        marks = []
        for heading, (test, ending) in COLUMNS.items():
            case = cases.get(f"{test}[{cell}{ending}]")
            mark, why = _judge(case, cell, heading)
            is_sound &= mark != "**failed**"
            if why:
                if why not in whys:
                    whys.append(why)
                mark += f" ({whys.index(why) + 1})"
            marks.append(mark.strip())
        lines.append(f"| {cell.transport} | {cell.mechanism} | {' | '.join(marks)} |")
    notes = [f"{number}. {why}" for number, why in enumerate(whys, 1)]
    return _HEAD + "\n".join([*lines, "", *notes]).rstrip() + "\n", is_sound


def _judge(case: ET.Element | None, cell: Cell, heading: str) -> tuple[str, str]:
    """The mark of a cell, and why it is none of passing."""
    if case is None:
        return "", _why_not_tried(cell, heading)
    if case.find("failure") is not None or case.find("error") is not None:
        return "**failed**", ""
    if (skipped := case.find("skipped")) is not None:
        return "skipped", str(skipped.get("message"))
    return "passed", ""


def _why_not_tried(cell: Cell, heading: str) -> str:
    if heading == "librdkafka" and cell.mechanism == "GSSAPI":
        return "librdkafka's wheels have no GSSAPI. Java's client shows that the listener works."
    if heading in ("librdkafka", "Java") and cell.mechanism == "MSK":
        return "MSK's login needs AWS's brokers. The test uses signed tokens on OAUTHBEARER's listener, like OIDC."
    if heading == "Java":
        return "One other client is enough. Java's runs where librdkafka cannot, and in three more cells."
    return "Not in this run."


def main(arguments: list[str]) -> int:
    """Write the page; 1 where a cell has failed."""
    parser = argparse.ArgumentParser(
        description="Make docs/reference/security-matrix.md of the results of a test run."
    )
    parser.add_argument("results", type=Path, help="what pytest wrote with --junitxml")
    parser.add_argument("--target", type=Path, default=TARGET, help="default: %(default)s")
    options = parser.parse_args(arguments)
    page, is_sound = table(ET.parse(options.results).getroot())
    options.target.write_text(page)
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
