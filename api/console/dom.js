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
  for (const child of children.flat(3)) {
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

/** A value of an answer as text. */
export function text(value) {
  if (value === null || value === undefined) return "NULL";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/**
 * A table that scrolls by itself. A cell may be a text or an element.
 * @param {string[]} columns @param {Child[][]} rows @param {string} caption
 */
export function table(columns, rows, caption) {
  const head = h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)));
  const body = rows.map((row) => h("tr", {}, row.map(cell)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, head), h("tbody", {}, body)));
}

function cell(value) {
  const plain = !(value instanceof Node);
  const number = plain && typeof value === "number";
  return h("td", { class: value === null ? "null" : number ? "number" : undefined }, plain ? text(value) : value);
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

/** @param {number} value */
export function count(value) {
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}

/** An error where it has happened. @param {Error & {hint?: string, code?: string}} error */
export function problem(error) {
  return h("p", { class: "error", role: "alert" }, error.message, error.hint && h("span", { class: "hint" }, ` ${error.hint}`));
}
