/**
 * Makes elements. Text is always a text node, so a name or value that looks like HTML is shown as what it is.
 */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/** An HTML element. @param {string} tag @param {Record<string, any>} [props] @param {...(Child | Child[])} children */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same in a drawing. @param {string} tag @param {Record<string, any>} [props] @param {...(Child | Child[])} children */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

/** @param {Element} element @param {(Child | Child[])[]} children */
export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
}

/** Puts these in place of what the element has. @param {Element} element @param {...(Child | Child[])} children */
export function show(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

/**
 * The same for what is made anew again and again: what had the focus has it again, and tables stay scrolled.
 * @param {Element} element @param {...(Child | Child[])} children
 */
export function renew(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const name = (each) => each.ariaLabel ?? each.textContent;
  const alike = () => [...element.querySelectorAll(focused.tagName)].filter((each) => name(each) === name(focused));
  const at = focused ? alike().indexOf(focused) : -1;
  const tables = () => [...element.querySelectorAll(".scroll")];
  const scrolled = tables().map((each) => [each.scrollLeft, each.scrollTop]);
  show(element, ...children);
  tables().forEach((each, number) => { [each.scrollLeft, each.scrollTop] = scrolled[number] ?? [0, 0]; });
  if (at >= 0) alike()[at]?.focus({ preventScroll: true });
}

/** A value of an answer as text. */
export function text(value) {
  if (value === null || value === undefined) return "NULL";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Rows that a table shows at once, and so many more at a click: a page with all of 10,000 does not answer any more. */
const ROWS = 200;
/** Letters of a value that are shown before it is opened, and after. */
const LETTERS = 300, LETTERS_MOST = 100_000;
/** How many rows were wanted of a table that is made anew again and again, by its caption. @type {Map<string, number>} */
const wanted = new Map();
addEventListener("hashchange", () => wanted.clear());

/**
 * A table that scrolls by itself. A cell may be a text or an element; those of rows that are not shown may be made late.
 * @param {string[]} columns @param {(Child[] | (() => Child[]))[]} rows @param {string} caption @param {(at: number) => boolean} [marked]
 */
export function table(columns, rows, caption, marked = () => false) {
  const head = h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)));
  const body = h("tbody"), more = h("p", { class: "more" });
  const fillUp = (most) => {
    const from = body.children.length;
    add(body, rows.slice(from, most).map((row, at) => h("tr", { class: marked(from + at) && "changed" }, (typeof row === "function" ? row() : row).map(cell))));
    show(more, rows.length > most && [`${most} of ${count(rows.length)} rows `, h("button", { type: "button", onclick: () => { wanted.set(caption, most + ROWS); fillUp(most + ROWS); } }, `Show ${ROWS} more`)]);
  };
  fillUp(wanted.get(caption) ?? ROWS);
  return h("div", {}, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, head), body)), more);
}

function cell(value) {
  if (value instanceof Node) return h("td", {}, value);
  const shown = text(value);
  return h("td", { class: value === null ? "null" : typeof value === "number" ? "number" : undefined }, shown.length > LETTERS ? long(shown) : shown);
}

/** A long value, closed. @param {string} value */
function long(value) {
  const rest = h("span");
  const cut = value.length > LETTERS_MOST ? ` … (${count(value.length)} letters)` : "";
  const open = () => show(rest, value.slice(0, LETTERS_MOST), cut);
  return h("details", { ontoggle: open }, h("summary", {}, `${value.slice(0, LETTERS)}…`), rest);
}

/** @param {number | null | undefined} size */
export function bytes(size) {
  if (size === null || size === undefined) return "–";
  for (const [unit, one] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (size >= one) return `${(size / one).toFixed(size >= 10 * one ? 0 : 1)} ${unit}`;
  }
  return `${size} B`;
}

/** @param {number | null | undefined} share */
export function percent(share) {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(share > 0.99 && share < 1 ? 2 : 0)} %`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  for (const [unit, one] of [["days", 86_400], ["h", 3600], ["min", 60]]) if (seconds >= 2 * one) return `${count(seconds / one)} ${unit}`;
  return `${count(seconds)} s`;
}

/** @param {number} value */
export function count(value) {
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}

/** `1 key`, `2 keys`. @param {number} number @param {string} word */
export const several = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** An error where it has happened. @param {Error & {hint?: string, code?: string}} error */
export function problem(error) {
  return h("p", { class: "error", role: "alert" }, error.message, error.hint && h("span", { class: "hint" }, ` ${error.hint}`));
}
