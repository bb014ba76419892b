// The parameters of requests, as the visitor sets them. All but the key are kept in this browser.

import { apiKey, keepApiKey } from "./api.js";
import { byId, element } from "./dom.js";
import { recallJson, remember } from "./storage.js";
import { say } from "./words.js";

const SETTINGS = "qanat.settings";
const NUMBERS = { temperature: "temperature", "top-p": "top_p", "max-tokens": "max_tokens", seed: "seed" };
const KEPT = ["model", "system-prompt", "thinking", "tools", ...Object.keys(NUMBERS)];
const NUM_ALTERNATIVES = 5;

// A field holds what cannot be sent.
export class SettingError extends Error {
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

export function startSettings(onKey) {
  const kept = read();
  for (const id of KEPT) if (typeof kept[id] === "string" && id !== "model") byId(id).value = kept[id];
  byId("logprobs").checked = kept.logprobs !== false;
  byId("api-key").value = apiKey();
  const form = byId("settings-form");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", write);
  byId("api-key").addEventListener("change", () => {
    keepApiKey(byId("api-key").value.trim());
    onKey();
  });
}

// Offers these models; the one that was used last stays chosen if it is among them.
export function offerModels(names) {
  const select = byId("model");
  const wished = select.value || read().model;
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(wished)) select.value = wished;
}

// The system prompt as a message, or none.
export function systemMessages() {
  const content = byId("system-prompt").value.trim();
  return content ? [{ role: "system", content }] : [];
}

// Fields of a request, but for its messages. Fields that are empty are left to the server.
export function requestFields() {
  const fields = { stream: true, stream_options: { include_usage: true } };
  if (byId("model").value) fields.model = byId("model").value;
  for (const [id, name] of Object.entries(NUMBERS)) {
    const input = byId(id);
    if (!input.checkValidity()) throw new SettingError(say("notValid", { field: labelOf(input) }), input);
    if (input.value !== "") fields[name] = Number(input.value);
  }
  const thinking = byId("thinking").value;
  if (thinking !== "default") fields.chat_template_kwargs = { enable_thinking: thinking === "on" };
  if (byId("logprobs").checked) Object.assign(fields, { logprobs: true, top_logprobs: NUM_ALTERNATIVES });
  const tools = readTools();
  if (tools.length) fields.tools = tools;
  return fields;
}

function readTools() {
  const input = byId("tools");
  if (!input.value.trim()) return [];
  try {
    const tools = JSON.parse(input.value);
    if (Array.isArray(tools)) return tools;
  } catch {
    // Said below, as for JSON that is no list.
  }
  throw new SettingError(say("notTools"), input);
}

function labelOf(input) {
  return input.closest("label").querySelector("span").textContent;
}

function read() {
  return recallJson(SETTINGS, {});
}

function write() {
  const kept = Object.fromEntries(KEPT.map((id) => [id, byId(id).value]));
  kept.logprobs = byId("logprobs").checked;
  remember(SETTINGS, JSON.stringify(kept));
}
