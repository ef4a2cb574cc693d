// Numbers for people: three figures, a prefix, a unit.

const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

function figures(value) {
  const size = Math.abs(value);
  const text = size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

export function count(value, unit = "") {
  if (value === null || value === undefined) return "–";
  const [size, prefix] = PREFIXES.find(([least]) => Math.abs(value) >= least) ?? [1, ""];
  const tail = `${prefix}${unit}`;
  return figures(value / size) + (tail ? ` ${tail}` : "");
}

export const perSecond = (value) => (value === null || value === undefined ? "–" : `${count(value)}/s`);
export const bytes = (value) => count(value, "B");
export const bytesPerSecond = (value) => (value === null || value === undefined ? "–" : `${bytes(value)}/s`);

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 120000) return `${figures(value / 60000)} min`;
  if (value >= 1000) return `${figures(value / 1000)} s`;
  return value > 0 && value < 0.01 ? "<0.01 ms" : `${figures(value)} ms`;
}
