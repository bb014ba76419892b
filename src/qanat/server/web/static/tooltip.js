// Shows how likely the token under the pointer was, and what else the model considered.

import { byId, element } from "./dom.js";
import { percent } from "./tokens.js";
import { say } from "./words.js";

const tokenOf = new WeakMap();

// A span for a token's text; unlikely ones are marked.
export function tokenSpan(text, token) {
  const chance = Math.exp(token.logprob);
  const kind = chance < 0.2 ? "token rare" : chance < 0.6 ? "token unsure" : "token";
  const span = element("span", { class: kind }, text);
  tokenOf.set(span, token);
  return span;
}

// Watches a part of the page for tokens under the pointer (or a finger).
export function watchTokens(container) {
  const tooltip = byId("tooltip");
  const show = (event) => {
    const token = tokenOf.get(event.target);
    if (!token) {
      tooltip.hidden = true;
      return;
    }
    tooltip.replaceChildren(...lines(token));
    tooltip.hidden = false;
    place(tooltip, event.target.getBoundingClientRect());
  };
  container.addEventListener("pointerover", show);
  container.addEventListener("pointerdown", show);
  container.addEventListener("pointerleave", () => (tooltip.hidden = true));
  container.addEventListener("scroll", () => (tooltip.hidden = true));
}

function lines(token) {
  const alternatives = token.top.filter((one) => one.token !== token.token);
  const rows = [token, ...alternatives].map((one, index) =>
    element(
      "tr",
      { class: index ? null : "chosen" },
      element("td", { class: "code" }, visible(one.token)),
      element("td", {}, percent(one.logprob)),
    ),
  );
  return [element("table", {}, element("caption", {}, say("tokenProbability")), element("tbody", {}, ...rows))];
}

function visible(token) {
  return token.replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥") || "∅";
}

function place(tooltip, target) {
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.max(4, Math.min(target.left, window.innerWidth - width - 4));
  const isRoomBelow = target.bottom + height + 8 < window.innerHeight;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${isRoomBelow ? target.bottom + 6 : Math.max(4, target.top - height - 6)}px`;
}
