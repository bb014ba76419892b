// Where the memory went, from /v1/plan, and how much of the cache is in use now.

import { element, svg } from "./dom.js";
import { asBytes, asCount, asShare } from "./format.js";
import { say } from "./words.js";

const PARTS = ["weight_bytes", "workspace_bytes", "blocks_bytes", "states_bytes", "checkpoints_bytes"];
const WIDTH = 1000;
const HEIGHT = 40;

// Args: `memory` of /v1/plan; the share of KV blocks in use, or null.
export function memoryMap(memory, cacheUse) {
  const whole = Math.max(memory.budget_bytes, memory.total_bytes);
  const bars = [];
  const items = [];
  let at = 0;
  PARTS.forEach((part, index) => {
    const size = memory[part];
    if (!size) return;
    const width = (size / whole) * WIDTH;
    const isCache = part === "blocks_bytes" && cacheUse !== null;
    const used = isCache ? ` (${say("memoryUsed", { share: asShare(cacheUse) })})` : "";
    const label = `${say(`memory_${part}`)} ${asBytes(size)}${used}`;
    bars.push(bar(at, width, `series-${index + 1}${isCache ? " empty" : ""}`, label));
    if (isCache) bars.push(bar(at, width * cacheUse, `series-${index + 1}`, label));
    items.push(element("li", {}, element("i", { class: `swatch series-${index + 1}` }), label));
    at += width;
  });
  const free = whole - memory.total_bytes;
  if (free > 0) items.push(element("li", {}, element("i", { class: "swatch free" }), `${say("memoryFree")} ${asBytes(free)}`));
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": say("memoryMap"), class: "map" },
    svg("rect", { width: WIDTH, height: HEIGHT, class: "free" }),
    ...bars,
  );
  const facts = [
    say("memoryBudget", { size: asBytes(memory.budget_bytes) }),
    say("memoryTokens", { count: asCount(memory.max_cached_tokens) }),
  ];
  return [picture, element("ul", { class: "legend" }, ...items), element("p", { class: "hint" }, facts.join(" · "))];
}

function bar(x, width, kind, label) {
  return svg("rect", { x, width, height: HEIGHT, class: kind }, svg("title", {}, label));
}
