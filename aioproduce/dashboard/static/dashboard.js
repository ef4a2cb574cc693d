// The page: reads samples from the event stream, keeps those that the charts show, reports a lost stream.

import { Chart } from "./charts.js";
import { STAGES, drawTimeline } from "./timeline.js";
import { bytes, bytesPerSecond, count, milliseconds, perSecond } from "./units.js";

const KEPT = 300;
const LINES = 8;
const GRACE_MS = 3000;
const AGAIN_MS = 2000;

const at = (id) => document.getElementById(id);
const state = { run: null, number: 0, interval: 1, samples: [], chosen: 0, heardAt: 0, source: null, lostTimer: null, isRefused: false };

// -- what is drawn --

// The busiest of the last 60 samples, ordered by name so that colours stay stable.
function named(group, key, format) {
  return (producers) => {
    const busy = new Map();
    for (const producer of producers.slice(-60)) {
      for (const row of producer[group]) busy.set(row.name, Math.max(busy.get(row.name) ?? 0, row[key] ?? 0));
    }
    const names = [...busy.keys()].sort((a, b) => busy.get(b) - busy.get(a)).slice(0, LINES);
    names.sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    return names.map((name, index) => ({
      name: group === "brokers" ? `broker ${name}` : name,
      colour: index + 1,
      dash: Math.floor(index / 4),
      format,
      value: (producer) => producer[group].find((row) => row.name === name)?.[key],
    }));
  };
}

const fixed = (...series) => () => series;
const times = (key) => fixed(
  { name: "average", colour: 1, fill: true, value: (p) => p[key].avg },
  { name: "p50", colour: 3, dash: 1, value: (p) => p[key].p50 },
  { name: "p99", colour: 2, value: (p) => p[key].p99 },
  { name: "p99.9", colour: 4, dash: 2, value: (p) => p[key].p999 },
);

const DEFINITIONS = [
  { title: "Records sent", note: "per second", format: perSecond, series: fixed({ name: "records", colour: 1, fill: true, value: (p) => p.records_per_s }) },
  { title: "Bytes sent", note: "per second, to all brokers", format: bytesPerSecond, series: fixed({ name: "bytes", colour: 3, fill: true, value: (p) => p.bytes_per_s }) },
  { title: "Request latency", note: "average of the last second; percentiles of the window", isLog: true, format: milliseconds, series: times("latency") },
  {
    title: "Buffer", note: "left: bytes of buffer.memory; right: tasks that wait for room", format: bytes, right: { format: (value) => (Number.isInteger(value) ? count(value) : "") },
    series: fixed(
      { name: "in use", colour: 1, fill: true, value: (p) => p.buffer.used },
      { name: "buffer.memory", colour: 0, dash: 1, value: (p) => p.buffer.total },
      { name: "waiting tasks", colour: 2, scale: "right", format: (value) => count(value), value: (p) => p.buffer.waiting },
    ),
  },
  { title: "Retries and errors", note: "records per second", format: perSecond, series: fixed(
    { name: "retried", colour: 2, dash: 1, value: (p) => p.retries_per_s },
    { name: "failed", colour: 7, fill: true, value: (p) => p.errors_per_s },
  ) },
  { title: "Requests in flight", note: "by broker, at the instant of the sample", isCount: true, format: (value) => (value === null || Number.isInteger(value) ? count(value) : ""), series: named("brokers", "in_flight") },
  { title: "Requests", note: "per second, by broker", format: perSecond, series: named("brokers", "requests_per_s") },
  { title: "Latency by broker", note: "average of the window", isLog: true, format: milliseconds, series: named("brokers", "latency_avg") },
  { title: "Records by topic", note: "per second", format: perSecond, series: named("topics", "records_per_s") },
  { title: "Event-loop lag", note: "how late the event loop runs callbacks", isLog: true, format: milliseconds, series: times("loop_lag") },
  { title: "Stages", note: "average of the last second", isLog: true, format: milliseconds, series: fixed(
    ...STAGES.map(([key, name], index) => ({ name, colour: [8, 1, 5, 3, 7, 6][index], dash: index === 5 ? 1 : 0, dots: key === "send-wait" || key === "retry", value: (p) => p.stages[key].avg })),
  ) },
  { title: "Throttling", note: "requested by brokers", format: milliseconds, series: fixed(
    { name: "average", colour: 1, fill: true, value: (p) => p.throttle.avg },
    { name: "longest", colour: 2, value: (p) => p.throttle.max },
  ) },
];
const charts = DEFINITIONS.map((definition) => new Chart(at("charts"), definition));

