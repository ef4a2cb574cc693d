"""A real Apache Kafka on loopback, for tests: started, asked, hurt and torn down, node by node.

Used by the fixtures ``kafka1`` and ``kafka3`` (``tests/integration/conftest.py``), by the benchmarks, and by
a test that needs a cluster of its own. Nothing here uses our own client: librdkafka's admin client makes the
topics, kio asks for readiness (``tests/kafka_ask.py``), Kafka's own tools judge records and logs.

Every method blocks and may be called from any thread; a test whose producer must go on meanwhile says
``await asyncio.to_thread(cluster.bounce, 1)``.

1. A node keeps its ports (but for ``move``) and its log directory for the life of the cluster: restarted, it is
   the same broker.
2. Ports lie below the range from which the system numbers outgoing connections. Otherwise, while a broker is
   down, a client's reconnect can be given the broker's own port and end up connected to itself.
3. A node is ready when it lists, asked itself, every running node of the cluster: Kafka hides a fenced one.
4. Every process is ended by its pid, in bounded time, also a stopped one. Where ``setpriv`` exists the kernel
   kills the brokers of a test run that died without its teardown.
5. Polling is for other processes, which offer no other means; each wait has a bound far above what it takes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka_ask import (
    EARLIEST,
    LATEST,
    PartitionState,
    broker_ids,
    offset_of,
    partition_states,
    quorum_leader,
)
from tests.kafka_node import Node, free_ports
from tests.kafka_tools import ConsumedRecord, DumpedBatch, KafkaTools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

# Three nodes on two busy cores take about 12 s; a bounce includes the controller's election.
START_TIMEOUT = 120.0
# A node that loses the controller's quorum while it stops would wait for it for minutes.
STOP_TIMEOUT = 30.0
POLL_INTERVAL = 0.05

# The C1 compiler alone and the serial collector: a test's broker lives for seconds, and shares two cores with
# its siblings and the client. A third of a gigabyte serves a million small records and thirty topics.
BROKER_JVM_FLAGS = (
    "-Xms256m",
    "-Xmx384m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dkafka.log.level=INFO",
)


class KafkaClusterError(Exception):
    """A node did not start, or the cluster did not reach the awaited state; the text holds its log's end."""


