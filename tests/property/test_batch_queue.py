"""`BatchQueue` against a list, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.core.batching.batch_queue import BatchQueue
from aioproduce.core.batching.producer_batch import ProducerBatch
from tests.unit.test_sequences import make_batch


@given(st.data())
def test_a_queue_is_a_list_of_batches(data: st.DataObject) -> None:
    queue, expected = BatchQueue(), list[ProducerBatch]()
    outside = [make_batch() for _ in range(5)]
    for _ in range(data.draw(st.integers(0, 30), "steps")):
        action = data.draw(st.sampled_from(("append", "insert", "remove")), "action")
        if action == "remove" and expected:
            batch = expected.pop(data.draw(st.integers(0, len(expected) - 1), "place"))
            queue.remove(batch)
            outside.append(batch)
            assert (batch.ahead, batch.behind) == (None, None)
        elif action == "append" and outside:
            queue.append(outside[-1])
            expected.append(outside.pop())
        elif action == "insert" and outside:
            place = data.draw(st.integers(0, len(expected)), "place")
            queue.insert(outside[-1], expected[place] if place < len(expected) else None)
            expected.insert(place, outside.pop())
        assert list(queue) == expected
        assert len(queue) == len(expected)
        around = [None, *expected, None]
        assert (queue.first, queue.last) == (around[1], around[-2])
        assert [batch.ahead for batch in expected] == around[:-2]
        assert [batch.behind for batch in expected] == around[2:]


def test_a_batch_that_is_not_in_the_queue_is_not_removed_from_it() -> None:
    queue, other = BatchQueue(), make_batch()
    with pytest.raises(ValueError, match="not in the queue"):
        queue.remove(other)
    kept = make_batch()
    queue.append(kept)
    with pytest.raises(ValueError, match="not in the queue"):
        queue.remove(other)
    assert list(queue) == [kept]