const TILES = [
  ["records sent", (p) => perSecond(p.records_per_s)],
  ["bytes sent", (p) => bytesPerSecond(p.bytes_per_s)],
  ["request latency, p99", (p) => milliseconds(p.latency.p99)],
  ["buffer in use", (p) => `${((100 * p.buffer.used) / p.buffer.total).toFixed(0)} %`, (p) => p.buffer.used > 0.9 * p.buffer.total],
  ["tasks waiting", (p) => count(p.buffer.waiting), (p) => p.buffer.waiting > 0],
  ["requests in flight", (p) => count(p.requests_in_flight)],
  ["oldest record", (p) => milliseconds(p.ages.record.ms), (p) => p.ages.record.is_late],
  ["oldest waiting send()", (p) => (p.ages.send.ms ? milliseconds(p.ages.send.ms) : "none"), (p) => p.ages.send.is_late],
  ["records retried", (p) => count(p.totals.retries), (p) => p.retries_per_s > 0],
  ["records failed", (p) => count(p.totals.errors), (p) => p.totals.errors > 0],
];
// Tiles of `producer.transactions`, which only a producer with a transactional.id has. An older service lacks it.
const FAILED = ["abortable error", "fatal error"];
const TRANSACTION_TILES = [
  ["state", (t) => t.state, (t) => FAILED.includes(t.state)],
  ["open for", (t) => (t.open_ms ? milliseconds(t.open_ms) : "–")],
  ["committed", (t) => perSecond(t.committed_per_s)],
  ["aborted", (t) => perSecond(t.aborted_per_s)],
  ["wait for a commit, average", (t) => milliseconds(t.commit_avg)],
  ["outcome unknown", (t) => count(t.totals.unknown), (t) => t.totals.unknown > 0],
];
// Tiles of `producer.spool`, which only a producer with a queue on disk has.
const guess = (spool, text) => (spool.is_estimate && spool.records !== null ? `≈ ${text}` : text);
const SPOOL_TILES = [
  ["records waiting", (s) => guess(s, count(s.records))],
  ["bytes waiting", (s) => guess(s, bytes(s.bytes))],
  ["oldest waits for", (s) => (s.bytes ? milliseconds(s.oldest_ms) : "none")],
  ["empty in", (s) => (s.bytes ? milliseconds(s.drain_ms) : "empty")],
  ["put on disk", (s) => perSecond(s.stored_per_s)],
  ["forwarded", (s) => perSecond(s.forwarded_per_s)],
  ["sync of the disk, p99", (s) => milliseconds(s.sync.p99)],
  ["size of the queue", (s) => `${((100 * s.size) / s.max_size).toFixed(0)} %`, (s) => s.size > 0.9 * s.max_size],
  ["free on the disk", (s) => bytes(s.free), (s) => s.free !== null && s.free < s.max_size - s.size],
  ["batches that found it full", (s) => count(s.totals.full_wait), (s) => !s.takes_records],
  ["topics blocked", (s) => count(s.blocked_topics), (s) => s.blocked_topics > 0],
  ["dead letters", (s) => count(s.totals.dead_letter), (s) => s.totals.dead_letter > 0],
  ["records damaged", (s) => count(s.totals.damage), (s) => s.totals.damage > 0],
];

const tilesOf = (definitions, place) => definitions.map(([name]) => {
  const tile = document.createElement("div");
  const label = document.createElement("span");
  label.textContent = name;
  tile.className = "tile";
  tile.append(document.createElement("b"), label);
  place.append(tile);
  return tile;
});
const tiles = tilesOf(TILES, at("tiles"));
const transactionTiles = tilesOf(TRANSACTION_TILES, at("transaction-tiles"));
const spoolTiles = tilesOf(SPOOL_TILES, at("spool-tiles"));

