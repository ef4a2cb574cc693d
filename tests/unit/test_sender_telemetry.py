"""Client telemetry (KIP-714) in the core: when brokers are asked and pushed to, and what they may refuse.

Scenarios of Java's ClientTelemetryReporterTest, at the level of the wire; the payloads are the harness' own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import pytest

from aioproduce.core.cluster.broker_connections import BrokerConnections
from aioproduce.core.exchanges.telemetry import TelemetryState
from aioproduce.wire import error_codes as codes
from tests.drivers.breaking import Altered
from tests.unit.sender_harness import NoRandom, SenderHarness
from tests.unit.sender_wire import GET_TELEMETRY_SUBSCRIPTIONS as GET
from tests.unit.sender_wire import PUSH_TELEMETRY as PUSH
from tests.unit.telemetry_harness import (
    CLIENT,
    DEFAULT_INTERVAL,
    INTERVAL,
    LASTING,
    LZ4,
    ZSTD,
    Source,
    Telemetry,
)

if TYPE_CHECKING:
    from aioproduce.core.cluster.broker_connection import BrokerConnection

# -- asking ---


def test_brokers_without_telemetry_are_asked_nothing_and_looked_at_once() -> None:
    looks: list[BrokerConnections] = []
    h = SenderHarness(telemetry=Source(), is_bootstrapped=False, **LASTING)
    telemetry, connections_ = h.sender.telemetry, h.sender.connections
    assert telemetry is not None

    def look() -> list[BrokerConnection]:
        looks.append(connections_)
        return connections_.ready()

    telemetry._connections = cast(BrokerConnections, Altered(connections_, ready=look))
    h.offer_telemetry.clear()
    h.want("test")
    h.run()
    h.send_acknowledged()
    connections = len(h.connections)
    h.advance(3600)
    h.send_acknowledged()
    assert (h.count(GET), h.count(PUSH), len(h.connections)) == (0, 0, connections)
    # Before there was any, and once for each when it was ready.
    assert len(looks) == 1 + connections


def test_switched_off_nobody_is_asked() -> None:
    h = SenderHarness(**LASTING)
    h.offer_telemetry.add(0)
    h.lose()
    h.advance(3600)
    h.send_acknowledged()
    assert h.sender.telemetry is None
    assert h.count(GET) == 0


def test_the_first_question_has_no_id_and_the_next_ones_have_the_brokers() -> None:
    t = Telemetry()
    assert t.question().body == {"client_instance_id": None}
    t.answer_question(requested_metrics=())
    assert t.asks_after(INTERVAL)
    assert t.question().body == {"client_instance_id": CLIENT}


def test_a_question_on_its_way_leaves_acknowledgements_without_work() -> None:
    """The sender's task sleeps on: nothing of telemetry's waits for room on a connection."""
    t = Telemetry()
    assert t.question()
    elsewhere = t.h.connection_to(0)
    assert elsewhere != t.question().connection_id
    record = t.h.send()
    assert t.h.produce().connection_id == elsewhere
    t.h.acknowledge(run=False)
    assert record.delivery.done()
    assert not t.h.sender.has_work


def test_only_the_broker_that_offers_telemetry_is_asked() -> None:
    t = Telemetry(brokers=2, is_bootstrapped=False)
    t.h.offer_telemetry = {1}
    t.h.want("test")
    t.h.run()
    t.h.move(1, 1)
    t.h.refresh()
    assert t.h.count(GET) == 0
    t.h.send(1)
    assert t.question().node_id == 1
    t.h.acknowledge()
    t.answer_question()
    t.h.advance(INTERVAL)
    assert t.push().node_id == 1


@pytest.mark.parametrize(("draw", "wait"), [(0.0, 0.5), (0.5, 1.0), (0.75, 1.25)])
def test_the_first_push_comes_after_half_to_one_and_a_half_intervals(
    draw: float, wait: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NoRandom, "random", lambda self: draw)
    t = Telemetry().subscribed()
    t.h.advance(wait * INTERVAL - 0.001)
    assert t.h.count(PUSH) == 0
    t.h.advance(0.001)
    assert t.push().body == {
        "client_instance_id": CLIENT,
        "subscription_id": 7,
        "terminating": False,
        "compression_type": ZSTD,
        "metrics": b"metrics 1",
    }
    t.answer_push()
    # Those that follow come at the interval, from the answer on.
    t.h.advance(INTERVAL - 0.001)
    assert t.h.count(PUSH) == 1
    t.h.advance(0.001)
    assert t.push().body["metrics"] == b"metrics 2"


@pytest.mark.parametrize(
    ("told", "interval"), [(0.0, DEFAULT_INTERVAL), (-1.0, DEFAULT_INTERVAL), (0.001, 0.1), (0.25, 0.25)]
)
def test_intervals_that_make_no_sense(told: float, interval: float) -> None:
    t = Telemetry()
    t.answer_question(push_interval=told)
    t.h.advance(interval - 0.0001)
    assert t.h.count(PUSH) == 0
    t.h.advance(0.0001)
    assert t.push()


def test_what_the_source_is_told() -> None:
    t = Telemetry().pushing()
    (subscription,) = t.source.made
    assert subscription.prefixes == ("org.apache.kafka.",)
    assert (subscription.is_delta, subscription.max_bytes) == (True, 1000)
    assert subscription.compression_types == (ZSTD, LZ4)
    assert t.source.delivered == 0
    t.answer_push()
    assert t.source.delivered == 1


def test_another_temporality_begins_anew() -> None:
    t = Telemetry().pushing()
    t.answer_push(codes.UNKNOWN_SUBSCRIPTION_ID)
    t.answer_question()
    assert t.source.resets == 0
    t.h.advance(INTERVAL)
    t.answer_push(codes.UNKNOWN_SUBSCRIPTION_ID)
    t.answer_question(delta_temporality=False)
    assert t.source.resets == 1


# -- what brokers refuse ---


@pytest.mark.parametrize("code", [codes.UNKNOWN_SUBSCRIPTION_ID, codes.UNSUPPORTED_COMPRESSION_TYPE])
def test_a_subscription_that_has_changed_is_asked_for_at_once(code: int) -> None:
    t = Telemetry().pushing()
    t.answer_push(code)
    assert t.question().body == {"client_instance_id": CLIENT}
    assert t.source.delivered == 0
    t.answer_question(subscription_id=8)
    t.h.advance(INTERVAL)
    refused = code == codes.UNSUPPORTED_COMPRESSION_TYPE
    assert (t.push().body["subscription_id"], t.push().body["compression_type"]) == (
        8,
        LZ4 if refused else ZSTD,
    )


@pytest.mark.parametrize("code", [codes.TELEMETRY_TOO_LARGE, codes.THROTTLING_QUOTA_EXCEEDED])
def test_not_now_is_asked_again_after_the_interval(code: int) -> None:
    t = Telemetry().pushing()
    t.answer_push(code)
    assert t.asks_after(INTERVAL)
    assert t.source.delivered == 0


@pytest.mark.parametrize(
    "code",
    [
        codes.UNKNOWN_SUBSCRIPTION_ID,
        codes.UNSUPPORTED_COMPRESSION_TYPE,
        codes.TELEMETRY_TOO_LARGE,
        codes.THROTTLING_QUOTA_EXCEEDED,
        codes.NETWORK_EXCEPTION,
    ],
)
def test_a_question_that_is_refused_is_never_repeated_at_once(code: int) -> None:
    t = Telemetry()
    t.answer_question(code)
    assert t.asks_after(DEFAULT_INTERVAL)


@pytest.mark.parametrize(
    "code",
    [
        codes.INVALID_REQUEST,
        codes.INVALID_RECORD,
        codes.UNSUPPORTED_VERSION,
        codes.UNKNOWN_SERVER_ERROR,
        9999,
    ],
)
@pytest.mark.parametrize("is_push", [True, False])
def test_what_no_time_cures_ends_it_with_a_line_in_the_log(
    code: int, is_push: bool, caplog: pytest.LogCaptureFixture
) -> None:
    t = Telemetry()
    if is_push:
        t.pushing().answer_push(code)
    else:
        t.answer_question(code)
    (record,) = [one for one in caplog.records if one.name == "aioproduce.telemetry"]
    assert record.levelno == logging.WARNING
    assert codes.name_of(code) in record.getMessage()
    assert t.is_silent()
    assert t.state is TelemetryState.TERMINATED


def test_a_broker_that_gives_no_id_is_asked_no_more() -> None:
    t = Telemetry()
    t.answer_question(client_instance_id=None)
    assert t.is_silent()


def test_a_throttled_connection_is_waited_for() -> None:
    t = Telemetry().on_one_connection()
    t.answer_question(throttle_time=INTERVAL + 5)
    t.h.advance(INTERVAL + 4.999)
    assert t.h.count(PUSH) == 0
    t.h.advance(0.001)
    assert t.push()


# -- connections ---


def test_a_lost_question_is_asked_again_much_later() -> None:
    """A broker that it is too much for is left in peace: the connection is that of the records, too."""
    t = Telemetry()
    t.h.lose()
    t.h.send()
    t.h.advance(1.0)
    t.h.acknowledge()
    assert t.asks_after(DEFAULT_INTERVAL - 1.0)


def test_a_lost_push_counts_as_delivered() -> None:
    t = Telemetry().pushing()
    t.h.lose()
    assert t.source.delivered == 1
    assert t.asks_after(INTERVAL)


def test_no_answer_is_a_lost_connection() -> None:
    t = Telemetry(request_timeout_ms=1000).pushing()
    t.h.advance(1.0)
    assert t.h.waiting(PUSH) == []
    assert t.asks_after(INTERVAL)


def test_a_push_that_is_wanted_has_a_connection_opened() -> None:
    t = Telemetry().subscribed()
    for connection_id in list(t.h.connections):
        t.h.sender.connections.close(connection_id, "a test", t.h.now)
    t.h.run()
    t.h.advance(INTERVAL - 0.001)
    assert t.h.connections == {}
    t.h.advance(0.001)
    assert t.push()


def test_a_question_after_nothing_was_wanted_has_no_connection_opened() -> None:
    """An idle producer keeps no connection for it; the next one that is opened is asked on."""
    t = Telemetry()
    t.answer_question(requested_metrics=())
    for connection_id in list(t.h.connections):
        t.h.sender.connections.close(connection_id, "a test", t.h.now)
    t.h.run()
    t.h.advance(3 * INTERVAL)
    assert t.h.connections == {}
    assert t.h.count(GET) == 1
    t.h.send_acknowledged()
    assert t.question()


def test_a_push_goes_to_the_broker_that_answered_last() -> None:
    """Though another has less to do: each keeps what it knows of a client to itself."""
    t = Telemetry(brokers=2).on_one_connection()
    assert t.question().node_id == 0
    t.answer_question()
    t.h.move(1, 1)
    t.h.refresh()
    t.h.send_acknowledged(1)
    t.h.advance(INTERVAL - 0.7)
    t.h.send(0)
    t.h.advance(0.7)
    assert t.push().node_id == 0


def test_a_push_waits_for_room_on_the_connection() -> None:
    t = Telemetry(enable_idempotence=False, max_in_flight_requests_per_connection=1)
    t.on_one_connection().subscribed()
    t.h.advance(INTERVAL - 0.5)
    t.h.send()
    t.h.advance(0.6)
    assert t.h.count(PUSH) == 0
    t.h.acknowledge()
    assert t.push()


# -- the payload ---


def test_without_the_extra_it_is_said_once_and_only_where_metrics_are_wanted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    t = Telemetry(Source("no module; pip install 'aioproduce[telemetry]'"))
    t.answer_question(requested_metrics=())
    assert caplog.records == []
    t.h.advance(INTERVAL)
    t.answer_question()
    (record,) = caplog.records
    assert "aioproduce[telemetry]" in record.getMessage()
    assert t.is_silent()
    assert t.source.made == []
    assert t.h.sender.telemetry is not None
    assert t.h.sender.telemetry.client_instance_id == CLIENT


def test_more_than_the_broker_takes_is_not_pushed(caplog: pytest.LogCaptureFixture) -> None:
    t = Telemetry(Source(size=1001)).subscribed()
    t.h.advance(INTERVAL)
    assert t.h.count(PUSH) == 0
    (record,) = caplog.records
    assert "1001 bytes" in record.getMessage()
    assert "telemetry.max.bytes" in record.getMessage()
    t.source.size = 1000
    t.h.advance(INTERVAL)
    assert len(t.push().body["metrics"]) == 1000


def test_a_source_that_fails_is_no_harm_to_records(caplog: pytest.LogCaptureFixture) -> None:
    t = Telemetry().subscribed()
    t.source.error = ZeroDivisionError("a bug")
    t.h.advance(INTERVAL)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert t.is_silent()
