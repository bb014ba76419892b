// The page's words in the language that is chosen: the browser's at first, then what the visitor picks.

import { recall, remember } from "./storage.js";

const LANGUAGES = ["en", "zh"];
const CHOICE = "qanat.language";

let language = "en";
let words = {};
const listeners = [];

export async function startWords() {
  const chosen = recall(CHOICE);
  const wished = [chosen, ...(navigator.languages || [])].filter(Boolean).map((tag) => tag.slice(0, 2).toLowerCase());
  await useLanguage(wished.find((tag) => LANGUAGES.includes(tag)) || "en");
}

export async function chooseLanguage(tag) {
  remember(CHOICE, tag);
  await useLanguage(tag);
}

export function currentLanguage() {
  return language;
}

// The words under a key, with {name} replaced by the values.
export function say(key, values = {}) {
  const text = words[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

// Calls back after each change of the language: what was built with `say` is to be built again.
export function onLanguage(listener) {
  listeners.push(listener);
}

async function useLanguage(tag) {
  const response = await fetch(new URL(`languages/${tag}.json`, import.meta.url));
  words = await response.json();
  language = tag;
  document.documentElement.lang = tag === "zh" ? "zh-CN" : "en";
  for (const node of document.querySelectorAll("[data-text]")) node.textContent = say(node.dataset.text);
  for (const node of document.querySelectorAll("[data-label]")) node.setAttribute("aria-label", say(node.dataset.label));
  for (const node of document.querySelectorAll("[data-placeholder]")) node.placeholder = say(node.dataset.placeholder);
  for (const listener of listeners) listener();
}
