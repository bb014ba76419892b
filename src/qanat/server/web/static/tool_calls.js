// Tool calls of an answer, and the form by which the visitor plays the tools.

import { element } from "./dom.js";
import { say } from "./words.js";

export function toolCallElement(call) {
  return element(
    "details",
    { class: "call", open: true },
    element("summary", {}, say("toolCall", { name: call.name || "…" })),
    element("pre", { tabindex: "0" }, element("code", {}, readable(call.arguments))),
  );
}

// Asks for the result of each call; `send` gets the messages that carry them.
export function resultsForm(calls, send) {
  const fields = calls.map((call) => ({ call, input: element("textarea", { rows: 2, class: "code" }) }));
  const labels = fields.map(({ call, input }) => element("label", {}, say("resultOf", { name: call.name }), input));
  const form = element("form", { class: "results" }, ...labels, element("button", { class: "primary" }, say("sendResults")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(fields.map(({ call, input }) => ({ role: "tool", toolCallId: call.id, content: input.value })));
  });
  return form;
}

// JSON with indentation once it is complete, as it came until then.
function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
