// Reads the text of /metrics: sums over replicas, and times at which a share of a histogram's values lies.

const LINE = /^([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)/;
const BOUND = /le="([^"]+)"/;

// {sums, counts, buckets}: by name the sum and the number of its samples; of histograms the bounds and what is below.
export function readMetrics(text) {
  const sums = new Map();
  const counts = new Map();
  const buckets = new Map();
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (!found) continue;
    const [, name, labels, written] = found;
    const value = Number(written);
    const bound = name.endsWith("_bucket") && labels ? BOUND.exec(labels) : null;
    if (bound) {
      const below = buckets.get(name) || new Map();
      below.set(bound[1], (below.get(bound[1]) || 0) + value);
      buckets.set(name, below);
    } else {
      sums.set(name, (sums.get(name) || 0) + value);
      counts.set(name, (counts.get(name) || 0) + 1);
    }
  }
  return { sums, counts, buckets };
}

// The value below which `share` of those lie that came between two readings; null if none came. Within a bucket values
// are taken to be spread evenly.
export function quantile(before, after, name, share) {
  const old = before.buckets.get(name) || new Map();
  const now = [...(after.buckets.get(name) || [])].map(([bound, count]) => ({
    bound: bound === "+Inf" ? Infinity : Number(bound),
    count: count - (old.get(bound) || 0),
  }));
  now.sort((one, other) => one.bound - other.bound);
  const total = now.at(-1)?.count || 0;
  if (total <= 0) return null;
  let lower = { bound: 0, count: 0 };
  for (const upper of now) {
    if (upper.count >= share * total) {
      if (upper.bound === Infinity) return lower.bound;
      const inside = (share * total - lower.count) / Math.max(1e-9, upper.count - lower.count);
      return lower.bound + (upper.bound - lower.bound) * inside;
    }
    lower = upper;
  }
  return lower.bound;
}
