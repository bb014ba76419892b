// One message of a conversation on the page.

import { partsOf } from "./answer.js";
import { copyButton } from "./copy.js";
import { element } from "./dom.js";
import { showMarkdown } from "./markdown.js";
import { toolCallElement } from "./tool_calls.js";
import { say } from "./words.js";

// Args: the message; actions {edit(text), retry()}, null for those that cannot be taken.
export class MessageView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.body = element("div", { class: "body" });
    this.foot = element("div", { class: "foot" });
    this.node = element(
      "article",
      { class: `message ${message.role}` },
      element("h2", { class: "role" }, roleName(message)),
      this.body,
      this.foot,
    );
    this.update(false);
  }

  // Shows the message as it is now; `isRunning` while its answer is still coming.
  update(isRunning) {
    this.node.classList.toggle("running", isRunning);
    if (this.message.role === "assistant") this.updateAnswer(isRunning);
    else this.body.replaceChildren(element("div", { class: "plain" }, this.message.content));
    this.foot.replaceChildren(...(isRunning ? [] : this.footParts()));
  }

  updateAnswer(isRunning) {
    const { message } = this;
    const { reasoning, answer } = partsOf(message);
    if (reasoning) this.updateThinking(reasoning, isRunning && !answer.text.slice(answer.start).trim());
    this.answer ??= this.body.appendChild(element("div", { class: "markdown" }));
    showMarkdown(this.answer, answer.text, answer.start, answer.end, answer.tokens);
    this.calls ??= this.body.appendChild(element("div", { class: "calls" }));
    this.calls.replaceChildren(...message.toolCalls.filter(Boolean).map((call) => toolCallElement(call)));
    this.error ??= this.body.appendChild(element("p", { class: "error", role: "alert" }));
    this.error.textContent = message.error || "";
    this.error.hidden = !message.error;
  }

  updateThinking(part, isThinking) {
    if (!this.thinking) {
      this.thinking = element("div", { class: "markdown" });
      this.summary = element("summary");
      this.body.prepend(element("details", { class: "thinking" }, this.summary, this.thinking));
    }
    this.summary.textContent = say(isThinking ? "thinkingNow" : "thoughts");
    showMarkdown(this.thinking, part.text, part.start, part.end, part.tokens);
  }

  footParts() {
    const { message, actions } = this;
    const parts = [];
    if (message.content) parts.push(copyButton(() => message.content));
    if (actions.edit) parts.push(button("edit", () => this.beginEditing()));
    if (actions.retry) parts.push(button("retry", actions.retry));
    if (message.role === "assistant") parts.push(element("span", { class: "facts" }, factsOf(message).join(" · ")));
    return parts.filter(Boolean);
  }

  beginEditing() {
    const field = element("textarea", { rows: 4, "aria-label": say("edit") });
    field.value = this.message.content;
    const cancel = () => this.update(false);
    const send = () => field.value.trim() && this.actions.edit(field.value.trim());
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      }
    });
    this.body.replaceChildren(field);
    this.foot.replaceChildren(button("send", send), button("cancel", cancel));
    field.focus();
  }
}

function button(key, act) {
  return element("button", { type: "button", class: "small", onclick: act }, say(key));
}

function roleName({ role }) {
  return say({ user: "you", assistant: "modelRole", tool: "toolResult" }[role] || role);
}

// What is known of an answer's cost, in words.
function factsOf({ usage, timing, end }) {
  const facts = [];
  if (usage) {
    facts.push(say("tokensFact", { prompt: usage.prompt_tokens, output: usage.completion_tokens }));
    const cached = usage.prompt_tokens_details?.cached_tokens;
    if (cached) facts.push(say("cachedFact", { count: cached }));
  }
  if (usage && timing?.decode_s > 0 && usage.completion_tokens > 1) {
    facts.push(say("speedFact", { speed: ((usage.completion_tokens - 1) / timing.decode_s).toFixed(1) }));
  }
  if (timing?.first_token_s) facts.push(say("firstTokenFact", { seconds: timing.first_token_s.toFixed(2) }));
  if (end && end !== "stop" && end !== "tool_calls") facts.push(say(end === "length" ? "endLength" : "endStopped"));
  return facts;
}
