"""One request serves many callers, also if some are cancelled; failures are reported and forgotten."""

from __future__ import annotations

import anyio
import pytest

from aioproduce.errors import ConfigError
from aioproduce.serializers.single_flight import SingleFlight


def test_a_thousand_ask_and_one_question_is_asked(backend: str) -> None:
    async def main() -> None:
        flight: SingleFlight[str, int] = SingleFlight(10)
        asked = 0
        answers: list[int] = []
        is_asked, may_answer = anyio.Event(), anyio.Event()

        async def question() -> int:
            nonlocal asked
            asked += 1
            is_asked.set()
            await may_answer.wait()
            return 7

        async def ask() -> None:
            answers.append(await flight.ask("k", question))

        async with anyio.create_task_group() as tasks:
            for _ in range(1000):
                tasks.start_soon(ask)
            await is_asked.wait()
            await anyio.wait_all_tasks_blocked()
            may_answer.set()
        assert answers == [7] * 1000
        assert asked == 1
        assert await flight.ask("k", question) == 7
        assert asked == 1

    anyio.run(main, backend=backend)


def test_who_asks_is_cancelled_and_another_takes_over(backend: str) -> None:
    async def main() -> None:
        flight: SingleFlight[str, int] = SingleFlight(10)
        asked = 0
        answers: list[int] = []
        may_answer = anyio.Event()

        async def question() -> int:
            nonlocal asked
            asked += 1
            await may_answer.wait()
            return asked

        async def ask() -> None:
            answers.append(await flight.ask("k", question))

        async with anyio.create_task_group() as tasks:
            first = anyio.CancelScope()

            async def leader() -> None:
                with first:
                    await flight.ask("k", question)

            tasks.start_soon(leader)
            await anyio.wait_all_tasks_blocked()
            for _ in range(5):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert asked == 1
            first.cancel()
            await anyio.wait_all_tasks_blocked()
            assert asked == 2
            may_answer.set()
        assert answers == [2] * 5

    anyio.run(main, backend=backend)


def test_a_failure_is_told_to_all_who_wait_and_asked_again_by_the_next(backend: str) -> None:
    async def main() -> None:
        flight: SingleFlight[str, int] = SingleFlight(10)
        failures: list[Exception] = []
        may_answer = anyio.Event()
        asked = 0

        async def question() -> int:
            nonlocal asked
            asked += 1
            await may_answer.wait()
            raise ConfigError("no", key="k") from OSError("why")

        async def ask() -> None:
            try:
                await flight.ask("k", question)
            except ConfigError as error:
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            may_answer.set()
        assert asked == 1
        assert [str(failure) for failure in failures] == ["no"] * 3
        assert {getattr(failure, "key", None) for failure in failures} == {"k"}
        assert len({id(failure) for failure in failures}) == 3
        assert all(isinstance(failure.__cause__, OSError) for failure in failures)

        async def works() -> int:
            return 5

        assert await flight.ask("k", works) == 5

    anyio.run(main, backend=backend)


def test_asked_again_what_is_known_stays_until_the_answer(backend: str) -> None:
    async def main() -> None:
        flight: SingleFlight[str, int] = SingleFlight(10)
        flight.put("k", 1)
        may_answer = anyio.Event()
        answers: list[int] = []

        async def question() -> int:
            await may_answer.wait()
            return 2

        async def ask() -> None:
            answers.append(await flight.ask("k", question, again=True))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert flight.is_asking("k")
            assert flight.get("k") == await flight.ask("k", question) == 1
            may_answer.set()
        assert answers == [2, 2, 2]
        assert not flight.is_asking("k")
        assert flight.get("k") == 2

    anyio.run(main, backend=backend)


def test_other_keys_do_not_wait(backend: str) -> None:
    async def main() -> None:
        flight: SingleFlight[str, str] = SingleFlight(10)
        never = anyio.Event()

        async def stuck() -> str:
            await never.wait()
            return "never"

        async def quick() -> str:
            return "b"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flight.ask, "a", stuck)
            await anyio.wait_all_tasks_blocked()
            assert await flight.ask("b", quick) == "b"
            tasks.cancel_scope.cancel()

    anyio.run(main, backend=backend)


def test_the_oldest_goes_where_there_are_too_many() -> None:
    flight: SingleFlight[int, str] = SingleFlight(2)

    for number in range(3):
        flight.put(number, str(number))
    flight.put(1, "again")
    flight.put(3, "3")

    assert [flight.get(number) for number in range(4)] == [None, "again", None, "3"]


@pytest.mark.parametrize(
    "forget", [SingleFlight.clear, lambda flight: flight.forget("k")], ids=["clear", "forget"]
)
def test_what_is_forgotten_is_asked_again(forget: object) -> None:
    async def main() -> None:
        flight: SingleFlight[str, int] = SingleFlight(2)
        answers = iter((1, 2))

        async def question() -> int:
            return next(answers)

        assert await flight.ask("k", question) == 1
        assert callable(forget)
        forget(flight)
        assert await flight.ask("k", question) == 2

    anyio.run(main)
