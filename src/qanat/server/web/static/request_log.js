// The requests that this page sent since it was opened, for the waterfall of the dashboard.

const MAX_REQUESTS = 40;

const requests = [];

// Notes a request that has ended: {startMs, endMs (of performance.now), title, usage, timing, error}.
export function noteRequest(request) {
  requests.push(request);
  if (requests.length > MAX_REQUESTS) requests.shift();
}

export function notedRequests() {
  return requests;
}
