// Calls of this server. Addresses are relative to the page, so that they hold behind a proxy that adds a prefix.

const KEY = "qanat.apiKey";

let key = recallKey();

// The key lives as long as the tab; it is never written to the disk by this page.
export function apiKey() {
  return key;
}

export function keepApiKey(given) {
  key = given;
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // The browser keeps nothing: the key lasts as long as the page.
  }
}

function recallKey() {
  try {
    return sessionStorage.getItem(KEY) || "";
  } catch {
    return "";
  }
}

// What the server answered in place of what was asked for.
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function getJson(path) {
  return (await ask(path)).json();
}

export async function getText(path) {
  return (await ask(path)).text();
}

// Posts a request under this id and yields the events of the streamed answer; ends at [DONE], throws ApiError for an
// error event.
export async function* streamEvents(path, body, signal, id) {
  const response = await ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Request-Id": id },
    body: JSON.stringify(body),
    signal,
  });
  let isComplete = false;
  for await (const data of dataLines(response.body)) {
    if (data === "[DONE]") {
      isComplete = true; // the response ends by itself: to leave now would look like a hang-up
      continue;
    }
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(event.error.code, event.error.message);
    yield event;
  }
  if (!isComplete) throw new ApiError(0, "");
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (apiKey()) headers.Authorization = `Bearer ${apiKey()}`;
  const response = await fetch(path, { cache: "no-store", ...options, headers });
  if (response.ok) return response;
  let message = response.statusText;
  try {
    message = (await response.json()).error.message;
  } catch {
    // Something between here and the server answered in its own words.
  }
  throw new ApiError(response.status, message);
}

async function* dataLines(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      const lines = rest.split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
