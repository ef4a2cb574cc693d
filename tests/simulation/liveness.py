"""Letter W of the oracle: no send and no record waits longer than its cause explains.

Called by the ledger when a run is over. What a wait may be explained by comes from `observations` and from the
settings, never from the producer: so a producer that believes that it has to wait is accused like any other.

A record that was accepted is explained by

- `linger.ms`, unless a send waits for memory or a flush began;
- a request that a leader of its partition has not answered yet, or a connection to it that is being set up;
- the back-off after such a connection ended, or after its partition was refused; a broker that throttles;
- while the client cannot know who leads its partition: whatever it may be doing to learn it;
- until the idempotent producer has its id: the same;
- the client's own loop, while it is blocked.

A send is explained by the same, of any partition, if it waits for memory; and by requests for metadata and their
back-off, if its topic is not known. It need not wait at all if its topic is known, and if memory would last for a
batch of each record that is not settled.

The longest stretch of a wait without any of these may be `SLACK`.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Final

from aioproduce.testing.fake_cluster.partition import NO_LEADER
from aioproduce.testing.simulation.cluster import host_of
from aioproduce.wire.api import ApiKey
from tests.simulation.sides import config_of
from tests.simulation.spans import common, gaps, merged, outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioproduce.config import ProducerConfig
    from tests.simulation.case import Case
    from tests.simulation.ledger import Entry
    from tests.simulation.observations import Answer, Observations, Request
    from tests.simulation.spans import Span

SLACK: Final = 0.05
"""Seconds that nothing need explain: compression, the loop's turns, and the beginning of what comes next."""

AT_ONCE: Final = 0.0005
"""Seconds that a send may take that need not wait. The quickest answer of a broker takes twice that."""

REFUSED_MAX: Final = 30.0
"""Seconds for which a broker that refused a login is left alone at most."""

_OVERHEAD: Final = 150
"""Bytes of a batch at most beyond a record's value."""


