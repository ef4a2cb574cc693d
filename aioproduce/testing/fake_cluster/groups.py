"""Consumer groups: the classic protocol, as far as consumers need it to share a topic and commit offsets.

Used by `apis` (JoinGroup, SyncGroup, Heartbeat, LeaveGroup) and by `offset_apis` (who may commit). The coordinator
of every group is the running broker with the lowest id, and groups survive its change. Not modelled: static
membership (`group.instance.id` is echoed and has no effect), KIP-848's new protocol, expiry of offsets.

States of a group: EMPTY -> PREPARING -> COMPLETING -> STABLE, as in Kafka. From each of them, a member that joins,
leaves or falls silent leads to PREPARING, and the last one that leaves to EMPTY.

Invariants:
1. In PREPARING all JoinGroups are answered when the last member has joined, or when the longest rebalance timeout
   is over; members that have not joined by then are removed.
2. In COMPLETING every SyncGroup is answered when the leader's has arrived.
3. A member that neither sends heartbeats nor waits in JoinGroup is removed after its session timeout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.exchange import Answer, Body, Exchange, Outcome

if TYPE_CHECKING:
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.timers import Timer, Timers

_FIRST_VERSION_WITH_MEMBER_ID_REQUIRED: Final = 4
# group.max.session.timeout.ms; there is no minimum here, so that tests need not wait for six seconds.
_MAX_SESSION_TIMEOUT_MS: Final = 1_800_000


class GroupPhase(Enum):
    """The phase of a group's rebalance."""

    EMPTY = auto()
    PREPARING = auto()
    COMPLETING = auto()
    STABLE = auto()


@final
@dataclass(slots=True, eq=False)
class Member:
    """One consumer of a group."""

    member_id: str
    group_instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    protocols: list[tuple[str, bytes]]
    alive_until: float
    join: Exchange | None = None
    sync: Exchange | None = None
    assignment: bytes = b""


@final
@dataclass(slots=True, eq=False)
class Group:
    """One consumer group."""

    group_id: str
    phase: GroupPhase = GroupPhase.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol_name: str | None = None
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    pending_member_ids: dict[str, None] = field(default_factory=dict)
    rebalance_timer: Timer | None = None


