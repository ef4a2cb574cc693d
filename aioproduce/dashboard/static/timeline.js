// The delivery timeline: the stages of KIP-91 on a logarithmic axis, with the time-outs that bound them.

import { milliseconds } from "./units.js";

const SVG = "http://www.w3.org/2000/svg";
export const STAGES = [
  ["send-wait", "waiting for room"],
  ["batching", "batching"],
  ["await-send", "waiting to be sent"],
  ["in-flight", "in flight"],
  ["retry", "retrying"],
  ["delivery", "in total"],
];
const ROW = 26;
const LEAST = 0.1;

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function drawTimeline(place, producer) {
  const width = Math.max(place.clientWidth, 280);
  const isNarrow = width < 640;
  const left = isNarrow ? 4 : 190;
  const right = isNarrow ? 8 : 150;
  const row = isNarrow ? 40 : ROW;
  const top = 34;
  const bottom = top + row * STAGES.length;
  const limit = producer.limits.delivery_timeout;
  const longest = Math.max(...STAGES.map(([key]) => producer.stages[key].max ?? 0), limit ?? 0, 1000);
  const most = Math.max(longest * 1.25, 1000);
  const span = Math.log10(most / LEAST);
  const x = (value) => left + (Math.log10(Math.max(value, LEAST) / LEAST) / span) * (width - left - right);

  const svg = element("svg", { viewBox: `0 0 ${width} ${bottom + 22}`, height: bottom + 22, role: "img" });
  for (let power = -1; 10 ** power <= most; power += 1) {
    const at = x(10 ** power);
    svg.append(element("line", { class: "grid", x1: at, x2: at, y1: top - 4, y2: bottom }));
    if (!isNarrow || power % 2 !== 0) {
      svg.append(element("text", { class: "quiet", x: at, y: bottom + 15, "text-anchor": power < 0 && isNarrow ? "start" : "middle" }, milliseconds(10 ** power)));
    }
  }
  const marks = [["linger.ms", producer.limits.linger, 26], ["request.timeout.ms", producer.limits.request_timeout, 26]];
  for (const [name, value, y] of marks) {
    if (value === null || value <= LEAST) continue;
    svg.append(element("line", { class: "mark-line", x1: x(value), x2: x(value), y1: top - 4, y2: bottom }));
    svg.append(element("text", { class: "quiet", x: x(value) - 4, y, "text-anchor": "end" }, name));
  }
  if (limit !== null) {
    svg.append(element("line", { class: "limit-line", x1: x(limit), x2: x(limit), y1: top - 18, y2: bottom }));
    svg.append(element("text", { class: "limit", x: x(limit) + (isNarrow ? 2 : 0), y: 11, "text-anchor": isNarrow ? "end" : "middle" }, `delivery.timeout.ms ${milliseconds(limit)}`));
  }
  const spoken = [];
  STAGES.forEach(([key, name], index) => {
    const times = producer.stages[key];
    const y = top + row * index + (isNarrow ? 26 : row / 2);
    const told = times.p50 === null ? "none" : `${milliseconds(times.p50)} … ${milliseconds(times.p99)}`;
    spoken.push(`${name}: ${told}`);
    if (isNarrow) {
      const label = element("text", { x: left, y: y - 10 }, `${name}:`);
      label.append(element("tspan", { class: "told", dx: 6 }, told));
      svg.append(label);
    } else {
      svg.append(element("text", { x: left - 12, y: y + 4, "text-anchor": "end" }, name));
      svg.append(element("text", { x: width - right + 12, y: y + 4 }, told));
    }
    if (times.p50 === null) return;
    const start = x(times.p50);
    svg.append(element("line", { class: `s${index}`, x1: start, x2: x(times.max), y1: y, y2: y }));
    svg.append(element("line", { class: `s${index}`, x1: x(times.max), x2: x(times.max), y1: y - 4, y2: y + 4 }));
    svg.append(element("rect", { class: `s${index}`, x: start - 1, y: y - 7, width: Math.max(x(times.p99) - start, 3), height: 14, rx: 2 }));
  });
  svg.setAttribute("aria-label", `Delivery timeline, median and 99th percentile: ${spoken.join("; ")}`);
  place.replaceChildren(svg);
}