class Liveness:
    """The verdict on the waits of one run.

    Args:
        seen: What was observed.
        case: The settings.
        config: The same, with the defaults, in seconds.
        entries: The records.
        flushes: When flushes began.
    """

    def __init__(
        self,
        seen: Observations,
        case: Case,
        config: ProducerConfig,
        entries: Iterable[Entry],
        flushes: Iterable[float],
    ) -> None:
        self._seen = seen
        self._case = case
        self._config = config
        self._entries = list(entries)
        self._flushes = sorted(flushes)
        refused = REFUSED_MAX if case.security else 0.0
        self._pause = max(config.retry_backoff_max, config.reconnect_backoff_max, refused) + SLACK
        self._used = sorted(
            at for e in self._entries for at in (e.offered_at, e.accepted_at) if at is not None
        )
        self._blocked = merged(seen.blocked)
        self._forgotten = set(self._forgettings())
        self._begun_anew = list(self._new_beginnings())
        self._known = self._topic_known()
        self._causes: dict[int, list[Span]] = {}
        self._memory = _MemoryBound(self._entries, config)

    def check(self, accuse: Callable[[str, str], None]) -> None:
        """Accuse every wait that is too long."""
        hurry = merged(span for entry in self._entries for span in self._check_send(entry, accuse))
        for entry in self._entries:
            if entry.accepted_at is not None and entry.outcomes:
                self._check_record(entry, hurry, accuse)

    # -- verdicts ---

    def _check_send(self, entry: Entry, accuse: Callable[[str, str], None]) -> list[Span]:
        """Judge one send; says when it waited for memory."""
        began_at, ended_at = entry.offered_at, entry.answered_at
        if ended_at is None or ended_at - began_at <= AT_ONCE:
            return []
        known = self._known.get(entry.writer, [])
        for_memory: list[Span] = []
        for_nothing: list[Span] = []
        for span in common(known, [(began_at, ended_at)]):
            (for_nothing if self._memory.lasts(span[0]) else for_memory).append(span)
        # Where it may know the topic, or not, it may wait for either.
        unknown = gaps(known, began_at, ended_at)
        need_not_wait = for_nothing == [(began_at, ended_at)]
        explained = merged(
            [
                *common(self._activity, unknown),
                *(common(self._any_cause, merged([*for_memory, *unknown])) if for_memory or unknown else ()),
                *self._blocked,
            ]
        )
        for begin, end in gaps(explained, began_at, ended_at):
            if end - begin > (AT_ONCE if need_not_wait else SLACK):
                why = "though its topic was known and memory was there" if need_not_wait else "for no reason"
                accuse("W", f"{entry}: send() waited from {begin:.6f} to {end:.6f} {why}")
                break
        return for_memory

    def _check_record(self, entry: Entry, hurry: list[Span], accuse: Callable[[str, str], None]) -> None:
        accepted_at = entry.accepted_at
        assert accepted_at is not None
        partition = entry.outcomes[0][0].partition
        for span in gaps(self._may_linger(accepted_at, hurry), accepted_at, entry.settled_at):
            if span[1] - span[0] <= SLACK:
                continue
            for begin, end in gaps(self._causes_of(partition), *span):
                if end - begin > SLACK:
                    accuse(
                        "W",
                        f"{entry}: partition {partition} waited from {begin:.3f} to {end:.3f} for no reason, and "
                        f"it was settled at {entry.settled_at:.3f}",
                    )
                    return

    def _may_linger(self, accepted_at: float, hurry: list[Span]) -> list[Span]:
        until = accepted_at + self._config.linger
        flush = bisect_right(self._flushes, accepted_at)
        if flush < len(self._flushes):
            until = min(until, self._flushes[flush])
        return gaps(hurry, accepted_at, until)

    # -- causes ---

    @cached_property
    def _activity(self) -> list[Span]:
        """Whatever a client does that learns about the cluster, and the pauses that it makes."""
        return merged([*self._spans(lambda _, __, ___: True), *self._pauses_of_metadata(), *self._blocked])

    @cached_property
    def _any_cause(self) -> list[Span]:
        """What may keep the records of any partition waiting, and so their memory."""
        return merged(span for partition in self._seen.leaders for span in self._causes_of(partition))

    def _causes_of(self, partition: int) -> list[Span]:
        """What may keep a partition's records waiting, but for `linger.ms`."""
        if partition not in self._causes:
            self._causes[partition] = self._find_causes(partition) if partition in self._seen.leaders else []
        return self._causes[partition]

    def _find_causes(self, partition: int) -> list[Span]:
        believed = self._believed_leaders(partition)

        def may_lead(host: str, begin: float, end: float) -> bool:
            return any(begin <= until and since <= end for since, until in believed.get(host, ()))

        refusals = [
            (request.ended_at, request.ended_at + self._pause)
            for request in self._seen.answers
            if request.answer is not None and partition in request.answer.refused
        ]
        in_doubt = [*outside(self._leader_known(partition)), (0.0, self._identified_at())]
        return merged(
            [
                *self._spans(may_lead),
                *refusals,
                *common(self._activity, merged(in_doubt)),
                *self._blocked,
            ]
        )

    def _spans(self, concerns: Callable[[str, float, float], bool]) -> Iterator[Span]:
        """When something was under way with the hosts that are of concern, or a pause follows its failure."""
        for request in self._seen.requests:
            if concerns(request.host, request.sent_at, request.ended_at):
                yield request.sent_at, request.ended_at
            if request.answer is not None and request.answer.throttle:
                silent_until = request.ended_at + request.answer.throttle
                if concerns(request.host, request.ended_at, silent_until):
                    yield request.ended_at, silent_until
        for opening in self._seen.openings:
            if concerns(opening.host, opening.began_at, opening.ended_at):
                yield opening.began_at, opening.ended_at
        for at, host in self._seen.failures:
            if concerns(host, at, at + self._pause):
                yield at, at + self._pause

    def _pauses_of_metadata(self) -> Iterator[Span]:
        for request in self._seen.requests:
            if request.api in (ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID):
                yield request.ended_at, request.ended_at + self._pause

    def _believed_leaders(self, partition: int) -> dict[str, list[Span]]:
        """Whom the client may take for the leader, and when: until it is told who it is."""
        told_at = list(self._told_of_leader(partition))

        def told_after(at: float) -> float:
            index = bisect_right(told_at, at)
            return told_at[index] if index < len(told_at) else inf

        history = self._seen.leaders[partition]
        believed: dict[str, list[Span]] = {}
        for index, (since, host) in enumerate(history):
            until = told_after(history[index + 1][0]) if index + 1 < len(history) else inf
            if host is not None:
                believed.setdefault(host, []).append((since, until))
        for request, answer in self._good_metadata():
            leader = answer.leaders.get(partition, NO_LEADER)
            if not answer.is_true and leader != NO_LEADER:
                until = told_after(request.ended_at)
                believed.setdefault(host_of(leader), []).append((request.ended_at, until))
        return believed

    # -- what the client must know ---

    def _identified_at(self) -> float:
        """When the idempotent producer has its id."""
        if not self._case.is_idempotent:
            return 0.0
        for request in self._answers(ApiKey.INIT_PRODUCER_ID):
            if request.answer is not None and not request.answer.is_error:
                return request.ended_at
        return inf

    def _leader_known(self, partition: int) -> list[Span]:
        """When the client must know who leads a partition."""
        changes = [(since, False) for since, _ in self._seen.leaders[partition]]
        changes += [(at, False) for at in (*self._forgotten, *self._begun_anew)]
        changes += [(at, False) for at in self._lost_sight_of(partition)]
        changes += [(at, True) for at in self._told_of_leader(partition)]
        return _spans_of(changes)

    def _lost_sight_of(self, partition: int) -> Iterator[float]:
        """When an answer left the leader's broker out, as one does that is out of date."""
        history = self._seen.leaders[partition]
        for request in self._answers(ApiKey.METADATA):
            answer = request.answer
            if answer is not None and not answer.is_error:
                since = bisect_right(history, request.ended_at, key=lambda change: change[0]) - 1
                if history[max(since, 0)][1] not in answer.brokers:
                    yield request.ended_at

    def _told_of_leader(self, partition: int) -> Iterator[float]:
        """When the client was told who leads a partition, and it was still true when it heard of it."""
        changed_at = [since for since, _ in self._seen.leaders[partition]]
        for request, answer in self._good_metadata():
            is_current = bisect_right(changed_at, answer.at) == bisect_right(changed_at, request.ended_at)
            has_leader = answer.leaders.get(partition, NO_LEADER) != NO_LEADER
            if answer.is_true and is_current and has_leader:
                yield request.ended_at

    def _topic_known(self) -> dict[int, list[Span]]:
        """By partition, and for -1 of any: when the client must know that it can be sent to."""
        known: dict[int, list[Span]] = {}
        for partition in (-1, *self._seen.leaders):
            changes = [(at, False) for at in self._forgotten]
            changes += [
                (request.ended_at, partition < 0 or partition in answer.leaders)
                for request, answer in self._good_metadata()
            ]
            known[partition] = _spans_of(changes)
        return known

    def _good_metadata(self) -> Iterator[tuple[Request, Answer]]:
        for request in self._answers(ApiKey.METADATA):
            answer = request.answer
            if answer is None or answer.is_error or answer.topic_code != 0:
                continue
            if request.ended_at not in self._forgotten:
                yield request, answer

    def _forgettings(self) -> Iterator[float]:
        """When the client may forget the topic: an error says so, or nobody used it for `metadata.max.idle.ms`."""
        is_first = True
        for request in self._answers(ApiKey.METADATA):
            answer = request.answer
            if answer is None or answer.is_error:
                continue
            at = request.ended_at
            last_use = bisect_right(self._used, at) - 1
            is_idle = last_use < 0 or self._used[last_use] <= at - self._config.metadata_max_idle
            if answer.topic_code or (is_idle and not is_first):
                yield at
            is_first = False

    def _new_beginnings(self) -> Iterator[float]:
        """When the client may forget the leaders, and begin with the bootstrap servers (KIP-899, KIP-1102)."""
        trigger = self._config.metadata_rebootstrap_trigger
        events: list[tuple[float, str, Answer | None]] = [
            (at, host, None) for at, host in self._seen.failures
        ]
        events += [
            (r.ended_at, r.host, r.answer) for r in self._answers(ApiKey.METADATA) if r.answer is not None
        ]
        failed_at: dict[str, float] = {}
        brokers: frozenset[str] = frozenset()
        answered_at = 0.0
        for at, host, answer in sorted(events, key=lambda event: event[0]):
            if at > answered_at + trigger:
                yield answered_at + trigger
            if answer is None:
                failed_at[host] = at
                if all(failed_at.get(broker, -inf) > at - self._pause for broker in brokers):
                    yield at
            elif answer.is_error:
                yield at
            else:
                answered_at = at
                brokers = answer.brokers

    def _answers(self, api: ApiKey) -> Iterator[Request]:
        return (request for request in self._seen.answers if request.api == api)


