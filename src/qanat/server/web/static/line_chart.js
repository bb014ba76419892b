// A small chart of lines over the last minutes.

import { element, svg } from "./dom.js";
import { say } from "./words.js";

const WIDTH = 360;
const HEIGHT = 130;
const LEFT = 52;
const BOTTOM = 18;
const TOP = 8;
const GAP_S = 10; // a line is not drawn across times without readings

// Args: the key of its title; points with `timeS`; lines [{key, field}]; how values are written; the seconds shown.
export function lineChart({ title, points, lines, format, spanS }) {
  const endS = points.at(-1)?.timeS ?? 0;
  const values = points.flatMap((point) => lines.map((line) => point[line.field])).filter((value) => value !== null);
  const top = niceTop(Math.max(0, ...values));
  const x = (timeS) => LEFT + ((timeS - endS + spanS) / spanS) * (WIDTH - LEFT - 6);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": describe(title, points, lines, format) },
    ...[0, 0.5, 1].flatMap((part) => gridLine(y(part * top), values.length ? format(part * top) : "")),
    svg("text", { x: LEFT, y: HEIGHT - 4 }, say("minutesBack", { count: Math.round(spanS / 60) })),
    svg("text", { x: WIDTH - 6, y: HEIGHT - 4, "text-anchor": "end" }, say("now")),
    values.length ? null : noValues(),
    ...lines.map((line, index) =>
      svg("path", { d: path(points, line.field, x, y), class: `line series-${index + 1}` }),
    ),
  );
  return element("figure", { class: "chart" }, element("figcaption", {}, say(title)), legend(points, lines, format), picture);
}

function noValues() {
  const place = { x: (LEFT + WIDTH - 6) / 2, y: TOP + (HEIGHT - TOP - BOTTOM) / 4 + 4, "text-anchor": "middle" };
  return svg("text", { ...place, class: "no-values" }, say("noValues"));
}

function gridLine(y, label) {
  return [
    svg("line", { x1: LEFT, x2: WIDTH - 6, y1: y, y2: y, class: "grid" }),
    svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, label),
  ];
}

function legend(points, lines, format) {
  const items = lines.map((line, index) =>
    element("span", {}, element("i", { class: `swatch series-${index + 1}` }), `${say(line.key)} ${format(points.at(-1)?.[line.field])}`),
  );
  return element("div", { class: "legend" }, ...items);
}

function describe(title, points, lines, format) {
  return `${say(title)}: ${lines.map((line) => `${say(line.key)} ${format(points.at(-1)?.[line.field])}`).join(", ")}`;
}

function path(points, field, x, y) {
  let last = null;
  return points
    .filter((point) => point[field] !== null)
    .map((point) => {
      const isNew = last === null || point.timeS - last > GAP_S;
      last = point.timeS;
      const place = `${x(point.timeS).toFixed(1)} ${y(point[field]).toFixed(1)}`;
      return isNew ? `M${place}h.01` : `L${place}`;
    })
    .join("");
}

// The next of 1, 2, 5, 10, 20, ... (or 0.1, 0.2, ...) above the value.
function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value) || 10 * power;
}
