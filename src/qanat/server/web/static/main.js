// Starts the page: language, theme, and the two views.

import { startChat } from "./chat.js";
import { Dashboard } from "./dashboard.js";
import { byId } from "./dom.js";
import { startTheme } from "./theme.js";
import { chooseLanguage, currentLanguage, startWords } from "./words.js";

const VIEWS = ["chat", "dashboard"];

await startWords();
startTheme();
const language = byId("language");
language.value = currentLanguage();
language.addEventListener("change", () => chooseLanguage(language.value));
const dashboard = new Dashboard();
startChat();
window.addEventListener("hashchange", showView);
showView();

function showView() {
  const wished = location.hash.slice(1);
  const shown = VIEWS.includes(wished) ? wished : "chat";
  for (const view of VIEWS) {
    byId(`view-${view}`).hidden = view !== shown;
    if (view === shown) byId(`tab-${view}`).setAttribute("aria-current", "page");
    else byId(`tab-${view}`).removeAttribute("aria-current");
  }
  dashboard.setVisible(shown === "dashboard");
  if (shown === "chat") byId("input").focus();
}
