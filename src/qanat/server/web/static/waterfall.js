// Where the time of requests went, one row each, the latest first.

import { element, svg } from "./dom.js";
import { asSeconds } from "./format.js";
import { say } from "./words.js";

const PHASES = ["phaseNetwork", "phaseQueue", "phasePrefill", "phaseDecode"];
const MAX_ROWS = 20;
const WIDTH = 1000;
const HEIGHT = 14;

// Args: requests as `knownRequests` has them; whether those of others are among them.
export function waterfall(requests, hasOthers) {
  const rows = requests.slice(0, MAX_ROWS);
  const hint = element("p", { class: "hint" }, say(hasOthers ? "waterfallAll" : "waterfallOwn"));
  if (!rows.length) return [hint, element("p", { class: "empty" }, say(hasOthers ? "noRequestsYet" : "noRequests"))];
  const longestS = Math.max(...rows.map(({ durationS }) => durationS));
  const legend = PHASES.map((phase, index) =>
    element("li", {}, element("i", { class: `swatch series-${index + 1}` }), say(phase)),
  );
  return [
    hint,
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
  const parts = phases.map((lengthS, index) => `${say(PHASES[index])} ${asSeconds(lengthS)}`);
  if (request.tokens) parts.push(say("tokensFact", request.tokens));
  const words = parts.join(", ");
  return element(
    "li",
    { title: words, class: request.isRunning ? "running" : null },
    element("span", { class: "title" }, request.title),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words }, ...bars),
    element("span", { class: "end" }, endOf(request)),
  );
}

function endOf({ hasFailed, isRunning, durationS }) {
  if (hasFailed) return say("failed");
  return isRunning ? say("runningFor", { time: asSeconds(durationS) }) : asSeconds(durationS);
}

// Seconds of each phase. What the server does not account for, it and the network spent on the way to and fro.
function phasesOf({ timing, durationS }) {
  const known = [timing?.queue_s, timing?.prefill_s, timing?.decode_s].map((value) => value ?? 0);
  const rest = durationS - known.reduce((sum, value) => sum + value, 0);
  return [Math.max(0, rest), ...known];
}
