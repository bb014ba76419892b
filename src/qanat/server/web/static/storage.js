// What the browser keeps for this page. Where it keeps nothing (its owner may forbid it), all lasts as long as the page.

export function recall(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

// Keeps a text; false if there is no room for it.
export function remember(key, text) {
  try {
    localStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}

// The value that was kept as JSON; the other value if there is none that can be read.
export function recallJson(key, other) {
  try {
    return JSON.parse(recall(key)) ?? other;
  } catch {
    return other;
  }
}
