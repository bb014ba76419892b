// Cuts a text into blocks: [{kind, start, end, ...}], where `parts` are stretches [start, end) of the source.

const FENCE = /^ {0,12}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+/;
const RULE = /^ {0,3}([-*_])[ \t]*(\1[ \t]*){2,}$/;
const ITEM = /^([ \t]*)([-*+]|(\d{1,9})[.)])[ \t]+/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_LINE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const MAX_NESTING = 8;

export function readBlocks(source, start, end) {
  const lines = readLines(source, start, end);
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].text.trim()) {
      at += 1;
      continue;
    }
    const from = at;
    const block = { kind: "text", parts: [] };
    at = readOne(lines, at, block);
    block.start = lines[from].start;
    block.end = lines[at - 1].end;
    blocks.push(block);
  }
  return blocks;
}

function readLines(source, start, end) {
  const lines = [];
  for (let at = start; at < end; ) {
    const found = source.indexOf("\n", at);
    const stop = found < 0 || found > end ? end : found;
    lines.push({ start: at, end: stop, text: source.slice(at, stop) });
    at = stop + 1;
  }
  return lines;
}

// Fills the block that begins at this line; returns the line after it.
function readOne(lines, at, block) {
  const { text } = lines[at];
  const fence = FENCE.exec(text);
  if (fence) return readCode(lines, at, block, fence);
  if (RULE.test(text)) {
    block.kind = "rule";
    return at + 1;
  }
  const heading = HEADING.exec(text);
  if (heading) {
    block.kind = "heading";
    block.level = heading[1].length;
    block.parts = [[lines[at].start + heading[0].length, lines[at].end]];
    return at + 1;
  }
  if (ITEM.test(text)) return readList(lines, at, block);
  if (QUOTE.test(text)) return readQuote(lines, at, block);
  if (isTable(lines, at)) return readTable(lines, at, block);
  const first = at;
  while (at < lines.length && lines[at].text.trim() && (at === first || !beginsOther(lines, at))) at += 1;
  block.parts = [[lines[first].start, lines[at - 1].end]];
  return at;
}

function beginsOther(lines, at) {
  const { text } = lines[at];
  return [FENCE, HEADING, RULE, ITEM, QUOTE].some((form) => form.test(text)) || isTable(lines, at);
}

function readCode(lines, at, block, fence) {
  const mark = fence[1];
  block.kind = "code";
  block.language = fence[2].trim();
  const first = at + 1;
  for (at = first; at < lines.length; at += 1) {
    const text = lines[at].text.trim();
    if (text.startsWith(mark) && !text.replaceAll(mark[0], "")) break;
  }
  if (at > first) block.parts = [[lines[first].start, lines[at - 1].end]];
  return Math.min(at + 1, lines.length);
}

function readQuote(lines, at, block) {
  block.kind = "quote";
  for (; at < lines.length; at += 1) {
    const found = QUOTE.exec(lines[at].text);
    if (!found) break;
    block.parts.push([lines[at].start + found[0].length, lines[at].end]);
  }
  return at;
}

// Items by their indentation: one that stands further in belongs to the item before it.
function readList(lines, at, block) {
  const open = [];
  begin(block, ITEM.exec(lines[at].text));
  open.push({ list: block, indent: indentOf(lines[at].text) });
  for (; at < lines.length; at += 1) {
    const { text, start, end } = lines[at];
    const found = ITEM.exec(text);
    if (!found) {
      if (!text.trim()) {
        const next = lines[at + 1];
        if (next && (ITEM.test(next.text) || indentOf(next.text) >= 2)) continue;
        return at;
      }
      if (indentOf(text) < 2 || FENCE.test(text)) return at;
      open.at(-1).list.items.at(-1).parts.push([start + text.length - text.trimStart().length, end]);
      continue;
    }
    const indent = indentOf(text);
    while (open.length > 1 && indent < open.at(-1).indent) open.pop();
    if (indent > open.at(-1).indent + 1 && open.length < MAX_NESTING) {
      const list = { kind: "list" };
      begin(list, found);
      open.at(-1).list.items.at(-1).children.push(list);
      open.push({ list, indent });
    }
    open.at(-1).list.items.push({ parts: [[start + found[0].length, end]], children: [] });
  }
  return at;
}

function begin(list, found) {
  list.kind = "list";
  list.isOrdered = found[3] !== undefined;
  list.first = Number(found[3] ?? 1);
  list.items = [];
}

function indentOf(text) {
  return /^[ \t]*/.exec(text)[0].replaceAll("\t", "    ").length;
}

function isTable(lines, at) {
  const next = lines[at + 1];
  return lines[at].text.includes("|") && next !== undefined && next.text.includes("-") && TABLE_LINE.test(next.text);
}

function readTable(lines, at, block) {
  block.kind = "table";
  block.rows = [cells(lines[at])];
  for (at += 2; at < lines.length && lines[at].text.includes("|"); at += 1) block.rows.push(cells(lines[at]));
  return at;
}

function cells({ start, text }) {
  const found = [];
  let from = 0;
  for (let at = 0; at <= text.length; at += 1) {
    if (at < text.length && (text[at] !== "|" || text[at - 1] === "\\")) continue;
    const cell = text.slice(from, at);
    const isEdge = !cell.trim() && (from === 0 || at === text.length);
    const lead = cell.length - cell.trimStart().length;
    if (!isEdge) found.push([start + from + lead, start + from + Math.max(lead, cell.trimEnd().length)]);
    from = at + 1;
  }
  return found;
}
