// One chart: a uPlot, its legend with the figures under the cursor (or the latest), and its text for screen readers.

const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
const HEIGHT = 180;
const SVG = "http://www.w3.org/2000/svg";

const colour = (number) =>
  getComputedStyle(document.documentElement).getPropertyValue(number ? `--c${((number - 1) % 8) + 1}` : "--quiet").trim();
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  // definition: {title, note, format, series(samples) -> [{name, colour, dash, fill, dots, scale, format, value(sample)}],
  //              isLog, right: {format}, isCount}
  constructor(parent, definition) {
    this.definition = definition;
    this.plot = null;
    this.key = "";
    this.series = [];
    this.columns = [[]];
    this.figure = document.createElement("figure");
    this.figure.className = "panel";
    const title = document.createElement("h2");
    title.textContent = definition.title;
    if (definition.note) {
      const note = document.createElement("small");
      note.textContent = ` ${definition.note}`;
      title.append(note);
    }
    this.place = document.createElement("div");
    this.place.className = "plot";
    this.place.setAttribute("role", "img");
    this.none = document.createElement("div");
    this.none.className = "none";
    this.none.textContent = definition.none ?? "nothing yet";
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    this.figure.append(title, this.place, this.legend);
    parent.append(this.figure);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.place);
  }

  resize() {
    const width = this.place.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  // times: seconds since the epoch. rows: one for each time, null for a gap.
  show(times, rows) {
    const series = this.definition.series(rows.filter((row) => row !== null));
    this.columns = [times, ...series.map((one) => rows.map((row) => (row === null ? null : one.value(row) ?? null)))];
    const key = series.map((one) => one.name).join("\n");
    if (this.plot === null || key !== this.key) {
      this.key = key;
      this.series = series;
      this.rebuild();
    } else {
      this.series = series;
      this.plot.setData(this.columns);
    }
    const hasData = this.columns.slice(1).some((column) => column.some((value) => value !== null));
    if (hasData === this.none.isConnected) hasData ? this.none.remove() : this.place.append(this.none);
    this.tell();
  }

  // Also called when the colour scheme changes: uPlot draws on a canvas, which CSS does not reach.
  rebuild() {
    this.plot?.destroy();
    this.plot = new uPlot(this.options(), this.columns, this.place);
    this.legend.replaceChildren(...this.series.map((one) => this.entry(one)));
    this.tell();
  }

  options() {
    const { format, isLog, right } = this.definition;
    // On a logarithmic axis only the powers of ten have a line and a label.
    const only = isLog ? { filter: (_, splits) => splits.map((value) => (Math.abs(Math.log10(value) % 1) < 1e-9 ? value : null)) } : {};
    const axis = (scale, side, write) => ({
      ...only,
      scale,
      side,
      size: 64,
      font: "11px system-ui, 'DejaVu Sans', sans-serif",
      stroke: css("--quiet"),
      grid: { ...only, show: side !== 1, stroke: css("--grid"), width: 1 },
      ticks: { ...only, stroke: css("--grid"), width: 1 },
      values: (_, splits) => splits.map((value) => (value === null ? "" : write(value))),
    });
    const axes = [
      {
        font: "11px system-ui, 'DejaVu Sans', sans-serif",
        stroke: css("--quiet"),
        grid: { stroke: css("--grid"), width: 1 },
        ticks: { stroke: css("--grid"), width: 1 },
        size: 26,
        space: 64,
        values: (_, splits) => splits.map((at) => clock(at)),
      },
      axis("y", 3, format),
    ];
    if (right) axes.push(axis("right", 1, right.format));
    const fromZero = (_, __, most) => [0, most > 0 ? most * 1.1 : 1];
    const counted = (_, __, most) => [0, Math.max(4, Math.ceil((most ?? 0) * 1.2))];
    const powers = (_, least, most) => [
      10 ** Math.floor(Math.log10(Math.max(least ?? 0.1, 0.001))),
      10 ** Math.max(Math.ceil(Math.log10(Math.max(most ?? 1, 0.001) * 1.001)), Math.floor(Math.log10(Math.max(least ?? 0.1, 0.001))) + 1),
    ];
    return {
      width: Math.max(this.place.clientWidth, 100),
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: "aioproduce" }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { time: true },
        y: isLog ? { distr: 3, log: 10, range: powers } : { range: this.definition.isCount ? counted : fromZero },
        ...(right ? { right: { range: counted } } : {}),
      },
      axes,
      hooks: { setCursor: [() => this.tell()] },
      series: [
        {},
        ...this.series.map((one) => ({
          label: one.name,
          scale: one.scale ?? "y",
          stroke: colour(one.colour),
          width: 1.75,
          dash: DASHES[one.dash ?? 0],
          fill: one.fill ? `${colour(one.colour)}22` : undefined,
          spanGaps: false,
          // A line needs two neighbouring values: rare ones would be invisible.
          points: one.dots ? { show: true, size: 4, width: 1, fill: colour(one.colour) } : { show: false },
        })),
      ],
    };
  }

  entry(one) {
    const item = document.createElement("li");
    const mark = document.createElementNS(SVG, "svg");
    mark.setAttribute("width", "22");
    mark.setAttribute("height", "8");
    mark.setAttribute("aria-hidden", "true");
    const line = document.createElementNS(SVG, "line");
    for (const [name, value] of Object.entries({ x1: 0, x2: 22, y1: 4, y2: 4, "stroke-width": 2.5 })) line.setAttribute(name, value);
    line.setAttribute("stroke", colour(one.colour));
    line.setAttribute("stroke-dasharray", DASHES[one.dash ?? 0].join(" "));
    mark.append(line);
    const name = document.createElement("span");
    name.textContent = one.name;
    item.append(mark, name, document.createElement("b"));
    return item;
  }

  tell() {
    const at = this.plot?.cursor.idx ?? this.columns[0].length - 1;
    const told = this.series.map((one, index) => (one.format ?? this.definition.format)(this.columns[index + 1]?.[at] ?? null));
    told.forEach((text, index) => {
      const value = this.legend.children[index]?.querySelector("b");
      if (value && value.textContent !== text) value.textContent = text;
    });
    const spoken = this.series.map((one, index) => `${one.name} ${told[index]}`).join(", ");
    this.place.setAttribute("aria-label", `${this.definition.title}: ${spoken || "nothing yet"}`);
  }
}

const clock = (at) => {
  const time = new Date(at * 1000);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
};
