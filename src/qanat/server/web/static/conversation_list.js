// The conversations that this browser keeps, beside the chat.

import { byId, element } from "./dom.js";
import { allConversations, exported, forget, forgetAll } from "./store.js";
import { say } from "./words.js";

// Args: `current()`, the conversation that is shown; `open(conversation)`, null for a new one; `isBusy(conversation)`,
// true while its answer is coming: it stays then.
export class ConversationList {
  constructor({ current, open, isBusy }) {
    this.current = current;
    this.open = open;
    this.isBusy = isBusy;
    byId("new-conversation").addEventListener("click", () => open(null));
    byId("export-conversation").addEventListener("click", () => save(current()));
    byId("delete-all").addEventListener("click", () => this.deleteAll());
  }

  show() {
    const items = allConversations().map((one) => this.item(one));
    byId("conversation-list").replaceChildren(...items);
    byId("export-conversation").disabled = !this.current().messages.length;
    byId("delete-all").disabled = !items.length;
  }

  item(conversation) {
    const title = conversation.title || say("untitled");
    const isCurrent = conversation.id === this.current().id;
    return element(
      "li",
      {},
      element(
        "button",
        { type: "button", class: "title", "aria-current": isCurrent ? "true" : null, onclick: () => this.open(conversation) },
        title,
      ),
      element(
        "button",
        { type: "button", class: "small", "aria-label": say("deleteOne", { title }), onclick: () => this.delete(conversation) },
        "×",
      ),
    );
  }

  delete(conversation) {
    if (this.isBusy(conversation)) return;
    forget(conversation);
    if (conversation.id === this.current().id) this.open(null);
    else this.show();
  }

  deleteAll() {
    if (allConversations().some(this.isBusy) || !window.confirm(say("deleteAllQuestion"))) return;
    forgetAll();
    this.open(null);
  }
}

function save(conversation) {
  const url = URL.createObjectURL(new Blob([exported(conversation)], { type: "application/json" }));
  element("a", { href: url, download: `qanat-${conversation.id}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
