"""All connections together: back-off, choice of a broker, time-outs, losses; and a random driver against a model.

Java's scenarios that these tests, those of `test_broker_connection.py` (BC), and the wire's cover:

NetworkClientTest
    SendToUnreadyNode                          BC nothing_is_sent_before_it_is_ready
    SimpleRequestResponse (3 variants)         BC a_request_comes_back_with_its_answer; static nodes and "no broker
                                               discovery" are settings we do not have
    DnsLookupFailure                           an_attempt_that_fails_is_a_failure_like_any_other; names are resolved
                                               by the driver
    Close                                      close_gives_back_what_was_in_flight_when_it_is_lost
    UnsupportedVersionDuringInternalMetadataRequest   BC a_broker_too_old_is_refused_with_its_versions
    InvalidApiVersionsRequest                  BC any_other_error_ends_the_connection
    ApiVersionsRequest                         BC first_it_asks_for_the_brokers_versions...
    UnsupportedApiVersionsRequestWith/WithoutVersionProvidedByTheBroker   BC a_refused_version_is_asked_again...
    RequestTimeout, DefaultRequestTimeout      BC the_oldest_request_ends_the_connection...; a_request_time_out_...
    ConnectionSetupTimeout                     the_set_up_time_out_doubles_with_each_failed_set_up
    ConnectionTimeoutAfterThrottling           BC requests_do_not_time_out_while_the_broker_mutes_the_connection
    ConnectionThrottling                       BC a_throttled_answer_...; the_end_of_a_throttling_wakes_the_node
    ThrottlingNotEnabledForConnectionToOlderBroker   BC an_older_broker_has_waited_itself
    LeastLoadedNode                            least_loaded_* below
    HasNodeAvailableOrConnectionReady          all_unavailable_*; a throttled broker counts as available here: it is
                                               there, and another bootstrap would not find a better one
    LeastLoadedNodeProvideDisconnectedNodesPrioritizedByLastConnectionTimestamp
                                               least_loaded_tries_the_one_that_was_tried_longest_ago
    LeastLoadedNodeConsidersThrottledConnections   least_loaded_passes_over_a_throttled_one
    AuthenticationFailureWithInFlightMetadataRequest   left out: authentication comes in a later issue
    ConnectionDelay* (6 variants)              next_attempt_at_*, reconnect_back_off_*; a constant back-off in
                                               a_constant_back_off
    DisconnectDuringUserMetadataRequest, CallDisconnect   close_gives_back_...
    ServerDisconnectAfterInternalApiVersionRequest     a_loss_during_negotiation_counts_as_a_failure
    ClientDisconnectAfterInternalApiVersionRequest     close_gives_back_... (negotiating)
    DisconnectWithMultipleInFlights            BC a_loss_gives_back_all_requests_in_order_but_not_our_own
    CorrelationId                              BC correlation_ids_stay_within_an_int32 (no range is kept
                                               for SASL: one counter serves a whole connection)
    ReconnectAfterAddressChange, FailedConnectionToFirstAddress(AfterReconnect)   left out here: the addresses of a
                                               name are the driver's; see an_address_change_* for advertised ones
    CloseConnectingNode                        closing_an_attempt
    ConnectionDoesNotRemainStuckInCheckingApiVersionsStateIfChannelNeverBecomesReady
                                               BC a_broker_that_does_not_tell_its_versions_is_given_up[False]
    TelemetryRequest                           test_sender_telemetry.py, where the Sender asks and pushes

ClusterConnectionStatesTest
    ClusterConnectionStateChanges              the_life_of_a_connection
    MultipleNodeConnectionStates               nodes_do_not_touch_each_other
    AuthorizationFailed                        left out: as above
    RemoveNode                                 retain_*
    MaxReconnectBackoff, ExponentialReconnectBackoff   reconnect_back_off_*
    Throttled                                  BC the_end_of_the_throttling_never_comes_earlier
    SingleIP, MultipleIPs, HostResolveChange, SkipLastAttemptedIp   left out: the driver resolves
    NodeWithNewHostname                        an_address_change_*
    IsPreparingConnection                      the_life_of_a_connection
    ExponentialConnectionSetupTimeout          the_set_up_time_out_doubles_with_each_failed_set_up
    TimedOutConnections                        set_ups_time_out_each_by_its_own_start

InFlightRequestsTest
    CompleteLastSent                           BC without_an_answer_a_request_is_done_when_its_bytes_are_gone
    ClearAll                                   BC a_loss_gives_back_all_requests_in_order_but_not_our_own
    TimedOutNodes                              a_request_time_out_touches_only_its_connection
    CompleteNext                               BC answers_come_in_order_however_the_bytes_are_cut
    CompleteNextThrowsIfNoInflights            BC an_answer_that_nobody_asked_for_ends_the_connection
    CompleteLastSentThrowsIfNoInFlights        BC without_an_answer_... (nothing to finish gives nothing)

NodeApiVersionsTest
    LatestUsableVersion, UsableVersionLatestVersions   BC latest_usable_version, equal_ranges_give_the_newest_...
    LatestUsableVersionOutOfRange(Low, High), UsableVersionCalculationNoKnownVersions   BC no_usable_version
    VersionsToString, UnsupportedVersionsToString, UnknownApiVersionsToString   BC no_usable_version (what the error
                                               says), apis_that_we_do_not_know_do_no_harm
    ConstructionFromApiVersionsResponse        BC equal_ranges_...; over the wire in BC it_is_ready_when...
    Features                                   left out: a producer without transactions v2 looks at no feature
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aioproduce._native.stats import Windows
from aioproduce.core.cluster.broker_connection import BrokerConnection
from aioproduce.core.cluster.broker_connections import BrokerConnections
from aioproduce.core.cluster.connection_states import ConnectionState, LossCause
from aioproduce.core.effects import Buffer, Close, Connect, Effect, Send
from aioproduce.core.retry import ExponentialBackoff
from aioproduce.errors import UnsupportedVersionError
from aioproduce.metrics import ProducerMetrics
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import BrokerAddress
from tests.askers import named, names
from tests.unit.connection_peer import (
    API_VERSIONS,
    MODERN,
    PRODUCE,
    api_versions_response,
    framed,
    init_producer_id_response,
    request_header,
)

ONE = BrokerAddress(1, "one", 9092)
TWO = BrokerAddress(2, "two", 9092)
THREE = BrokerAddress(3, "three", 9092)
ALL = (ONE, TWO, THREE)

RECONNECT_BACKOFF, RECONNECT_BACKOFF_MAX = 0.05, 1.0
SETUP_TIMEOUT, SETUP_TIMEOUT_MAX = 10.0, 30.0


class World:
    """The connections under test, and a driver that does what it is told at once."""

    def __init__(self, **overrides: Any) -> None:
        self.offset = 0
        keywords: dict[str, Any] = {
            "client_id": "tests",
            "max_in_flight": 5,
            "request_timeout": 30.0,
            "connections_max_idle": 540.0,
            # random() = 0.5 is the middle of the jitter: no jitter.
            "setup_backoff": ExponentialBackoff(SETUP_TIMEOUT, SETUP_TIMEOUT_MAX, random=lambda: 0.5),
            "reconnect_backoff": ExponentialBackoff(
                RECONNECT_BACKOFF, RECONNECT_BACKOFF_MAX, random=lambda: 0.5
            ),
            "random": lambda count: self.offset % count,
            "metrics": ProducerMetrics(Windows()),
        }
        self.connections = BrokerConnections(**(keywords | overrides))

    def drain(self) -> list[Effect]:
        effects = list(self.connections.effects)
        self.connections.effects.clear()
        return effects

    def connecting(self, address: BrokerAddress, now: float) -> int:
        """Starts a connection; gives its id."""
        assert self.connections.ensure(address, now) is None
        (effect,) = self.drain()
        assert isinstance(effect, Connect)
        assert (effect.host, effect.port) == (address.host, address.port)
        return effect.connection_id

    def ready(
        self, address: BrokerAddress, now: float, offered: dict[int, tuple[int, int]] | None = None
    ) -> BrokerConnection:
        connection_id = self.connecting(address, now)
        return self.negotiated(connection_id, now, offered)

    def negotiated(
        self, connection_id: int, now: float, offered: dict[int, tuple[int, int]] | None = None
    ) -> BrokerConnection:
        self.connections.connection_made(connection_id, now)
        self.connections.writable(connection_id, now)
        self.drain()
        answer = api_versions_response(0, offered=MODERN if offered is None else offered)
        assert self.connections.receive_data(connection_id, answer, now) == []
        connection = self.connections.connection_by_id(connection_id)
        assert connection is not None
        return connection

    def send(self, connection: BrokerConnection, context: Any, now: float, timeout: float = 30.0) -> int:
        """Sends a request whose bytes leave at once; gives its correlation id."""
        connection.send(ApiKey.INIT_PRODUCER_ID, encode, context, now, timeout=timeout)
        self.connections.writable(connection.connection_id, now)
        return connection.in_flight[-1].correlation_id

    def fail(self, connection_id: int, now: float, error: BaseException | None = None) -> None:
        self.connections.connection_lost(connection_id, error, now)


def encode(version: int, correlation_id: int) -> list[Buffer]:
    header = b"\0\x16" + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big")
    return [framed(header + b"\xff\xff")]


# The life of a connection


def test_the_life_of_a_connection() -> None:
    world = World()
    connections = world.connections
    assert connections.can_connect(1, 0.0)
    assert connections.next_attempt_at(1) == float("-inf")
    assert connections.connection(1) is None
    assert connections.next_timer() is None

    connection_id = world.connecting(ONE, 0.0)
    connection = connections.connection(1)
    assert connection is not None
    assert connection.state is ConnectionState.CONNECTING
    assert not connections.can_connect(1, 0.0)
    assert connections.next_attempt_at(1) is None
    assert connections.ensure(ONE, 1.0) is None
    assert world.drain() == []  # one attempt at a time

    connections.connection_made(connection_id, 1.0)
    assert connection.connected_at == 1.0
    assert connections.ensure(ONE, 1.0) is None
    assert not connections.is_ready(1, 1.0)
    connections.writable(connection_id, 1.0)
    connections.receive_data(connection_id, api_versions_response(0), 2.0)
    assert connections.is_ready(1, 2.0)
    assert connections.ensure(ONE, 2.0) is connection

    world.drain()
    lost = connections.connection_lost(connection_id, ConnectionResetError("reset"), 3.0)
    assert lost is not None
    assert (lost.connection, lost.requests, lost.cause) == (connection, [], LossCause.DISCONNECTED)
    assert lost.reason == "connection to one:9092 (node 1) lost: reset"
    assert connections.last_error(1) == lost.reason
    assert len(connections) == 0
    assert not connections.is_ready(1, 3.0)
    assert not connections.can_connect(1, 3.0)
    assert connections.can_connect(1, 3.0 + RECONNECT_BACKOFF)

    world.ready(ONE, 4.0)
    assert connections.last_error(1) is None


def test_nodes_do_not_touch_each_other() -> None:
    world = World()
    first = world.connecting(ONE, 0.0)
    second = world.ready(TWO, 0.0)
    world.fail(first, 1.0)
    assert not world.connections.can_connect(1, 1.0)
    assert world.connections.ensure(TWO, 1.0) is second
    assert world.connections.last_error(2) is None


def test_facts_about_unknown_and_former_connections_are_ignored() -> None:
    world = World()
    connections = world.connections
    former = world.connecting(ONE, 0.0)
    world.fail(former, 1.0)
    for connection_id in (former, 999):
        connections.connection_made(connection_id, 2.0)
        assert connections.receive_data(connection_id, b"\xff" * 20, 2.0) == []
        assert connections.writable(connection_id, 2.0) == []
        assert connections.connection_lost(connection_id, None, 2.0) is None
        connections.close(connection_id, "no such thing", 2.0)
    assert world.drain() == []
    assert len(connections) == 0


def test_versions_belong_to_the_connection_not_to_the_node() -> None:
    world = World()
    newer = world.ready(ONE, 0.0)
    world.fail(newer.connection_id, 1.0)
    older = world.ready(ONE, 2.0, offered={**MODERN, PRODUCE: (0, 7)})
    assert newer.api_versions is not None
    assert older.api_versions is not None
    assert newer.api_versions.version(ApiKey.PRODUCE) == 11
    assert older.api_versions.version(ApiKey.PRODUCE) == 7


def test_open_are_those_that_are_connected_and_not_closing() -> None:
    world = World()
    assert world.connections.open_count == 0
    connection_id = world.connecting(ONE, 0.0)
    assert world.connections.open_count == 0, "it is not there yet"
    one = world.negotiated(connection_id, 1.0)
    assert world.connections.open_count == 1
    one.close("enough", LossCause.REQUESTED)
    assert world.connections.open_count == 0


def test_effects_of_a_lost_connection_are_taken_back() -> None:
    world = World()
    one, two = world.ready(ONE, 0.0), world.ready(TWO, 0.0)
    one.send(ApiKey.INIT_PRODUCER_ID, encode, named("a"), 1.0, timeout=30.0)
    two.send(ApiKey.INIT_PRODUCER_ID, encode, named("b"), 1.0, timeout=30.0)
    one.close("enough", LossCause.REQUESTED)
    effects = world.connections.effects
    world.connections.connection_lost(one.connection_id, None, 1.0)
    assert world.connections.effects is effects
    (left,) = effects
    assert isinstance(left, Send)
    assert left.connection_id == two.connection_id


# Back-off


def test_reconnect_back_off_doubles_up_to_its_maximum() -> None:
    world = World()
    now = 100.0
    pauses: list[float] = []
    for _ in range(8):
        world.fail(world.connecting(ONE, now), now)
        at = world.connections.next_attempt_at(1)
        assert at is not None
        pauses.append(round(at - now, 9))
        assert not world.connections.can_connect(1, at - 0.001)
        assert world.connections.ensure(ONE, at - 0.001) is None
        assert world.drain() == []
        now = at
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("random", "expected"), [(0.0, 0.04), (0.75, 0.055), (0.999999, 0.06)])
def test_reconnect_back_off_has_a_jitter_of_a_fifth(random: float, expected: float) -> None:
    world = World(reconnect_backoff=ExponentialBackoff(0.05, 1.0, random=lambda: random))
    world.fail(world.connecting(ONE, 0.0), 10.0)
    assert world.connections.next_attempt_at(1) == pytest.approx(10.0 + expected, abs=1e-6)


def test_a_constant_back_off() -> None:
    world = World(reconnect_backoff=ExponentialBackoff(0.05, 0.05, random=lambda: 0.0))
    for now in (1.0, 2.0, 3.0):
        world.fail(world.connecting(ONE, now), now)
        assert world.connections.next_attempt_at(1) == now + 0.05


def test_the_back_off_begins_anew_after_a_negotiation_not_after_a_mere_connection() -> None:
    world = World()
    for now in (1.0, 2.0, 3.0):
        connection_id = world.connecting(ONE, now)
        world.connections.connection_made(connection_id, now)
        world.fail(connection_id, now)
        world.drain()
    assert world.connections.next_attempt_at(1) == pytest.approx(3.2)
    world.fail(world.ready(ONE, 4.0).connection_id, 5.0)
    assert world.connections.next_attempt_at(1) == 5.0 + RECONNECT_BACKOFF


def test_a_loss_during_negotiation_counts_as_a_failure() -> None:
    world = World()
    connection_id = world.connecting(ONE, 0.0)
    world.connections.connection_made(connection_id, 0.0)
    lost = world.connections.connection_lost(connection_id, None, 1.0)
    assert lost is not None
    assert lost.requests == []
    assert "before it reported its versions" in lost.reason
    assert not world.connections.can_connect(1, 1.0)


def test_an_attempt_that_fails_is_a_failure_like_any_other() -> None:
    world = World()
    world.fail(world.connecting(ONE, 0.0), 1.0, OSError("Name or service not known"))
    assert world.connections.last_error(1) == "cannot connect to one:9092 (node 1): Name or service not known"
    assert world.connections.next_attempt_at(1) == 1.0 + RECONNECT_BACKOFF
    world.connecting(ONE, 2.0)


def test_who_was_refused_is_named_when_the_back_off_has_passed() -> None:
    world = World()
    world.fail(world.connecting(ONE, 0.0), 1.0)
    assert world.connections.next_timer() is None  # nobody wants it
    assert world.connections.ensure(ONE, 1.01) is None
    assert world.connections.next_timer() == 1.05
    assert world.connections.handle_timer(1.04) == []
    assert world.connections.handle_timer(1.05) == [1]
    assert world.connections.next_timer() is None
    world.connecting(ONE, 1.05)


def test_who_got_a_connection_meanwhile_is_not_named() -> None:
    world = World()
    world.fail(world.connecting(ONE, 0.0), 1.0)
    assert world.connections.ensure(ONE, 1.01) is None
    assert world.connections.ensure(ONE, 1.06) is None
    assert world.connections.next_timer() == 1.06 + 2 * SETUP_TIMEOUT
    assert world.connections.handle_timer(2.0) == []


# Set-up time-outs (KIP-601)


def test_the_set_up_time_out_doubles_with_each_failed_set_up() -> None:
    world = World()
    now = 0.0
    timeouts: list[float] = []
    for _ in range(4):
        world.connections.ensure(ONE, now)
        (effect,) = world.drain()
        assert isinstance(effect, Connect)
        timeouts.append(effect.timeout)
        world.connections.handle_timer(now + effect.timeout)
        assert world.drain() == [Close(effect.connection_id)]
        now += effect.timeout + RECONNECT_BACKOFF_MAX
        world.fail(effect.connection_id, now)
    assert timeouts == [10.0, 20.0, 30.0, 30.0]
    assert world.connections.last_error(1) is not None

    connection_id = world.connecting(ONE, now)
    world.connections.connection_made(connection_id, now)  # a set-up that succeeded, whatever comes then
    world.drain()
    world.fail(connection_id, now)
    world.connections.ensure(ONE, now + RECONNECT_BACKOFF_MAX)
    (effect,) = world.drain()
    assert isinstance(effect, Connect)
    assert effect.timeout == 10.0


def test_set_ups_time_out_each_by_its_own_start() -> None:
    world = World()
    first = world.connecting(ONE, 0.0)
    second = world.connecting(TWO, 5.0)
    third = world.connecting(THREE, 6.0)
    world.connections.connection_made(third, 7.0)
    world.drain()
    assert world.connections.next_timer() == 10.0
    world.connections.handle_timer(10.0)
    assert world.drain() == [Close(first)]
    world.connections.handle_timer(20.0)
    assert world.drain() == [Close(second)]


# Closing and losing


def test_after_a_close_a_new_connection_comes_by_the_back_off_while_the_old_one_holds_its_requests() -> None:
    world = World()
    old = world.ready(ONE, 0.0)
    world.send(old, "held", 1.0)
    world.drain()
    world.connections.handle_timer(31.0)
    assert world.drain() == [Close(old.connection_id)]
    assert world.connections.connection(1) is None
    assert world.connections.connection_by_id(old.connection_id) is old
    assert world.connections.ensure(ONE, 31.01) is None
    assert world.drain() == []

    new = world.ready(ONE, 31.05)
    assert new is not old
    assert len(world.connections) == 2
    assert world.connections.receive_data(old.connection_id, init_producer_id_response(1), 32.0) == []
    lost = world.connections.connection_lost(old.connection_id, None, 33.0)
    assert lost is not None
    assert names(lost.requests) == ["held"]
    assert lost.cause is LossCause.REQUEST_TIMEOUT
    assert "request.timeout.ms" in lost.reason
    assert world.connections.ensure(ONE, 33.0) is new  # untouched by the old one's end
    assert len(world.connections) == 1


def test_a_request_time_out_touches_only_its_connection() -> None:
    world = World()
    one, two = world.ready(ONE, 0.0), world.ready(TWO, 0.0)
    world.send(one, "one", 1.0, timeout=50.0)
    world.send(two, "two", 1.0, timeout=20.0)
    world.drain()
    world.connections.handle_timer(10.0)
    world.connections.handle_timer(20.9)
    assert world.drain() == []
    world.connections.handle_timer(21.0)
    assert world.drain() == [Close(two.connection_id)]
    assert one.is_ready


def test_close_gives_back_what_was_in_flight_when_it_is_lost() -> None:
    world = World()
    connection = world.ready(ONE, 0.0)
    world.send(connection, "a", 1.0)
    world.send(connection, "b", 1.0)
    world.drain()
    world.connections.close(connection.connection_id, "asked to", 2.0)
    world.connections.close(connection.connection_id, "asked again", 2.5)
    assert world.drain() == [Close(connection.connection_id)]
    assert world.connections.next_attempt_at(1) == 2.05
    lost = world.connections.connection_lost(connection.connection_id, None, 9.0)
    assert lost is not None
    assert names(lost.requests) == ["a", "b"]
    assert (lost.cause, lost.reason) == (LossCause.REQUESTED, "asked to")
    assert world.connections.next_attempt_at(1) == 2.05  # counted from the close, once


@pytest.mark.parametrize("is_made", [False, True])
def test_closing_an_attempt(is_made: bool) -> None:
    world = World()
    connection_id = world.connecting(ONE, 0.0)
    if is_made:
        world.connections.connection_made(connection_id, 0.0)
        world.drain()
    world.connections.close(connection_id, "enough", 1.0)
    assert world.drain() == [Close(connection_id)]
    lost = world.connections.connection_lost(connection_id, None, 2.0)
    assert lost is not None
    assert lost.requests == []
    world.ready(ONE, 3.0)


def test_after_close_all_nothing_is_opened() -> None:
    world = World()
    one = world.ready(ONE, 0.0)
    two = world.connecting(TWO, 0.0)
    world.fail(world.connecting(THREE, 0.0), 0.0)
    world.connections.ensure(THREE, 0.01)
    world.connections.close_all("the producer is closed", 1.0)
    assert world.drain() == [Close(one.connection_id), Close(two)]
    assert world.connections.next_timer() is None
    for address in ALL:
        assert not world.connections.can_connect(address.node_id, 100.0)
        assert world.connections.ensure(address, 100.0) is None
    assert world.connections.least_loaded(ALL, 100.0) is None
    assert world.drain() == []
    assert world.connections.next_timer() is None
    assert len(world.connections) == 2
    world.fail(one.connection_id, 2.0)
    world.fail(two, 2.0)
    assert len(world.connections) == 0


def test_a_protocol_error_is_a_failure_of_the_node() -> None:
    world = World()
    connection = world.ready(ONE, 0.0)
    world.send(connection, "a", 1.0)
    world.drain()
    assert world.connections.receive_data(connection.connection_id, b"\x80\0\0\0", 2.0) == []
    assert world.drain() == [Close(connection.connection_id)]
    assert world.connections.connection(1) is None
    assert world.connections.next_attempt_at(1) == 2.05
    error = world.connections.last_error(1)
    assert error is not None
    assert error.startswith("one:9092 (node 1): ")
    assert world.connections.fatal_error is None
    lost = world.connections.connection_lost(connection.connection_id, None, 2.0)
    assert lost is not None
    assert names(lost.requests) == ["a"]


def test_a_broker_too_old_is_known_until_it_has_changed() -> None:
    world = World()
    old: dict[int, tuple[int, int]] = {PRODUCE: (0, 2), 3: (0, 2), API_VERSIONS: (0, 0)}
    connection = world.ready(ONE, 0.0, offered=old)
    assert world.drain() == [Close(connection.connection_id)]
    fatal = world.connections.fatal_error
    assert isinstance(fatal, UnsupportedVersionError)
    assert fatal.broker_versions == (0, 2)
    world.fail(connection.connection_id, 0.0)
    world.ready(TWO, 1.0)
    assert world.connections.fatal_error is fatal
    world.ready(ONE, 2.0)
    assert world.connections.fatal_error is None


def test_an_idle_connection_is_closed_without_an_error() -> None:
    world = World(connections_max_idle=60.0)
    connection = world.ready(ONE, 0.0)
    for now in (10.0, 59.0, 60.0):
        world.connections.handle_timer(now)
    assert world.drain() == [Close(connection.connection_id)]
    assert world.connections.last_error(1) is None
    world.fail(connection.connection_id, 60.0)
    world.ready(ONE, 61.0)


# Addresses that change, nodes that go


def test_an_address_change_replaces_the_connection_at_once() -> None:
    world = World()
    old = world.ready(ONE, 0.0)
    world.send(old, "held", 1.0)
    world.drain()
    moved = BrokerAddress(1, "elsewhere", 9093)
    assert world.connections.ensure(moved, 2.0) is None
    close, connect = world.drain()
    assert close == Close(old.connection_id)
    assert isinstance(connect, Connect)
    assert (connect.host, connect.port) == ("elsewhere", 9093)
    new = world.negotiated(connect.connection_id, 3.0)
    assert world.connections.ensure(moved, 3.0) is new
    lost = world.connections.connection_lost(old.connection_id, None, 3.0)
    assert lost is not None
    assert lost.cause is LossCause.ADDRESS_CHANGED
    assert lost.reason == "node 1 moved from one:9092 to elsewhere:9093"
    assert names(lost.requests) == ["held"]
    assert world.connections.ensure(moved, 3.0) is new


def test_an_address_change_forgets_the_failures_of_the_old_one() -> None:
    world = World()
    for now in (0.0, 2.0, 4.0):
        connection_id = world.connecting(ONE, now)
        world.fail(connection_id, now)
    world.connections.ensure(ONE, 4.01)
    moved = BrokerAddress(1, "one", 9093)
    assert world.connections.least_loaded([moved], 4.02) is None
    (connect,) = world.drain()
    assert isinstance(connect, Connect)
    assert (connect.port, connect.timeout) == (9093, SETUP_TIMEOUT)
    world.fail(connect.connection_id, 5.0)
    assert world.connections.next_attempt_at(1) == 5.05


def test_a_new_rack_is_no_new_address() -> None:
    world = World()
    connection = world.ready(ONE, 0.0)
    assert world.connections.ensure(BrokerAddress(1, "one", 9092, "rack-b"), 1.0) is connection


def test_an_address_change_forgets_that_the_old_broker_was_too_old() -> None:
    world = World()
    world.ready(ONE, 0.0, offered={PRODUCE: (0, 2)})
    assert world.connections.fatal_error is not None
    world.connections.ensure(BrokerAddress(1, "new", 9092), 1.0)
    assert world.connections.fatal_error is None


def test_a_node_that_comes_back_is_kept() -> None:
    world = World()
    connection = world.ready(ONE, 0.0)
    world.connections.retain([])
    assert world.connections.ensure(ONE, 1.0) is connection
    world.fail(connection.connection_id, 2.0)
    assert world.connections.next_attempt_at(1) == 2.05


def test_retain_forgets_nodes_that_are_gone() -> None:
    world = World()
    world.fail(world.connecting(ONE, 0.0), 0.0)
    world.connections.ensure(ONE, 0.01)
    two = world.ready(TWO, 0.0)
    three = world.ready(THREE, 0.0)
    world.connections.retain({3})
    assert world.connections.next_attempt_at(1) == float("-inf")
    assert world.connections.last_error(1) is None
    assert world.connections.connection(2) is two  # still of use, for whatever it has in flight
    world.fail(two.connection_id, 1.0)
    world.fail(three.connection_id, 1.0)
    assert world.connections.next_attempt_at(2) == float("-inf")
    assert world.connections.next_attempt_at(3) == 1.05
    assert set(world.connections._nodes) == {3}


def test_many_node_ids_over_time_leave_nothing() -> None:
    world = World()
    for node_id in range(1000):
        address = BrokerAddress(node_id, "one", 9092)
        now = float(node_id)
        connection = world.ready(address, now)
        world.send(connection, node_id, now)
        world.fail(connection.connection_id, now)
        world.connections.ensure(address, now)
        world.connections.retain([node_id])
    assert len(world.connections._nodes) == 1
    assert len(world.connections._by_id) == 0
    assert len(world.connections._deadlines) == 0
    assert len(world.connections._wakeups) == 1
    assert not world.drain()


# Throttling


def test_the_end_of_a_throttling_wakes_the_node() -> None:
    world = World()
    connection = world.ready(ONE, 0.0)
    world.send(connection, "a", 1.0)
    world.send(connection, "b", 1.0)
    world.connections.handle_timer(10.0)
    world.connections.receive_data(connection.connection_id, init_producer_id_response(1, throttle=2.0), 10.0)
    assert not world.connections.is_ready(1, 11.0)
    assert world.connections.next_timer() == 12.0
    world.connections.receive_data(connection.connection_id, init_producer_id_response(2, throttle=4.0), 10.0)
    assert world.connections.handle_timer(12.0) == []
    assert world.connections.next_timer() == 14.0
    assert world.connections.handle_timer(14.0) == [1]
    assert world.connections.is_ready(1, 14.0)


# The least loaded broker


def test_least_loaded_opens_one_connection_first() -> None:
    world = World()
    world.offset = 1
    assert world.connections.least_loaded(ALL, 0.0) is None
    (connect,) = world.drain()
    assert isinstance(connect, Connect)
    assert connect.host == "two"
    assert world.connections.least_loaded(ALL, 1.0) is None
    assert world.drain() == []  # waits for it
    two = world.negotiated(connect.connection_id, 2.0)
    for offset in range(3):
        world.offset = offset
        assert world.connections.least_loaded(ALL, 2.0) is two


def test_least_loaded_has_the_fewest_in_flight() -> None:
    world = World()
    one, two, three = (world.ready(address, 0.0) for address in ALL)
    for connection, count in ((one, 3), (two, 1), (three, 2)):
        for number in range(count):
            world.send(connection, number, 1.0)
    for offset in range(3):
        world.offset = offset
        assert world.connections.least_loaded(ALL, 1.0) is two
    world.connections.receive_data(two.connection_id, init_producer_id_response(1), 1.0)
    assert world.connections.least_loaded(ALL, 1.0) is two
    assert world.connections.least_loaded([ONE, THREE], 1.0) is three


def test_least_loaded_opens_another_one_where_all_are_busy() -> None:
    world = World(max_in_flight=1)
    one = world.ready(ONE, 0.0)
    world.send(one, "busy", 1.0)
    world.drain()
    assert world.connections.least_loaded([ONE, TWO], 1.0) is None
    (connect,) = world.drain()
    assert isinstance(connect, Connect)
    assert connect.host == "two"


def test_least_loaded_passes_over_a_throttled_one() -> None:
    world = World()
    one, two = world.ready(ONE, 0.0), world.ready(TWO, 0.0)
    world.send(one, "a", 1.0)
    world.connections.receive_data(one.connection_id, init_producer_id_response(1, throttle=5.0), 1.0)
    for number in range(4):
        world.send(two, number, 1.0)
    assert world.connections.least_loaded([ONE, TWO], 2.0) is two
    assert world.connections.least_loaded([ONE], 2.0) is None
    assert world.connections.least_loaded([ONE, TWO], 6.0) is one


def test_least_loaded_tries_the_one_that_was_tried_longest_ago() -> None:
    world = World()
    tried: list[str] = []
    for now in range(6):
        assert world.connections.least_loaded(ALL, float(10 * now)) is None
        (connect,) = world.drain()
        assert isinstance(connect, Connect)
        tried.append(connect.host)
        world.fail(connect.connection_id, 10.0 * now + 1)
    assert tried == ["one", "two", "three"] * 2


def test_least_loaded_says_when_to_ask_again() -> None:
    world = World()
    world.fail(world.connecting(ONE, 0.0), 0.0)
    world.fail(world.connecting(TWO, 0.01), 0.01)
    assert world.connections.least_loaded([ONE, TWO], 0.02) is None
    assert world.drain() == []
    assert world.connections.next_timer() == 0.05
    assert world.connections.handle_timer(0.05) == [1]


def test_least_loaded_says_when_to_ask_again_though_one_is_there_and_busy() -> None:
    world = World(max_in_flight=1)
    one = world.ready(ONE, 0.0)
    world.send(one, "stalled", 0.0)
    world.drain()
    world.fail(world.connecting(TWO, 1.0), 1.0)
    assert world.connections.least_loaded([ONE, TWO], 1.01) is None
    assert world.connections.next_timer() == 1.05


def test_least_loaded_of_nobody() -> None:
    world = World()
    assert world.connections.least_loaded([], 0.0) is None


def test_all_unavailable() -> None:
    world = World()
    connections = world.connections
    assert not connections.all_unavailable(ALL, 0.0)  # none was tried
    ids = [world.connecting(address, 0.0) for address in ALL]
    assert not connections.all_unavailable(ALL, 0.0)
    for connection_id in ids[1:]:
        world.fail(connection_id, 1.0)
    assert not connections.all_unavailable(ALL, 1.0)  # one is connecting
    one = world.negotiated(ids[0], 1.0)
    world.send(one, "a", 1.0)
    connections.receive_data(one.connection_id, init_producer_id_response(1, throttle=9.0), 1.0)
    assert not connections.all_unavailable(ALL, 1.0)  # it is there, if throttled
    world.fail(one.connection_id, 1.0)
    assert connections.all_unavailable(ALL, 1.01)
    assert not connections.all_unavailable(ALL, 1.06)
    assert connections.all_unavailable([], 0.0)


# A random driver and a random clock


class RandomDriver(RuleBasedStateMachine):
    """Whatever a driver reports, in whatever order it may: every request ends once, nothing leaks, time passes.

    The model holds each request that was sent and each connection that the driver was told to open.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.world = World(max_in_flight=2, connections_max_idle=20.0)
        self.connections = self.world.connections
        self.open: dict[int, BrokerAddress] = {}  # told to open, connection_lost not reported
        self.made: set[int] = set()
        self.unwritten: dict[int, Send] = {}
        self.unanswered: dict[int, list[bytes]] = {}
        self.closing: set[int] = set()
        self.pending: dict[int, int] = {}  # request -> connection id
        self.requests = 0

    def execute(self) -> None:
        while self.connections.effects:
            effect = self.connections.effects.popleft()
            if isinstance(effect, Connect):
                assert effect.connection_id not in self.open
                assert effect.timeout > 0
                connection = self.connections.connection_by_id(effect.connection_id)
                assert connection is not None
                self.open[effect.connection_id] = connection.address
                self.unanswered[effect.connection_id] = []
            elif isinstance(effect, Close):
                assert effect.connection_id in self.open
                assert effect.connection_id not in self.closing
                self.closing.add(effect.connection_id)
            else:
                assert effect.connection_id in self.made
                assert effect.connection_id not in self.closing
                assert effect.connection_id not in self.unwritten
                self.unwritten[effect.connection_id] = effect

    def finish(self, request: object, connection_id: int) -> None:
        assert isinstance(request, int)
        assert self.pending.pop(request) == connection_id

    addresses = st.sampled_from(ALL)

    @rule(address=addresses)
    def ensure(self, address: BrokerAddress) -> None:
        connection = self.connections.ensure(address, self.now)
        assert connection is None or connection.is_ready
        self.execute()

    @rule()
    def ask_anyone(self) -> None:
        connection = self.connections.least_loaded(ALL, self.now)
        assert connection is None or connection.can_send(self.now)
        self.execute()

    @rule(address=addresses, port=st.integers(1, 2))
    def move(self, address: BrokerAddress, port: int) -> None:
        self.connections.ensure(BrokerAddress(address.node_id, address.host, port), self.now)
        self.execute()

    @rule(address=addresses, expects_response=st.booleans(), timeout=st.sampled_from([5.0, 30.0]))
    def send(self, address: BrokerAddress, expects_response: bool, timeout: float) -> None:
        connection = self.connections.connection(address.node_id)
        if connection is None or not connection.can_send(self.now):
            return
        self.requests += 1
        self.pending[self.requests] = connection.connection_id
        connection.send(
            ApiKey.INIT_PRODUCER_ID,
            encode,
            named(self.requests),
            self.now,
            timeout=timeout,
            expects_response=expects_response,
        )
        self.execute()
        if expects_response:
            return
        # The broker will not answer: `write` knows by this.
        self.unwritten[connection.connection_id] = Send(connection.connection_id, [])

    @precondition(lambda self: self.open)
    @rule(choice=st.data())
    def make(self, choice: st.DataObject) -> None:
        waiting = sorted(set(self.open) - self.made)
        if not waiting:
            return
        connection_id = choice.draw(st.sampled_from(waiting))
        if connection_id not in self.closing:
            self.made.add(connection_id)
        self.connections.connection_made(connection_id, self.now)
        self.execute()

    @precondition(lambda self: self.unwritten)
    @rule(choice=st.data())
    def write(self, choice: st.DataObject) -> None:
        connection_id = choice.draw(st.sampled_from(sorted(self.unwritten)))
        effect = self.unwritten.pop(connection_id)
        if effect.buffers:
            header = request_header(effect.buffers)
            answer = (
                api_versions_response(header.correlation_id)
                if header.api == API_VERSIONS
                else init_producer_id_response(header.correlation_id)
            )
            self.unanswered[connection_id].append(answer)
        done = self.connections.writable(connection_id, self.now)
        assert len(done) <= 1
        for request in done:
            assert not request.expects_response
            assert connection_id not in self.closing
            self.finish(request.asker, connection_id)
        self.execute()

    @precondition(lambda self: any(self.unanswered.values()))
    @rule(
        choice=st.data(),
        is_garbage=st.sampled_from([False] * 9 + [True]),
        throttle=st.sampled_from([0, 0, 3]),
    )
    def answer(self, choice: st.DataObject, is_garbage: bool, throttle: int) -> None:
        connection_id = choice.draw(st.sampled_from(sorted(k for k, v in self.unanswered.items() if v)))
        frame = self.unanswered[connection_id].pop(0)
        if is_garbage:
            frame = b"\xff\xff\xff\xff"
        elif throttle and len(frame) < 40:
            correlation_id = int.from_bytes(frame[4:8], "big")
            frame = init_producer_id_response(correlation_id, throttle=float(throttle))
        completed = self.connections.receive_data(connection_id, frame, self.now)
        assert not (completed and connection_id in self.closing)
        for done in completed:
            self.finish(done.request.asker, connection_id)
        self.execute()
        if is_garbage:
            assert connection_id in self.closing

    @precondition(lambda self: self.open)
    @rule(choice=st.data())
    def lose(self, choice: st.DataObject) -> None:
        connection_id = choice.draw(st.sampled_from(sorted(self.open)))
        lost = self.connections.connection_lost(connection_id, None, self.now)
        assert lost is not None
        numbers = names(lost.requests)
        assert numbers == sorted(k for k, v in self.pending.items() if v == connection_id)
        for number in numbers:
            self.finish(number, connection_id)
        assert self.connections.connection_by_id(connection_id) is None
        assert self.connections.connection_lost(connection_id, None, self.now) is None
        for known in (self.open, self.unwritten, self.unanswered):
            known.pop(connection_id, None)
        self.made.discard(connection_id)
        self.closing.discard(connection_id)
        self.execute()

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.06, 1.0, 5.0, 11.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        awake = self.connections.handle_timer(self.now)
        assert len(awake) == len(set(awake))
        for node_id in awake:
            connection = self.connections.connection(node_id)
            if connection is None:
                assert self.connections.can_connect(node_id, self.now)
            else:
                assert connection.throttled_until <= self.now
        at = self.connections.next_timer()
        assert at is None or at > self.now
        self.execute()
        for connection_id in self.open.keys() - self.closing:
            connection = self.connections.connection_by_id(connection_id)
            assert connection is not None
            deadline = connection.next_deadline()
            assert deadline is None or deadline > self.now  # what is late was closed

    @invariant()
    def nothing_leaks(self) -> None:
        assert len(self.connections) == len(self.open)
        alive = [self.connections.connection_by_id(connection_id) for connection_id in self.open]
        assert sum(
            connection.pending_count for connection in alive if connection and connection.api_versions
        ) == len(self.pending)
        assert len(self.connections._nodes) <= len(ALL)
        assert len(self.connections._deadlines) <= len(self.open)

    @invariant()
    def deadlines_are_never_late(self) -> None:
        for connection_id in self.open:
            connection = self.connections.connection_by_id(connection_id)
            assert connection is not None
            deadline = connection.next_deadline()
            timer = self.connections.next_timer()
            assert deadline is None or (timer is not None and timer <= deadline)

    @invariant()
    def open_connections_are_those_of_the_nodes(self) -> None:
        of_nodes = [self.connections.connection(address.node_id) for address in ALL]
        assert {connection.connection_id for connection in of_nodes if connection} == (
            self.open.keys() - self.closing
        )

    def teardown(self) -> None:
        self.connections.close_all("end", self.now)
        self.execute()
        assert self.closing == set(self.open)
        for connection_id in list(self.open):
            lost = self.connections.connection_lost(connection_id, None, self.now)
            assert lost is not None
            for request in lost.requests:
                self.finish(request.asker, connection_id)
        assert not self.pending
        assert len(self.connections) == 0
        assert self.connections.next_timer() is None


TestRandomDriver = RandomDriver.TestCase
TestRandomDriver.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
