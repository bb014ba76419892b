// Where the time of this page's requests went, one row each, the newest first.

import { element, svg } from "./dom.js";
import { asSeconds } from "./format.js";
import { say } from "./words.js";

const PHASES = ["phaseNetwork", "phaseQueue", "phasePrefill", "phaseDecode"];
const MAX_ROWS = 15;
const WIDTH = 1000;
const HEIGHT = 14;

export function waterfall(requests) {
  const rows = requests.slice(-MAX_ROWS).reverse();
  if (!rows.length) return [element("p", { class: "hint" }, say("noRequests"))];
  const longestS = Math.max(...rows.map(durationOf));
  const legend = PHASES.map((phase, index) =>
    element("li", {}, element("i", { class: `swatch series-${index + 1}` }), say(phase)),
  );
  return [
    element("ul", { class: "legend" }, ...legend),
    element("ul", { class: "rows" }, ...rows.map((request) => row(request, longestS))),
  ];
}

function row(request, longestS) {
  const phases = phasesOf(request);
  let at = 0;
  const bars = phases.map((lengthS, index) => {
    const x = (at / longestS) * WIDTH;
    at += lengthS;
    return svg("rect", { x, width: (lengthS / longestS) * WIDTH, height: HEIGHT, class: `series-${index + 1}` });
  });
  const words = phases.map((lengthS, index) => `${say(PHASES[index])} ${asSeconds(lengthS)}`).join(", ");
  const end = request.error ? say("failed") : asSeconds(durationOf(request));
  return element(
    "li",
    { title: words },
    element("span", { class: "title" }, request.title),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words }, ...bars),
    element("span", { class: "end" }, end),
  );
}

function durationOf({ startMs, endMs }) {
  return Math.max(1e-6, (endMs - startMs) / 1000);
}

// Seconds of each phase. What the server does not account for, it and the network spent on the way to and fro.
function phasesOf(request) {
  const { timing } = request;
  const known = [timing?.queue_s, timing?.prefill_s, timing?.decode_s].map((value) => value ?? 0);
  const rest = durationOf(request) - known.reduce((sum, value) => sum + value, 0);
  return [Math.max(0, rest), ...known];
}
