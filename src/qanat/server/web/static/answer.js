// Takes the events of one streamed chat answer into a message; see store.js for what a message holds.

import { TokenTrack, tokensFit } from "./tokens.js";

const OPEN = "<think>";
const CLOSE = "</think>";

export function newAnswer() {
  return { role: "assistant", content: "", reasoning: "", toolCalls: [] };
}

export class AnswerReader {
  constructor(message) {
    this.message = message;
    this.answerTrack = new TokenTrack();
    this.reasoningTrack = new TokenTrack();
  }

  add(event) {
    const { message } = this;
    if (event.usage) message.usage = event.usage;
    if (event.timing) message.timing = event.timing;
    const choice = event.choices?.[0];
    if (!choice) return;
    const { delta } = choice;
    message.content += delta.content || "";
    message.reasoning += delta.reasoning_content || delta.reasoning || "";
    for (const call of delta.tool_calls || []) addCall(message.toolCalls, call);
    if (choice.logprobs) this.addTokens(choice.logprobs);
    if (choice.finish_reason) message.end = choice.finish_reason;
  }

  addTokens({ content, reasoning }) {
    const { message } = this;
    this.answerTrack.add(content || []);
    this.reasoningTrack.add(reasoning || []);
    message.tokens = tokensFit(this.answerTrack, message.content) ? this.answerTrack.tokens : null;
    message.reasoningTokens = tokensFit(this.reasoningTrack, message.reasoning) ? this.reasoningTrack.tokens : null;
  }
}

function addCall(calls, { index, id, function: { name, arguments: text } = {} }) {
  calls[index] ??= { id: "", name: "", arguments: "" };
  calls[index].id ||= id || "";
  calls[index].name += name || "";
  calls[index].arguments += text || "";
}

// The parts of an answer to show: reasoning and answer, each {text, start, end, tokens}, a stretch of a text. Where
// the server does not tell them apart (--reasoning-parser none), the tags in the content do.
export function partsOf(message) {
  const { content, reasoning } = message;
  if (reasoning) {
    return { reasoning: whole(reasoning, message.reasoningTokens), answer: whole(content, message.tokens) };
  }
  const text = content;
  const tokens = message.tokens;
  const lead = text.length - text.trimStart().length;
  const start = text.startsWith(OPEN, lead) ? lead + OPEN.length : lead;
  const close = text.indexOf(CLOSE);
  if (close >= 0) {
    const from = close + CLOSE.length;
    return { reasoning: { text, start, end: close, tokens }, answer: { text, start: from, end: text.length, tokens } };
  }
  if (start > lead) return { reasoning: { text, start, end: text.length, tokens }, answer: whole("", null) };
  return { reasoning: null, answer: whole(text, tokens) };
}

function whole(text, tokens) {
  return { text, start: 0, end: text.length, tokens };
}