function fillTiles(made, definitions, values) {
  definitions.forEach(([, value, isBad], index) => {
    made[index].firstChild.textContent = value(values);
    made[index].classList.toggle("bad", Boolean(isBad?.(values)));
  });
}

// Not an alert: the seconds grow with each sample, and a screen reader would read all of it again.
function drawWarnings(warnings) {
  at("warnings").hidden = warnings.length === 0;
  at("warnings").replaceChildren(...warnings.map((text) => {
    const line = document.createElement("li");
    line.textContent = text;
    return line;
  }));
}

function drawTransactions(transactions) {
  const isFailed = transactions && FAILED.includes(transactions.state);
  at("transactions").hidden = !transactions;
  at("problem").hidden = !isFailed;
  if (!transactions) return;
  at("transactional-id").textContent = transactions.id;
  fillTiles(transactionTiles, TRANSACTION_TILES, transactions);
  if (!isFailed) return;
  const remedy = transactions.state === "fatal error" ? "This producer can do nothing more." : "The open transaction can only be aborted.";
  const told = `${transactions.id}: ${remedy} ${transactions.error ?? ""}`;
  // A screen reader reads an alert whenever its text is set.
  if (at("problem").textContent !== told) at("problem").textContent = told;
}

// An older service does not report a queue.
function drawSpool(spool) {
  at("spool").hidden = !spool;
  if (!spool) return;
  at("spool-note").textContent = spool.takes_records ? "takes records" : "takes no records";
  fillTiles(spoolTiles, SPOOL_TILES, spool);
  fillTable(at("spool-topics"), SPOOL_COLUMNS, spool.topics);
}

const SPOOL_COLUMNS = [
  ["topic", (row) => row.name], ["records waiting", (row) => count(row.records)], ["bytes waiting", (row) => bytes(row.bytes)],
  ["oldest", (row) => (row.bytes ? milliseconds(row.oldest_ms) : "–")],
  ["blocked", (row) => (row.blocked ? "yes" : "–"), (row) => row.blocked > 0],
];
const BROKER_COLUMNS = [
  ["broker", (row) => row.name],
  ["silent for", (row) => (row.silent_ms >= 1000 ? milliseconds(row.silent_ms) : "–"), (row) => row.silent_ms >= 1000],
  ["in flight", (row) => count(row.in_flight)], ["requests", (row) => perSecond(row.requests_per_s)],
  ["sent", (row) => bytesPerSecond(row.bytes_per_s)], ["latency", (row) => milliseconds(row.latency_avg)], ["longest", (row) => milliseconds(row.latency_max)],
];
const TOPIC_COLUMNS = [
  ["topic", (row) => row.name], ["records", (row) => perSecond(row.records_per_s)], ["bytes", (row) => bytesPerSecond(row.bytes_per_s)],
  ["retried", (row) => perSecond(row.retries_per_s)], ["failed", (row) => perSecond(row.errors_per_s)],
];

function fillTable(table, columns, rows) {
  const line = (cells, tag) => {
    const made = document.createElement("tr");
    for (const [place, [text, isBad]] of cells.entries()) {
      const cell = document.createElement(tag);
      if (tag === "th") cell.scope = "col";
      else cell.dataset.column = columns[place][0]; // a phone shows it in the cell
      cell.textContent = text;
      cell.classList.toggle("bad", Boolean(isBad));
      made.append(cell);
    }
    return made;
  };
  const body = rows.map((row) => line(columns.map(([, value, isBad]) => [value(row), isBad?.(row)]), "td"));
  if (body.length === 0) body.push(line([["none yet"]], "td"));
  table.replaceChildren(line(columns.map(([name]) => [name]), "th"), ...body);
}

// The lines have a gap where samples are missing: nobody watched, or the service stood still.
function columns() {
  const instants = [];
  const rows = [];
  for (const { content } of state.samples) {
    const seconds = content.at_ms / 1000;
    const before = instants.at(-1);
    if (before !== undefined && seconds - before > 3 * state.interval + 1) {
      instants.push((before + seconds) / 2);
      rows.push(null);
    }
    const producer = content.producers[state.chosen];
    instants.push(seconds);
    rows.push(producer);
  }
  return [instants, rows];
}

