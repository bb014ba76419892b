// Sends one request and reads its answer into a message.

import { AnswerReader } from "./answer.js";
import { ApiError, streamEvents } from "./api.js";
import { newRequestId, noteRequest } from "./request_log.js";
import { say } from "./words.js";

// Args: the request's body; the message to fill; a signal that stops it; `onNews`, called when the message changed.
// Never throws: what went wrong stands in the message.
export async function generate(body, message, signal, onNews) {
  const reader = new AnswerReader(message);
  const id = newRequestId();
  const title = body.messages.at(-1).content;
  const noted = noteRequest({ id, title, startMs: performance.now() });
  try {
    for await (const event of streamEvents("v1/chat/completions", body, signal, id)) {
      reader.add(event);
      onNews();
    }
  } catch (error) {
    if (signal.aborted) message.end = "stopped";
    else message.error = explain(error);
  }
  const { usage, timing, error } = message;
  Object.assign(noted, { endMs: performance.now(), usage, timing, error });
}

// An error in the visitor's language where its kind is known, with the server's own words.
export function explain(error) {
  if (!(error instanceof ApiError)) return say("errorUnreachable");
  if (error.status === 401) return say("errorKey");
  if (!error.message) return say("errorBroken");
  return say("errorServer", { status: error.status || "", message: error.message });
}
