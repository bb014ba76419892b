// Conversations, in this browser only.
//
// A conversation: {id, title, changed, messages}. A message: {role, content}, and of the model's also reasoning,
// toolCalls [{id, name, arguments}], tokens and reasoningTokens (see tokens.js), end (the finish reason), usage,
// timing, error. Of a tool also toolCallId.

const CONVERSATIONS = "qanat.conversations";

let conversations = read();

export function allConversations() {
  return [...conversations].sort((one, other) => other.changed - one.changed);
}

export function findConversation(id) {
  return conversations.find((one) => one.id === id) || null;
}

export function newConversation() {
  return { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), title: "", changed: Date.now(), messages: [] };
}

// Keeps the conversation; false if the browser has no room for it. Probabilities of tokens take most of the room, so
// the conversations that have not been touched for longest lose theirs first.
export function keep(conversation) {
  conversation.changed = Date.now();
  if (!conversations.includes(conversation)) conversations.push(conversation);
  return write() || (withoutTokens(conversations.filter((one) => one !== conversation)) && write());
}

export function forget(conversation) {
  conversations = conversations.filter((one) => one !== conversation);
  write();
}

export function forgetAll() {
  conversations = [];
  write();
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
  try {
    const found = JSON.parse(localStorage.getItem(CONVERSATIONS) || "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

function write() {
  try {
    localStorage.setItem(CONVERSATIONS, JSON.stringify(conversations));
    return true;
  } catch {
    return false;
  }
}

function withoutTokens(some) {
  for (const message of some.flatMap((one) => one.messages)) {
    delete message.tokens;
    delete message.reasoningTokens;
  }
  return true;
}
