// Conversations, in this browser only.
//
// A conversation: {id, title, changed, messages}. A message: {role, content}, and of the model's also reasoning,
// toolCalls [{id, name, arguments}], tokens and reasoningTokens (see tokens.js), end (the finish reason), usage,
// timing, error. Of a tool also toolCallId.

import { recallJson, remember } from "./storage.js";

const CONVERSATIONS = "qanat.conversations";

// All that are kept, the latest first. They are read each time: other tabs keep theirs in the same place.
export function allConversations() {
  return read().sort((one, other) => other.changed - one.changed);
}

export function newConversation() {
  const id = crypto.getRandomValues(new Uint32Array(2)).join("-");
  return { id, title: "", changed: Date.now(), messages: [] };
}

// Keeps the conversation; false if the browser has no room for it. Probabilities of tokens take most of the room, so
// the other conversations lose theirs first.
export function keep(conversation) {
  conversation.changed = Date.now();
  const others = read().filter(({ id }) => id !== conversation.id);
  return write([...others, conversation]) || write([...others.map(withoutTokens), conversation]);
}

export function forget({ id }) {
  write(read().filter((one) => one.id !== id));
}

export function forgetAll() {
  write([]);
}

// The conversation as a file for people and programs: messages as the API takes them.
export function exported(conversation) {
  return JSON.stringify({ title: conversation.title, messages: asRequest(conversation.messages) }, null, 2);
}

// Messages as /v1/chat/completions takes them; answers that failed before they said anything are left out.
export function asRequest(messages) {
  return messages.filter(saysSomething).map((message) => {
    const { role, content } = message;
    if (role === "tool") return { role, tool_call_id: message.toolCallId, content };
    if (role !== "assistant") return { role, content };
    const sent = { role, content: content || "" };
    if (message.reasoning) sent.reasoning_content = message.reasoning;
    if (message.toolCalls?.length) {
      sent.tool_calls = message.toolCalls.map((call) => ({
        id: call.id,
        type: "function",
        function: { name: call.name, arguments: call.arguments },
      }));
    }
    return sent;
  });
}

function saysSomething(message) {
  return message.role !== "assistant" || message.content || message.toolCalls?.length;
}

function read() {
  const found = recallJson(CONVERSATIONS, []);
  return Array.isArray(found) ? found.filter((one) => one?.id && Array.isArray(one.messages)) : [];
}

function write(conversations) {
  return remember(CONVERSATIONS, JSON.stringify(conversations));
}

function withoutTokens(conversation) {
  const messages = conversation.messages.map((one) => ({ ...one, tokens: null, reasoningTokens: null }));
  return { ...conversation, messages };
}
