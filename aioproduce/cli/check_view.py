"""The findings of `aioproduce check` for people: a line for each step, or one for a broker that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from aioproduce.cli.check import Findings, Step, Trial


def findings_view(findings: Findings) -> RenderableType:
    """Return each bootstrap server and each failure step by step, then the brokers of the cluster."""
    parts: list[RenderableType] = []
    for trial in findings.trials:
        if trial.is_bootstrap or trial.failure is not None:
            parts += [Text(_title(trial), style="bold"), _steps(trial.steps), Text()]
        else:
            seconds = sum(step.seconds or 0.0 for step in trial.steps)
            parts += [
                Text(f"{_title(trial)}: every step done in {seconds * 1000:.0f} ms", style="green"),
                Text(),
            ]
    if findings.brokers:
        name = findings.cluster_id or "(without an id)"
        parts.append(Text(f"cluster {name} answers, {len(findings.brokers)} broker(s):"))
        parts += [Text(f"  {node}: {findings.brokers[node]}") for node in sorted(findings.brokers)]
    return Group(*parts)


def problem_lines(findings: Findings) -> Iterator[str]:
    """Yield the failures for standard error, one line for all brokers that fail in the same way."""
    addresses: dict[str, list[str]] = {}
    for trial in findings.trials:
        step = trial.failure
        if step is not None:
            severity = "error" if trial in findings.failures else "warning"
            addresses.setdefault(f"{severity}: {{}} at {step.name}: {step.text}", []).append(trial.address)
    for line, those in addresses.items():
        yield line.replace("{}", f"{', '.join(those)} {'fails' if len(those) == 1 else 'fail'}", 1)


def _title(trial: Trial) -> str:
    numbers = ", ".join(map(str, trial.node_ids))
    kinds = ["bootstrap server"] if trial.is_bootstrap else []
    if numbers:
        kinds.append(f"broker {numbers}")
    return f"{trial.address} ({', '.join(kinds)})"


def _steps(steps: tuple[Step, ...]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True, style="dim")
    for step in steps:
        mark = Text("  ok", style="green") if step.is_done else Text("FAIL", style="bold red")
        took = "" if step.seconds is None else f"{step.seconds * 1000:.1f} ms"
        table.add_row(mark, step.name, Text(step.text, style="" if step.is_done else "red"), took)
    return table