@final
@dataclass(slots=True, eq=False, repr=False)
class GroupCoordinator:
    """All groups of the cluster.

    Attributes:
        groups: Every group that was ever named in a join or commit.
    """

    _state: ClusterState
    _timers: Timers
    _answer: Answer
    groups: dict[str, Group] = field(default_factory=dict)
    _member_count: int = 0

    # The group protocol

    def join(self, exchange: Exchange, now: float) -> Body | Outcome:
        """Handle JoinGroup, which is answered when the rebalance has all its members."""
        body = exchange.body
        code = self._not_here(exchange)
        if code == ErrorCode.none and not 0 < body["session_timeout"] <= _MAX_SESSION_TIMEOUT_MS:
            code = ErrorCode.invalid_session_timeout
        if code != ErrorCode.none:
            return _join_error(code)
        group = self.groups.setdefault(body["group_id"], Group(body["group_id"]))
        member_id = body["member_id"]
        if not member_id:
            member_id = self._new_member_id(exchange)
            if exchange.api_version >= _FIRST_VERSION_WITH_MEMBER_ID_REQUIRED:
                group.pending_member_ids[member_id] = None
                return _join_error(ErrorCode.member_id_required, member_id)
        elif member_id not in group.members and member_id not in group.pending_member_ids:
            return _join_error(ErrorCode.unknown_member_id)
        protocols = [(protocol["name"], protocol["metadata"]) for protocol in body["protocols"]]
        if not _is_compatible(group, member_id, body["protocol_type"], protocols):
            return _join_error(ErrorCode.inconsistent_group_protocol)
        group.pending_member_ids.pop(member_id, None)
        return self._add_member(group, member_id, protocols, exchange, now)

    def sync(self, exchange: Exchange, now: float) -> Body | Outcome:
        """Handle SyncGroup, which is answered when the leader has sent the assignments."""
        group, member, code = self._find(exchange)
        if code != ErrorCode.none or group is None or member is None:
            return {"error_code": code, "assignment": b"", "protocol_type": None, "protocol_name": None}
        self._is_alive(member, now)
        if group.phase is GroupPhase.PREPARING:
            return _sync_answer(group, member, ErrorCode.rebalance_in_progress)
        if group.phase is GroupPhase.STABLE:
            return _sync_answer(group, member, ErrorCode.none)
        member.sync = exchange
        if member.member_id == group.leader:
            given = {entry["member_id"]: entry["assignment"] for entry in exchange.body["assignments"]}
            group.phase = GroupPhase.STABLE
            for other in tuple(group.members.values()):
                other.assignment = given.get(other.member_id, b"")
                waiting, other.sync = other.sync, None
                if waiting is not None:
                    self._answer(waiting, _sync_answer(group, other, ErrorCode.none), now)
        return Outcome.LATER

    def heartbeat(self, exchange: Exchange, now: float) -> Body:
        """Answer Heartbeat, with whether a rebalance is in progress."""
        group, member, code = self._find(exchange)
        if member is not None:
            self._is_alive(member, now)
        if code == ErrorCode.none and group is not None and group.phase is GroupPhase.PREPARING:
            code = ErrorCode.rebalance_in_progress
        return {"error_code": code}

    def leave(self, exchange: Exchange, now: float) -> Body:
        """Handle LeaveGroup for one member, or several from v3 on."""
        body = exchange.body
        code = self._not_here(exchange)
        leaving = body.get("members") or [{"member_id": body.get("member_id", ""), "group_instance_id": None}]
        group = self.groups.get(body["group_id"])
        results = []
        for entry in leaving if code == ErrorCode.none else ():
            is_known = group is not None and entry["member_id"] in group.members
            if group is not None and is_known:
                self._remove(group, entry["member_id"], now)
            results.append(
                {
                    "member_id": entry["member_id"],
                    "group_instance_id": entry["group_instance_id"],
                    "error_code": ErrorCode.none if is_known else ErrorCode.unknown_member_id,
                }
            )
        if "members" not in body and results:
            code = results[0]["error_code"]
        return {"error_code": code, "members": results}

    # Commits

    def check_commit(self, exchange: Exchange, now: float) -> int:
        """Check whether a member, or a consumer with its own assignment, may commit; return an error code."""
        body = exchange.body
        code = self._not_here(exchange)
        if code != ErrorCode.none:
            return code
        group = self.groups.setdefault(body["group_id"], Group(body["group_id"]))
        generation = body["generation_id_or_member_epoch"]
        if generation < 0 and not body["member_id"]:
            return ErrorCode.unknown_member_id if group.members else ErrorCode.none
        _, member, code = self._find(exchange, generation)
        if member is not None:
            self._is_alive(member, now)
        return code

    def check_transactional_commit(self, exchange: Exchange) -> int:
        """Check whether the group fits a transaction's TxnOffsetCommit (KIP-447); return an error code.

        Old producers name neither a member nor a generation, and may always commit.
        """
        body = exchange.body
        code = self._not_here(exchange)
        if code != ErrorCode.none:
            return code
        member_id, generation = body.get("member_id", ""), body.get("generation_id", -1)
        group = self.groups.get(body["group_id"])
        if group is None:
            if generation >= 0:
                return ErrorCode.illegal_generation
            group = self.groups[body["group_id"]] = Group(body["group_id"])
        if generation < 0 and (group.phase is GroupPhase.EMPTY or not member_id):
            return ErrorCode.none
        if member_id not in group.members:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if generation == group.generation else ErrorCode.illegal_generation

    def refusal(self, group_id: str, broker_id: int) -> int:
        """Return the error code for a group that is denied or that another broker coordinates; else 0."""
        if self._state.is_group_denied(group_id):
            return ErrorCode.group_authorization_failed
        if broker_id != self._state.controller_id:
            return ErrorCode.not_coordinator
        return ErrorCode.none

    # Internals

    def _not_here(self, exchange: Exchange) -> int:
        group_id = exchange.body["group_id"]
        return self.refusal(group_id, exchange.broker_id) or (
            ErrorCode.none if group_id else ErrorCode.invalid_group_id
        )

    def _find(
        self, exchange: Exchange, generation: int | None = None
    ) -> tuple[Group | None, Member | None, int]:
        code = self._not_here(exchange)
        if code != ErrorCode.none:
            return None, None, code
        group = self.groups.get(exchange.body["group_id"])
        member = None if group is None else group.members.get(exchange.body["member_id"])
        if group is None or member is None:
            return group, None, ErrorCode.unknown_member_id
        claimed = exchange.body["generation_id"] if generation is None else generation
        if claimed != group.generation:
            return group, None, ErrorCode.illegal_generation
        return group, member, ErrorCode.none

    def _new_member_id(self, exchange: Exchange) -> str:
        self._member_count += 1
        # Shortened, so that it fits into the two length bytes of old answers.
        return f"{(exchange.client_id or 'consumer')[:200]}-{self._member_count:08d}"

    def _add_member(
        self, group: Group, member_id: str, protocols: list[tuple[str, bytes]], exchange: Exchange, now: float
    ) -> Body | Outcome:
        body = exchange.body
        session_timeout = body["session_timeout"] / 1000
        known = group.members.get(member_id)
        has_changed = known is None or known.protocols != protocols
        if known is None:
            known = group.members[member_id] = Member(
                member_id, body.get("group_instance_id"), session_timeout, session_timeout, protocols, now
            )
            group.protocol_type = body["protocol_type"]
            self._timers.call_at(now + session_timeout, lambda at: self._expire(group, member_id, at))
        known.protocols = protocols
        known.session_timeout = session_timeout
        known.rebalance_timeout = body.get("rebalance_timeout", body["session_timeout"]) / 1000
        self._is_alive(known, now)
        is_settled = group.phase in (GroupPhase.COMPLETING, GroupPhase.STABLE)
        is_leader_again = group.phase is GroupPhase.STABLE and member_id == group.leader
        if is_settled and not has_changed and not is_leader_again:
            return _join_answer(group, known)
        known.join = exchange
        if group.phase is not GroupPhase.PREPARING:
            self._prepare(group, now)
        self._complete_if_all_joined(group, now)
        return Outcome.LATER

    def _prepare(self, group: Group, now: float) -> None:
        group.phase = GroupPhase.PREPARING
        for member in tuple(group.members.values()):
            waiting, member.sync = member.sync, None
            if waiting is not None:
                self._answer(waiting, _sync_answer(group, member, ErrorCode.rebalance_in_progress), now)
        longest = max(member.rebalance_timeout for member in group.members.values())
        group.rebalance_timer = self._timers.call_at(now + longest, lambda at: self._drop_absent(group, at))

    def _drop_absent(self, group: Group, now: float) -> None:
        for member in tuple(group.members.values()):
            if member.join is None:
                del group.members[member.member_id]
        self._complete_if_all_joined(group, now)

    def _complete_if_all_joined(self, group: Group, now: float) -> None:
        if group.phase is not GroupPhase.PREPARING:
            return
        if any(member.join is None for member in group.members.values()):
            return
        if group.rebalance_timer is not None:
            group.rebalance_timer.cancel()
            group.rebalance_timer = None
        group.generation += 1
        if not group.members:
            group.phase = GroupPhase.EMPTY
            group.leader, group.protocol_name = "", None
            return
        group.phase = GroupPhase.COMPLETING
        if group.leader not in group.members:
            group.leader = next(iter(group.members))
        common = _common_protocols(list(group.members.values()))
        group.protocol_name = next(
            name for name, _ in group.members[group.leader].protocols if name in common
        )
        for member in tuple(group.members.values()):
            exchange, member.join = member.join, None
            self._is_alive(member, now)
            if exchange is not None:
                self._answer(exchange, _join_answer(group, member), now)

    def _remove(self, group: Group, member_id: str, now: float) -> None:
        member = group.members.pop(member_id)
        if member.join is not None:
            self._answer(member.join, _join_error(ErrorCode.unknown_member_id), now)
        if member.sync is not None:
            self._answer(member.sync, _sync_answer(group, member, ErrorCode.unknown_member_id), now)
        if not group.members:
            group.phase = GroupPhase.PREPARING
        elif group.phase is not GroupPhase.PREPARING:
            self._prepare(group, now)
        self._complete_if_all_joined(group, now)

    def _is_alive(self, member: Member, now: float) -> None:
        member.alive_until = now + member.session_timeout

    def _expire(self, group: Group, member_id: str, now: float) -> None:
        """Check whether the member has been silent for too long; otherwise check again when that is possible."""
        member = group.members.get(member_id)
        if member is None:
            return
        if member.join is not None or member.sync is not None:
            self._is_alive(member, now)
        if member.alive_until <= now:
            self._remove(group, member_id, now)
        else:
            self._timers.call_at(member.alive_until, lambda at: self._expire(group, member_id, at))


