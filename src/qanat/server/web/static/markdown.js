// Shows a model's text: code, lists, tables, headings, quotes, bold. Elements are made by name and text is put in as
// text, so that nothing a model says can become markup. Every character keeps its place in the source, by which the
// token that it came from is found. Links and images stay text: an answer makes the browser ask nobody.

import { copyButton } from "./copy.js";
import { element } from "./dom.js";
import { readBlocks } from "./markdown_blocks.js";
import { partsByToken } from "./tokens.js";
import { tokenSpan } from "./tooltip.js";

const MAX_DEPTH = 4;
const ESCAPABLE = /[\\`*_{}[\]()#+\-.!|>~]/;

const shown = new WeakMap();

// Shows source[start, end) in the container. Called again with more text, it leaves blocks that are complete alone.
export function showMarkdown(container, source, start, end, tokens) {
  const blocks = readBlocks(source, start, end);
  const before = shown.get(container) || [];
  const page = { source, tokens };
  const now = blocks.map((block, index) => {
    const text = source.slice(block.start, block.end);
    const old = before[index];
    const isSettled = index < blocks.length - 1;
    if (old && old.isSettled && isSettled && old.start === block.start && old.text === text) return old;
    return { start: block.start, text, isSettled, node: blockElement(page, block) };
  });
  now.forEach((one, index) => {
    const there = container.childNodes[index];
    if (there !== one.node) there ? there.replaceWith(one.node) : container.append(one.node);
  });
  while (container.childNodes.length > now.length) container.lastChild.remove();
  shown.set(container, now);
}

function blockElement(page, block) {
  if (block.kind === "code") return codeElement(page, block);
  if (block.kind === "rule") return element("hr");
  if (block.kind === "heading") return withInline(page, element(`h${Math.min(6, block.level + 2)}`), block.parts);
  if (block.kind === "quote") return withInline(page, element("blockquote"), block.parts);
  if (block.kind === "table") return tableElement(page, block);
  if (block.kind === "list") return listElement(page, block);
  return withInline(page, element("p"), block.parts);
}

function codeElement(page, block) {
  const code = element("code");
  for (const [start, end] of block.parts) write(page, code, start, end);
  const bar = element("div", { class: "code-bar" }, element("span", {}, block.language), copyButton(() => code.textContent));
  return element("div", { class: "code-block" }, bar, element("pre", { tabindex: "0" }, code));
}

function listElement(page, block) {
  const list = element(block.isOrdered ? "ol" : "ul", { start: block.isOrdered ? block.first : null });
  for (const item of block.items) {
    const node = withInline(page, element("li"), item.parts);
    for (const child of item.children) node.append(blockElement(page, child));
    list.append(node);
  }
  return list;
}

function tableElement(page, block) {
  const [head, ...rows] = block.rows.map((cells, index) =>
    element("tr", {}, ...cells.map((cell) => withInline(page, element(index ? "td" : "th"), [cell]))),
  );
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", { class: "table-block", tabindex: "0" }, table);
}

function withInline(page, node, parts) {
  parts.forEach(([start, end], index) => {
    if (index) node.append("\n");
    inline(page, node, start, end, 0);
  });
  return node;
}

function write(page, node, start, end) {
  if (start >= end) return;
  if (!page.tokens) {
    node.append(page.source.slice(start, end));
    return;
  }
  for (const part of partsByToken(page.tokens, start, end)) {
    const text = page.source.slice(part.start, part.end);
    node.append(part.token ? tokenSpan(text, part.token) : text);
  }
}

// Code spans, bold, italics and escapes of one stretch. `missing` holds marks that do not come again, so that a text
// full of unpaired marks is read once and not once per mark.
function inline(page, node, start, end, depth) {
  const text = page.source.slice(start, end);
  const missing = new Set();
  let plain = 0;
  let at = 0;
  const find = (mark, from) => {
    if (missing.has(mark)) return -1;
    const found = text.indexOf(mark, from);
    if (found < 0) missing.add(mark);
    return found;
  };
  const wrap = (name, from, to, next, isCode) => {
    write(page, node, start + plain, start + at);
    const child = element(name);
    if (isCode || depth >= MAX_DEPTH) write(page, child, start + from, start + to);
    else inline(page, child, start + from, start + to, depth + 1);
    node.append(child);
    at = plain = next;
  };
  while (at < text.length) {
    const char = text[at];
    if (char === "`") {
      const mark = /^`+/.exec(text.slice(at, at + 16))[0];
      const close = find(mark, at + mark.length);
      if (close > at) wrap("code", at + mark.length, close, close + mark.length, true);
      else at += mark.length;
    } else if (char === "*") {
      const mark = text[at + 1] === "*" ? "**" : "*";
      const from = at + mark.length;
      const close = find(mark, from + 1);
      const isPair = close > from && /\S/.test(text[from]) && /\S/.test(text[close - 1]);
      if (isPair) wrap(mark === "*" ? "em" : "strong", from, close, close + mark.length, false);
      else at = from;
    } else if (char === "\\" && ESCAPABLE.test(text[at + 1] || "")) {
      write(page, node, start + plain, start + at);
      plain = at + 1;
      at += 2;
    } else {
      at += 1;
    }
  }
  write(page, node, start + plain, start + text.length);
}
