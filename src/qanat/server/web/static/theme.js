// Light or dark: as the system has it, or as the visitor chooses.

import { byId } from "./dom.js";
import { recall, remember } from "./storage.js";

const CHOICE = "qanat.theme";

export function startTheme() {
  const select = byId("theme");
  const chosen = recall(CHOICE);
  select.value = ["light", "dark"].includes(chosen) ? chosen : "auto";
  apply(select.value);
  select.addEventListener("change", () => {
    remember(CHOICE, select.value);
    apply(select.value);
  });
}

function apply(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
