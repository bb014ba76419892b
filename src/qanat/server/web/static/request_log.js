// Requests for the waterfall: those that this page sent, and those that the server tells of where it does.

const MAX_REQUESTS = 40;
const ID_LENGTH = 8; // of the ids that /requests shows

const own = [];

// An id for the next request, by which it is found again among those that the server tells of.
export function newRequestId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Notes a request of this page, {id, title, startMs}, startMs of performance.now; what becomes of it is added when it
// ends: endMs, usage, timing, error.
export function noteRequest(request) {
  own.push(request);
  if (own.length > MAX_REQUESTS) own.shift();
  return request;
}

// All requests as the waterfall takes them, the latest first: {title, startS, durationS, timing, tokens, isRunning,
// hasFailed}. Args: what /requests answered, or null; when that was, in seconds of performance.now.
export function knownRequests(told, toldS) {
  const others = new Map((told || []).map((record) => [record.id, record]));
  const known = own.map((request) => {
    const shortId = request.id.slice(0, ID_LENGTH);
    const record = others.get(shortId);
    others.delete(shortId);
    return fromPage(request, record);
  });
  for (const record of others.values()) known.push(fromServer(record, toldS));
  return known.sort((one, other) => other.startS - one.startS);
}

// Until its answer tells the times of a request, the server's record of it does.
function fromPage({ startMs, endMs, title, usage, timing, error }, record) {
  const isRunning = endMs === undefined;
  return {
    title,
    startS: startMs / 1000,
    durationS: Math.max(1e-6, ((endMs ?? performance.now()) - startMs) / 1000),
    timing: timing || record,
    tokens: usage ? { prompt: usage.prompt_tokens, output: usage.completion_tokens } : null,
    isRunning,
    hasFailed: Boolean(error),
  };
}

function fromServer(record, toldS) {
  return {
    title: record.id,
    startS: toldS - record.age_s,
    durationS: Math.max(1e-6, record.duration_s),
    timing: record,
    tokens: { prompt: record.num_prompt_tokens, output: record.num_output_tokens },
    isRunning: record.is_running,
    hasFailed: record.code !== "",
  };
}
