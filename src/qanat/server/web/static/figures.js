// The server's figures over the last minutes, from readings of /metrics.

import { quantile, readMetrics } from "./prometheus.js";

export const MAX_AGE_S = 300;
const LATENCY_WINDOW_S = 30; // of requests that came in it, percentiles are taken

const TTFT = "vllm:time_to_first_token_seconds_bucket";
const ITL = "vllm:inter_token_latency_seconds_bucket";

export class Figures {
  constructor() {
    this.readings = [];
    this.points = [];
  }

  // Takes a reading of /metrics made at this time, in seconds.
  add(timeS, text) {
    const reading = { timeS, ...readMetrics(text) };
    this.points.push(this.point(reading));
    this.readings.push(reading);
    const isOld = (one) => one.timeS < timeS - MAX_AGE_S;
    while (isOld(this.readings[0])) this.readings.shift();
    while (isOld(this.points[0])) this.points.shift();
  }

  get last() {
    return this.points.at(-1) || {};
  }

  // Figures of one moment; null where nothing is known.
  point(now) {
    const before = this.readings.at(-1);
    const past = this.readings.find((one) => one.timeS >= now.timeS - LATENCY_WINDOW_S) || before;
    const growth = (name, from = before) => {
      if (!from) return null;
      const grown = (now.sums.get(name) ?? 0) - (from.sums.get(name) ?? 0);
      return grown < 0 ? null : grown; // the server was started anew
    };
    const rate = (name) => (before ? perSecond(growth(name), now.timeS - before.timeS) : null);
    const late = (name, part) => (past ? quantile(past, now, name, part) : null);
    const cacheUse = "vllm:kv_cache_usage_perc";
    return {
      timeS: now.timeS,
      running: now.sums.get("vllm:num_requests_running") ?? null,
      waiting: now.sums.get("vllm:num_requests_waiting") ?? null,
      outputSpeed: rate("vllm:generation_tokens_total"),
      promptSpeed: rate("vllm:prompt_tokens_total"),
      ttft: late(TTFT, 0.5),
      ttftP99: late(TTFT, 0.99),
      itl: late(ITL, 0.5),
      itlP99: late(ITL, 0.99),
      cacheUse: now.counts.has(cacheUse) ? now.sums.get(cacheUse) / now.counts.get(cacheUse) : null,
      cacheHits: ratio(growth("vllm:prefix_cache_hits_total", past), growth("vllm:prefix_cache_queries_total", past)),
      acceptance: ratio(
        growth("vllm:spec_decode_num_accepted_tokens_total", past),
        growth("vllm:spec_decode_num_draft_tokens_total", past),
      ),
    };
  }
}

function perSecond(grown, durationS) {
  return grown === null || durationS <= 0 ? null : grown / durationS;
}

function ratio(part, whole) {
  return part === null || !whole ? null : part / whole;
}