function chooseAmong(producers) {
  const chooser = at("producer");
  at("chooser").hidden = producers.length < 2;
  at("client").textContent = producers.length < 2 ? producers[0].client_id : "";
  const isSame = chooser.options.length === producers.length && producers.every((one, at) => one.client_id === chooser.options[at].text);
  if (!isSame) {
    chooser.replaceChildren(...producers.map((producer, index) => new Option(producer.client_id, String(index))));
    state.chosen = Math.min(state.chosen, producers.length - 1);
    chooser.value = String(state.chosen);
  }
}

function draw() {
  const latest = state.samples.at(-1);
  at("empty").hidden = latest !== undefined;
  at("content").hidden = latest === undefined;
  if (latest === undefined) return;
  chooseAmong(latest.content.producers);
  const producer = latest.content.producers[state.chosen];
  fillTiles(tiles, TILES, producer);
  drawWarnings(producer.warnings);
  drawTransactions(producer.transactions);
  drawSpool(producer.spool);
  for (const place of document.querySelectorAll(".window")) place.textContent = milliseconds(producer.limits.window);
  drawTimeline(at("timeline"), producer);
  const [instants, rows] = columns();
  for (const chart of charts) chart.show(instants, rows);
  fillTable(at("brokers"), BROKER_COLUMNS, producer.brokers);
  fillTable(at("topics"), TOPIC_COLUMNS, producer.topics);
  at("content").dataset.sample = String(state.number);
}

let isDue = false;
function drawSoon() {
  if (isDue) return;
  isDue = true;
  // A history arrives as many events: draw once for all. Hidden pages do not run requestAnimationFrame.
  setTimeout(() => { isDue = false; draw(); }, 30);
}

// -- the stream --

function show(name, text) {
  if (name === at("status").dataset.state && name !== "lost") return;
  at("status").dataset.state = name;
  at("status").textContent = text;
  const isLost = name === "lost";
  at("banner").hidden = !isLost;
  if (!isLost) return;
  const seen = state.samples.at(-1);
  const since = seen ? ` The charts are from ${new Date(seen.content.at_ms).toLocaleTimeString()}.` : "";
  const why = state.isRefused ? "The service accepts no more viewers now (max_streams), or is ending." : "The stream is lost: is the service still running?";
  at("banner").textContent = `${why}${since} Connecting again…`;
}

function heard() {
  state.heardAt = Date.now();
  clearTimeout(state.lostTimer);
  state.lostTimer = null;
  state.isRefused = false;
  show("live", "live");
}

function connect() {
  state.source?.close();
  const source = new EventSource("events");
  state.source = source;
  state.heardAt = Date.now();
  source.addEventListener("begin", (event) => {
    const begin = JSON.parse(event.data);
    if (begin.run !== state.run) Object.assign(state, { run: begin.run, number: 0, samples: [] });
    state.interval = begin.interval_s;
    heard();
  });
  source.addEventListener("message", (event) => {
    const number = Number(event.lastEventId.split(".")[1]);
    heard();
    if (number <= state.number) return;
    state.number = number;
    state.samples.push({ number, content: JSON.parse(event.data) });
    if (state.samples.length > KEPT) state.samples.splice(0, state.samples.length - KEPT);
    drawSoon();
  });
  source.addEventListener("error", () => {
    // A stream may end normally and continue within a second: no banner.
    state.lostTimer ??= setTimeout(() => show("lost", "lost"), GRACE_MS);
    if (source.readyState !== EventSource.CLOSED) return;
    // The answer was no stream; an EventSource does not report its status.
    fetch("events", { method: "HEAD" }).then((answer) => answer.status === 503, () => false).then((isRefused) => {
      state.isRefused = isRefused;
      setTimeout(() => { if (state.source === source) connect(); }, AGAIN_MS);
    });
  });
}

// A broken network causes no error event: treat a long silence as an error.
setInterval(() => {
  if (Date.now() - state.heardAt < Math.max(6000, 5000 * state.interval)) return;
  show("lost", "lost");
  connect();
}, 1000);

at("producer").addEventListener("change", (event) => {
  state.chosen = Number(event.target.value);
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts) if (chart.plot) chart.rebuild();
});
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) { width = innerWidth; drawSoon(); }
});
connect();
