// The chat: what is said, what is being answered, and what the visitor does about it.

import { newAnswer } from "./answer.js";
import { getJson } from "./api.js";
import { ConversationList } from "./conversation_list.js";
import { byId } from "./dom.js";
import { explain, generate } from "./generation.js";
import { MessageView } from "./message_view.js";
import { offerModels, requestFields, SettingError, startSettings, systemMessages } from "./settings.js";
import { asRequest, keep, newConversation } from "./store.js";
import { resultsForm } from "./tool_calls.js";
import { watchTokens } from "./tooltip.js";
import { onLanguage, say } from "./words.js";

const MAX_TITLE = 60;
const NEAR_END = 80;

class Chat {
  constructor() {
    this.conversation = newConversation();
    this.running = null; // {conversation, controller}
    this.isLocked = false; // the status says why the server's models are not known
    this.box = byId("messages");
    this.list = new ConversationList({
      current: () => this.conversation,
      open: (conversation) => this.open(conversation),
      isBusy: (conversation) => this.running?.conversation.id === conversation.id,
    });
    this.toggle(null);
    startSettings(() => this.askForModels());
    watchTokens(this.box);
    this.listen();
    onLanguage(() => this.show());
    this.show();
    this.askForModels();
  }

  listen() {
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.sendInput();
    });
    byId("input").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return; // Enter also ends a word being composed
      event.preventDefault();
      this.sendInput();
    });
    byId("stop").addEventListener("click", () => this.stop());
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.isComposing) return;
      if (this.running) this.stop();
      else this.closePanels();
    });
    for (const name of ["conversations", "settings"]) {
      byId(`toggle-${name}`).addEventListener("click", () => this.toggle(name));
    }
  }

  // Opens or closes a panel beside the messages in a narrow window, and closes the other; null closes both.
  toggle(name) {
    for (const other of ["conversations", "settings"]) {
      const isOpen = byId(`${other}-panel`).classList.toggle("open", other === name ? undefined : false);
      byId(`toggle-${other}`).setAttribute("aria-expanded", String(isOpen));
      if (isOpen) byId(`${other}-panel`).focus();
    }
  }

  // Closes what is open beside the messages and gives the keyboard back to where it was opened.
  closePanels() {
    const opened = ["conversations", "settings"].find((name) => byId(`${name}-panel`).classList.contains("open"));
    this.toggle(null);
    if (opened) byId(`toggle-${opened}`).focus();
  }

  async askForModels() {
    try {
      const { data } = await getJson("v1/models");
      offerModels(data.map((one) => one.id));
      byId("model-name").textContent = data[0]?.id || "";
      if (this.isLocked) this.tell("");
      this.isLocked = false;
    } catch (error) {
      this.isLocked = true;
      this.tell(explain(error), true);
    }
  }

  open(conversation) {
    const isRunning = conversation !== null && this.running?.conversation.id === conversation.id;
    this.conversation = isRunning ? this.running.conversation : conversation || newConversation();
    this.show();
    this.toggle(null);
    byId("input").focus();
  }

  // Builds the messages anew from the conversation.
  show() {
    const { messages } = this.conversation;
    this.views = messages.map((message, index) => new MessageView(message, this.actions(message, index)));
    this.box.replaceChildren(...this.views.map((view) => view.node));
    if (this.isRunningHere) this.views.at(-1).update(true);
    this.showControls();
    this.box.scrollTop = this.box.scrollHeight;
  }

  showControls() {
    this.list.show();
    byId("stop").hidden = !this.running;
    byId("send").hidden = Boolean(this.running);
    byId("welcome").hidden = this.conversation.messages.length > 0;
    const last = this.conversation.messages.at(-1);
    const calls = last?.role === "assistant" && !this.isRunningHere ? last.toolCalls.filter(Boolean) : [];
    if (calls.length) this.box.append(resultsForm(calls, (results) => this.say(...results)));
  }

  get isRunningHere() {
    return this.running?.conversation === this.conversation;
  }

  // What can be done about a message. A question without an answer can be asked again.
  actions(message, index) {
    const goOn = (length, ...added) => {
      if (this.running) return;
      this.conversation.messages.length = length;
      this.say(...added);
    };
    const isLast = index === this.conversation.messages.length - 1;
    const kept = message.role === "assistant" ? index : index + 1;
    return {
      edit: message.role === "user" ? (content) => goOn(index, { role: "user", content }) : null,
      retry: message.role === "assistant" || isLast ? () => goOn(kept) : null,
    };
  }

  sendInput() {
    const content = byId("input").value.trim();
    if (!content || this.running) return;
    if (this.say({ role: "user", content })) byId("input").value = "";
  }

  // Adds these messages and asks for an answer. False if a setting is wrong: nothing was added then.
  say(...added) {
    const { conversation } = this;
    let fields;
    try {
      fields = requestFields();
    } catch (error) {
      if (!(error instanceof SettingError)) throw error;
      this.tell(error.message, true);
      byId("settings-panel").classList.add("open");
      error.field.focus();
      return false;
    }
    conversation.messages.push(...added);
    conversation.title ||= (conversation.messages[0]?.content || "").slice(0, MAX_TITLE);
    const body = { ...fields, messages: [...systemMessages(), ...asRequest(conversation.messages)] };
    this.answer(conversation, body);
    return true;
  }

  async answer(conversation, body) {
    const message = newAnswer();
    const controller = new AbortController();
    this.running = { conversation, controller };
    this.tell(say("answering"));
    this.save(conversation);
    conversation.messages.push(message);
    this.show();
    await generate(body, message, controller.signal, () => this.drawSoon());
    this.running = null;
    if (conversation === this.conversation) this.draw(false);
    const outcome = message.error ? "answerFailed" : message.end === "stopped" ? "answerStopped" : "answerComplete";
    this.tell(say(outcome));
    this.save(conversation);
    this.showControls();
  }

  // Shows the last message as it is now, and stays at the end unless the visitor scrolled up.
  draw(isRunning) {
    const isAtEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < NEAR_END;
    this.views.at(-1).update(isRunning);
    if (isAtEnd) this.box.scrollTop = this.box.scrollHeight;
  }

  // Shows news at most once a frame.
  drawSoon() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => {
      this.isDrawing = false;
      if (this.isRunningHere) this.draw(true);
    });
  }

  stop() {
    this.running?.controller.abort();
  }

  save(conversation) {
    if (!keep(conversation)) this.tell(say("storeFull"), true);
  }

  tell(text, isError = false) {
    const status = byId("status");
    status.textContent = text;
    status.classList.toggle("error", isError);
  }
}

export function startChat() {
  return new Chat();
}