class _MemoryBound:
    """The most that all records can hold: each a batch of its own."""

    def __init__(self, entries: Iterable[Entry], config: ProducerConfig) -> None:
        changes: list[tuple[float, int]] = []
        for entry in entries:
            size = max(config.batch_size, len(entry.value) + _OVERHEAD)
            changes.append((entry.offered_at, size))
            if entry.accepted_at is None:
                changes.append((entry.answered_at or inf, -size))
            elif entry.outcomes:
                # What was given up while it was on its way is held until its connection is gone.
                given_up = entry.outcomes[0][1] is not None
                held = config.request_timeout + 10 if given_up else 0.0
                changes.append((entry.settled_at + held, -size))
        changes.sort()
        self._times = [at for at, _ in changes]
        self._held = list(accumulate(size for _, size in changes))
        self._total = config.buffer_memory

    def lasts(self, at: float) -> bool:
        """Whether there must be memory for all that was offered, and for what is offered at once.

        When a topic becomes known, the tasks that waited for it run one after the other, and send again. Which of
        them gets the last memory in that instant is no wait for nothing.
        """
        first = bisect_right(self._times, at)
        last = bisect_right(self._times, at + AT_ONCE)
        return all(held <= self._total for held in self._held[max(first - 1, 0) : last])


def _spans_of(changes: list[tuple[float, bool]]) -> list[Span]:
    """The cover of the times after a change to `True` and before the next to `False`, which comes first."""
    spans = []
    since: float | None = None
    for at, is_true in sorted(changes):
        if is_true and since is None:
            since = at
        elif not is_true and since is not None:
            spans.append((since, at))
            since = None
    if since is not None:
        spans.append((since, inf))
    return merged(spans)


def check_liveness(
    seen: Observations,
    case: Case,
    entries: Iterable[Entry],
    flushes: Iterable[float],
    accuse: Callable[[str, str], None],
) -> None:
    """Accuse every wait of a run that nothing explains."""
    config = config_of(seen.simulation, case.settings)
    Liveness(seen, case, config, entries, flushes).check(accuse)
