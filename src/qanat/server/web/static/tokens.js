// Which characters of a text came from which token, and how likely it was.

// Takes entries of `logprobs.content` as they come; each token knows the end of its part of the text.
export class TokenTrack {
  constructor() {
    this.tokens = [];
    this.text = "";
    this.decoder = new TextDecoder();
  }

  add(entries) {
    for (const entry of entries) {
      this.text += this.decoder.decode(new Uint8Array(entry.bytes || []), { stream: true });
      this.tokens.push({
        end: this.text.length,
        token: entry.token,
        logprob: entry.logprob,
        top: (entry.top_logprobs || []).map(({ token, logprob }) => ({ token, logprob })),
      });
    }
  }
}

// Whether tokens tell where this text came from. They may run ahead: a stop string cuts text, not tokens.
export function tokensFit(track, text) {
  return track.tokens.length > 0 && (track.text.startsWith(text) || text.startsWith(track.text));
}

// The parts of text[start, end) by token: [{start, end, token}], token null where none is known.
export function partsByToken(tokens, start, end) {
  const parts = [];
  let index = firstEndingAfter(tokens, start);
  let from = start;
  while (from < end) {
    const token = tokens[index] || null;
    const to = token ? Math.min(token.end, end) : end;
    if (to > from) parts.push({ start: from, end: to, token });
    from = to;
    index += 1;
  }
  return parts;
}

function firstEndingAfter(tokens, position) {
  let low = 0;
  let high = tokens.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tokens[middle].end > position) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function percent(logprob) {
  const share = Math.exp(logprob) * 100;
  if (share >= 99.95) return "100 %";
  if (share < 0.01) return "< 0.01 %";
  return `${share >= 10 ? share.toFixed(1) : share.toPrecision(2)} %`;
}