def _common_protocols(members: list[Member]) -> list[str]:
    names = [name for name, _ in members[0].protocols]
    for member in members[1:]:
        offered = [name for name, _ in member.protocols]
        names = [name for name in names if name in offered]
    return names


def _is_compatible(
    group: Group, member_id: str, protocol_type: str, protocols: list[tuple[str, bytes]]
) -> bool:
    if not protocols or not protocol_type:
        return False
    others = [member for member in group.members.values() if member.member_id != member_id]
    if not others:
        return True
    offered = [name for name, _ in protocols]
    return protocol_type == group.protocol_type and any(name in offered for name in _common_protocols(others))


def _join_error(code: int, member_id: str = "") -> Body:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": "",
        "leader": "",
        "skip_assignment": False,
        "member_id": member_id,
        "members": (),
    }


def _join_answer(group: Group, member: Member) -> Body:
    is_leader = member.member_id == group.leader
    return {
        "error_code": ErrorCode.none,
        "generation_id": group.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "leader": group.leader,
        "skip_assignment": False,
        "member_id": member.member_id,
        "members": [
            {
                "member_id": other.member_id,
                "group_instance_id": other.group_instance_id,
                "metadata": dict(other.protocols)[group.protocol_name or ""],
            }
            for other in (group.members.values() if is_leader else ())
        ],
    }


def _sync_answer(group: Group, member: Member, code: int) -> Body:
    return {
        "error_code": code,
        "assignment": member.assignment if code == ErrorCode.none else b"",
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
    }
