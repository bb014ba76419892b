// A button that copies a text. Without HTTPS browsers offer no clipboard; there is no button then.

import { element } from "./dom.js";
import { say } from "./words.js";

export function copyButton(read) {
  if (!navigator.clipboard) return null;
  const button = element("button", { type: "button", class: "small" }, say("copy"));
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(read());
    button.textContent = say("copied");
    setTimeout(() => (button.textContent = say("copy")), 1500);
  });
  return button;
}