class KafkaCluster:
    """One or more combined KRaft nodes on loopback, with ids from 1.

    Args:
        tools: Kafka's classes, ready to be run.
        directory: An empty folder for configuration, logs of the processes, and data.
        brokers: How many nodes; replication factors follow (at most 3).
        properties: Settings of the broker that go before those of the harness.
        features: Feature levels at format time, for example ``{"transaction.version": "1"}``.
        jvm_flags: The brokers'; the default starts fast and is small, not fast in the long run.
        has_proxies: Give each node a listener that tells its clients to use ``proxy_port``, where the test listens.
        has_spare_data: Give each node a second log directory, for ``break_spare_data``.
        listeners: Further listeners of each node, by name, with their protocol: ``{"TLS": "SSL"}``; what else they
            need is in ``properties``.
        format_options: Further arguments of ``kafka-storage format``, for example ``("--add-scram", ...)``.
    """

    def __init__(
        self,
        tools: KafkaTools,
        directory: Path,
        *,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        features: Mapping[str, str] | None = None,
        jvm_flags: Sequence[str] = BROKER_JVM_FLAGS,
        has_proxies: bool = False,
        has_spare_data: bool = False,
        listeners: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
    ) -> None:
        self.tools = tools
        self._jvm_flags = tuple(jvm_flags)
        self._directory = directory
        self._features = dict(features or {})
        self._format_options = tuple(format_options)
        self._replication = min(brokers, 3)
        # The kernel's "kill me with my parent" means the thread that started the process: this one stays.
        self._spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kafka-spawner")
        self._admin: AdminClient | None = None
        self._properties = dict(properties or {})
        self.nodes = self._plan(
            brokers, dict(listeners or {}), has_proxies=has_proxies, has_spare_data=has_spare_data
        )
        for node in self.nodes.values():
            self._write_config(node, self._properties)

    @property
    def bootstrap_servers(self) -> str:
        """Every node's address, running or not, as ``bootstrap.servers`` wants them."""
        return ",".join(node.address for node in self.nodes.values())

    def listener(self, name: str) -> str:
        """Every node's address at one of the further listeners, as ``bootstrap.servers`` wants them."""
        return ",".join(f"localhost:{node.listeners[name][1]}" for node in self.nodes.values())

    @property
    def admin(self) -> AdminClient:
        """librdkafka's admin client, for what has no method here."""
        if self._admin is None:
            # It would print to stderr each time that a node is down, which is what such tests are about.
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        return self._admin

    def __enter__(self) -> Self:
        try:
            self._format()
            for node in self.nodes.values():
                self._spawn(node)
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove the data; the processes' logs stay. Safe to repeat."""
        self._admin = None
        for node in self.nodes.values():
            # Not SIGTERM: it moves leaders and waits for a quorum that goes too, for data that is not kept.
            self.kill(node.node_id)
            for data in (node.data, node.spare_data):
                if data is not None and data.exists():
                    shutil.rmtree(data)
        self._spawner.shutdown()

    # Faults

    def kill(self, node_id: int) -> None:
        """SIGKILL: connections are reset, nothing is flushed, no leader is handed over."""
        node = self.nodes[node_id]
        if node.process is not None:
            node.process.kill()
            node.process.wait(STOP_TIMEOUT)
        node.process, node.is_stalled = None, False

    def terminate(self, node_id: int) -> None:
        """SIGTERM: leaders move away first, then the node stops; killed if that takes too long."""
        node = self.nodes[node_id]
        if node.process is not None and node.is_running:
            self.resume(node_id)
            node.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.process.wait(STOP_TIMEOUT)
        self.kill(node_id)

    def start(self, node_id: int) -> None:
        """Start a stopped node on its old ports and data, and wait until every running node lists it."""
        node = self.nodes[node_id]
        if node.is_running:
            raise KafkaClusterError(f"node {node_id} is running already")
        self._spawn(node)
        self.wait_until_ready()

    def bounce(self, node_id: int, *, hard: bool = False) -> None:
        """Stop a node, cleanly or (``hard``) by SIGKILL, start it again and wait until it is ready."""
        if hard:
            self.kill(node_id)
        else:
            self.terminate(node_id)
        self.start(node_id)

    def stall(self, node_id: int) -> None:
        """SIGSTOP: the node answers nothing more, and its sockets stay open.

        A signal is only asked for by ``kill(2)``: on a busy machine the node's threads go on for milliseconds. This
        returns when all of them stand still.
        """
        process = self._running_process(node_id)
        process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise KafkaClusterError(f"Kafka node {node_id} ended instead of standing still")
        self.nodes[node_id].is_stalled = True

    def resume(self, node_id: int) -> None:
        """SIGCONT: undo ``stall``; nothing happens to a node that is not stalled."""
        self._running_process(node_id).send_signal(signal.SIGCONT)
        self.nodes[node_id].is_stalled = False

    def move(self, node_id: int, port: int | None = None) -> int:
        """Restart a node under another port (a free one by default), which it then keeps; returns the port."""
        node = self.nodes[node_id]
        self.terminate(node_id)
        node.port = port or self.free_port()
        self._write_config(node, self._properties)
        self._admin = None  # it knows the old address
        self.start(node_id)
        return node.port

    @staticmethod
    def free_port() -> int:
        """A port that nobody listens on, from the range of the harness."""
        return free_ports(1)[0]

    def break_spare_data(self, node_id: int) -> None:
        """Take a node's second log directory away; it notices when it writes its next checkpoint there."""
        spare = self.nodes[node_id].spare_data
        assert spare is not None
        spare.rename(spare.with_name("broken"))

    def repair_spare_data(self, node_id: int) -> None:
        """Put it back, and restart the node: Kafka takes a failed directory into use only then."""
        spare = self.nodes[node_id].spare_data
        assert spare is not None
        self.kill(node_id)
        spare.with_name("broken").rename(spare)
        self.start(node_id)

    def rest(self) -> None:
        """End every node, and keep its data; `mend` starts them again."""
        for node_id in self.nodes:
            self.kill(node_id)

    def mend(self) -> None:
        """Bring every node back to life: resume the stalled, start the stopped, wait until all are ready."""
        is_hurt = False
        for node in self.nodes.values():
            if not node.is_running:
                self._spawn(node)
            elif node.is_stalled:
                self.resume(node.node_id)
            else:
                continue
            is_hurt = True
        if is_hurt:
            self.wait_until_ready()

    # Topics and what is in them

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, wait until all running nodes know its leaders and these serve, return the name."""
        factor = self._replication if replication is None else replication
        topic = NewTopic(name, partitions, factor, config=dict(configs or {}))
        self.admin.create_topics([topic], request_timeout=30.0)[name].result(60.0)
        self.wait_until_led(name, partitions=partitions)
        # A node publishes that it leads a little before it takes the partition on: ask for something only then.
        self.offsets(name)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no running node knows it."""
        self.admin.delete_topics([name], request_timeout=30.0)[name].result(60.0)
        awaited = f"topic {name!r} to be gone"
        self._wait(awaited, lambda: all(not self.partitions(name, node.node_id) for node in self._live()))

    def partitions(self, topic: str, node_id: int | None = None) -> dict[int, PartitionState]:
        """A topic's partitions as a node (by default the first that runs) sees them; empty if unknown."""
        node = self.nodes[node_id] if node_id is not None else next(iter(self._live()))
        return partition_states(node.port, topic)

    def leader_of(self, topic: str, partition: int) -> int:
        """The id of the node that leads a partition, -1 without one."""
        return self.partitions(topic)[partition].leader

    def elect_preferred(self, topic: str, partition: int, node_id: int) -> None:
        """Make the first of a partition's replicas, which is this node, its leader again; wait until all know."""
        # One that has just started is no candidate before it has caught up.
        self._wait(
            f"{node_id} to be in sync with {topic}-{partition}",
            lambda: node_id in self.partitions(topic)[partition].isr,
        )
        place = ("--topic", topic, "--partition", str(partition), "--election-type", "PREFERRED")
        leader_election = "org.apache.kafka.tools.LeaderElectionCommand"
        self.tools.run(leader_election, "--bootstrap-server", self.bootstrap_servers, *place)
        self._wait(
            f"{topic}-{partition} to be led by {node_id}",
            lambda: all(
                self.partitions(topic, node.node_id)[partition].leader == node_id for node in self._live()
            ),
        )

    def active_controller(self) -> int:
        """The id of the node that leads the controllers' quorum."""
        found: list[int] = []

        def is_led() -> bool:
            found[:] = [quorum_leader(next(iter(self._live())).port)]
            return found[0] in {node.node_id for node in self._live()}

        self._wait("the controllers to have a leader", is_led)
        return found[0]

    def wait_until_led(self, topic: str, *, partitions: int) -> None:
        """Wait until every running node sees a running leader for each of that many partitions."""

        def is_led() -> bool:
            live = {node.node_id for node in self._live()}
            views = [self.partitions(topic, node_id) for node_id in live]
            return all(
                len(view) == partitions and all(state.leader in live for state in view.values())
                for view in views
            )

        self._wait(f"topic {topic!r} to have its leaders", is_led)

    def wait_until_in_sync(self, topic: str, replicas: int | None = None) -> None:
        """Wait until each partition has that many in-sync replicas (by default the harness' replication)."""
        wanted = self._replication if replicas is None else replicas
        self._wait(
            f"topic {topic!r} to have {wanted} in-sync replicas",
            lambda: all(len(state.isr) >= wanted for state in self.partitions(topic).values()),
        )

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first offset and the high watermark of each partition, as its leader knows them."""
        found: dict[int, tuple[int, int]] = {}

        def have_answered() -> bool:
            states = self.partitions(topic)
            for number, state in states.items():
                if state.leader not in self.nodes:
                    return False
                port = self.nodes[state.leader].port
                first = offset_of(port, topic, number, EARLIEST)
                end = offset_of(port, topic, number, LATEST)
                if first is None or end is None:
                    return False
                found[number] = (first, end)
            return bool(states)

        self._wait(f"the leaders of topic {topic!r} to tell their offsets", have_answered)
        return found

    def console_consume(
        self, topic: str, *, max_messages: int | None = None, isolation_level: str = "read_uncommitted"
    ) -> list[ConsumedRecord]:
        """Read a topic back with Kafka's ConsoleConsumer.

        Without ``max_messages`` everything up to the end offsets of this moment is read: not one record less,
        so duplicates show and no idle time decides. That count is wrong where offsets hold no record
        (transaction markers, compaction), and early where the producer did not wait for all replicas (acks 0
        and 1): there the caller says how many must come.
        """
        if max_messages is None:
            max_messages = sum(end - first for first, end in self.offsets(topic).values())
        if max_messages == 0:
            return []
        return self.tools.console_consume(
            self.bootstrap_servers, topic, max_messages=max_messages, isolation_level=isolation_level
        )

    def dump_log(self, topic: str, partition: int, node_id: int | None = None) -> list[DumpedBatch]:
        """Decode a replica of a partition (the leader's by default) with Kafka's DumpLogSegments."""
        node = self.nodes[self.leader_of(topic, partition) if node_id is None else node_id]
        # A broker with two log directories puts a partition where it has fewer.
        places = [node.data] if node.spare_data is None else [node.data, node.spare_data]
        segments = sorted(
            segment for place in places for segment in (place / f"{topic}-{partition}").glob("*.log")
        )
        if not segments:
            raise FileNotFoundError(f"node {node.node_id} has no log of {topic}-{partition} in {places}")
        return self.tools.dump_log(segments)

    def wait_until_ready(self) -> None:
        """Wait until every running node lists every running node."""

        def is_ready() -> bool:
            nodes = list(self._live())
            wanted = {node.node_id for node in nodes}
            return all(wanted <= broker_ids(node.port) for node in nodes)

        self._wait(f"nodes {[node.node_id for node in self._live()]} to be ready", is_ready)

    # Inside

    def _plan(
        self, count: int, listeners: dict[str, str], *, has_proxies: bool, has_spare_data: bool
    ) -> dict[int, Node]:
        ports = free_ports((4 + len(listeners)) * count)
        further = iter(ports[4 * count :])
        nodes = {}
        for node_id in range(1, count + 1):
            folder = self._directory / f"node-{node_id}"
            folder.mkdir(parents=True)
            nodes[node_id] = Node(
                node_id=node_id,
                port=ports[2 * node_id - 2],
                controller_port=ports[2 * node_id - 1],
                config=folder / "node.properties",
                data=folder / "data",
                log=folder / "broker.log",
                spare_data=folder / "spare" if has_spare_data else None,
                proxied_port=ports[2 * count + 2 * node_id - 2] if has_proxies else 0,
                proxy_port=ports[2 * count + 2 * node_id - 1] if has_proxies else 0,
                listeners={name: (protocol, next(further)) for name, protocol in listeners.items()},
            )
        return nodes

    def _write_config(self, node: Node, overrides: dict[str, str]) -> None:
        voters = ",".join(f"{each.node_id}@127.0.0.1:{each.controller_port}" for each in self.nodes.values())
        settings = {**node.settings(voters, self._replication), **overrides}
        node.config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _format(self) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        features = [word for item in self._features.items() for word in ("--feature", "=".join(item))]

        def format_node(node: Node) -> None:
            # "--cluster-id=ID" as one word: an id may begin with a dash.
            where = (f"--cluster-id={cluster_id}", "--config", str(node.config))
            self.tools.run("kafka.tools.StorageTool", "format", *where, *features, *self._format_options)

        with ThreadPoolExecutor() as formatters:
            list(formatters.map(format_node, self.nodes.values()))

    def _spawn(self, node: Node) -> None:
        command = self.tools.command("kafka.Kafka", str(node.config), jvm_flags=self._jvm_flags)
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]

        def popen() -> subprocess.Popen[bytes]:
            with open(node.log, "ab") as log:
                return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        node.process = self._spawner.submit(popen).result()
        node.is_stalled = False

    def _running_process(self, node_id: int) -> subprocess.Popen[bytes]:
        process = self.nodes[node_id].process
        if process is None or process.poll() is not None:
            raise KafkaClusterError(f"node {node_id} is not running")
        return process

    def _live(self) -> Iterator[Node]:
        return (node for node in self.nodes.values() if node.is_running and not node.is_stalled)

    def _wait(self, awaited: str, is_so: Callable[[], bool]) -> None:
        """Poll until ``is_so``; a refused or broken connection means "not yet", a dead node means never."""
        deadline = time.monotonic() + START_TIMEOUT
        last: Exception | None = None
        while time.monotonic() < deadline:
            for node in self.nodes.values():
                if node.process is not None and not node.is_running:
                    code = node.process.returncode
                    raise KafkaClusterError(f"node {node.node_id} ended with {code}:\n{node.log_tail()}")
            try:
                if is_so():
                    return
            except OSError as error:
                last = error
            time.sleep(POLL_INTERVAL)
        tails = "\n".join(f"node {node.node_id}:\n{node.log_tail()}" for node in self.nodes.values())
        raise KafkaClusterError(f"waited {START_TIMEOUT:.0f} s for {awaited}; last error {last!r}\n{tails}")
