"""Run mutants: each in a child of the session, against the tests that were chosen for it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from tests.mutation.choose import Choice
from tests.mutation.pool import in_children
from tests.mutation.swap import NotSwappableError, swap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tests.mutation.mutants import Mutant
    from tests.mutation.pool import Child, Message
    from tests.mutation.session import Recorded, Session


class Status(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    HUNG = "hung"
    """A test took many times as long as it does: killed, too."""
    SURVIVED = "survived"
    VOID = "void"
    """It could not be put in place of the function: it does not count."""


@dataclass(frozen=True, slots=True)
class Result:
    """The end of one mutant.

    Attributes:
        mutant: The mutant.
        status: What became of it.
        tests: How many tests ran.
        test: The last of them: which killed it, unless it survived.
        why: What that test said.
        seconds: How long it took, by the clock.
        cpu: How much of a processor it took.
    """

    mutant: Mutant
    status: Status
    tests: int
    test: str
    why: str
    seconds: float
    cpu: float

    def as_row(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "mutant": self.mutant.name,
            "module": self.mutant.module,
            "line": self.mutant.line,
            "function": self.mutant.function_hash,
            "status": self.status.value,
            "tests": self.tests,
            "test": self.test,
            "why": self.why,
            "seconds": round(self.seconds, 2),
            "cpu": round(self.cpu, 2),
        }


def run_mutants(
    session: Session, recorded: Mapping[str, Recorded], drawn: Iterable[Mutant], workers: int, budget: float
) -> Iterator[Result]:
    """Run them, some at a time; results come in the order of their ends."""
    failing = [line.test for line in recorded.values() if line.outcome == "failed"]
    if failing:
        raise SystemExit("these tests fail without any mutant:\n" + "\n".join(failing))
    choice = Choice(session.finder.probes, recorded, budget)

    def run(job: _Job, send: Callable[[Message], None]) -> None:
        try:
            swap(job.mutant, session.functions)
        except NotSwappableError as error:
            send({"void": str(error)})
            return
        session.run_until_failure(job.tests, [choice.limits(name) for name in job.tests], send)

    jobs = _Jobs(drawn, choice)
    for child in in_children(jobs, run, workers):
        result = _result(child)
        if result.status is Status.HUNG and not child.job.is_second:
            # A machine that stood still makes a test late, too: it has to hang twice, the second time first of all.
            tests = child.job.tests
            jobs.again.append(_Job(result.mutant, tests[tests.index(result.test) :], is_second=True))
            continue
        if result.status in (Status.KILLED, Status.HUNG):
            choice.killed(result.mutant, result.test)
        yield result


@dataclass(frozen=True, slots=True)
class _Job:
    mutant: Mutant
    tests: list[str]
    is_second: bool = False


class _Jobs:
    """Mutants with their tests, chosen when a child is free: by then it is known what killed those before."""

    def __init__(self, drawn: Iterable[Mutant], choice: Choice) -> None:
        self.again: deque[_Job] = deque()
        self._drawn = iter(drawn)
        self._choice = choice

    def __iter__(self) -> _Jobs:
        return self

    def __next__(self) -> _Job:
        if self.again:
            return self.again.popleft()
        mutant = next(self._drawn)
        return _Job(mutant, self._choice.tests(mutant))


def _result(child: Child[_Job]) -> Result:
    mutant = child.job.mutant
    begun = [message["test"] for message in child.messages if "test" in message]
    last: Message = child.messages[-1] if child.messages else {}
    test = begun[-1] if begun else ""
    if "void" in last:
        status, why = Status.VOID, last["void"]
    elif "survived" in last:
        status, why = Status.SURVIVED, ""
    elif "killed" in last:
        status, why = Status.KILLED, last["why"]
    elif child.is_hung:
        status, why = Status.HUNG, "it took too long"
    elif not begun:
        raise RuntimeError(f"no test was run against {mutant.name}: {last.get('failed', child.status)}")
    else:
        status, why = Status.KILLED, last.get("failed", f"the process ended with {child.status}")
    return Result(mutant, status, len(begun), test, why, child.seconds, child.cpu)
