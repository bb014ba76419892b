// Figures as people read them.

const NONE = "–";

export function asCount(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${(value / 1000).toFixed(1)}k`;
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}

export function asSeconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0 s";
  return value < 1 ? `${(value * 1000).toPrecision(value < 0.1 ? 2 : 3)} ms` : `${value.toFixed(2)} s`;
}

export function asShare(value) {
  if (value === null || value === undefined) return NONE;
  return `${(value * 100).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
}

export function asBytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit += 1) value /= 1024;
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}
