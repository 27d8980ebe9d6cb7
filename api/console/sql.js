/** A worksheet: statements with a button each, their results, and errors where they are. */

import { every, get, migrate, run } from "./api.js";
import { h, problem, renew, several, show as put, table } from "./dom.js";
import { draw, treeOf } from "./drawing.js";

export const TITLE = "SQL";
const KEPT = "headrace-history";
const HISTORY_MOST = 50;
const PAUSE = 2000;
const SUGGESTED = 8;
/** Tables, and views, that the catalogue shows. */
const LISTED = 300;
const WORDS = `SELECT FROM WHERE GROUP BY ORDER BY HAVING LIMIT JOIN LEFT JOIN ON AND OR NOT NULL IN EXISTS BETWEEN LIKE AS DISTINCT
 INSERT INTO VALUES UPDATE SET DELETE CREATE TABLE CREATE VIEW CREATE EXT VIEW DROP ALTER EXPLAIN COUNT(*) SUM( MIN( MAX( AVG( PRIMARY KEY
 INT BIGINT TEXT DOUBLE DECIMAL DATETIME SHOW GRANTS SHOW API KEYS UNION ALL WITH CASE WHEN THEN ELSE END COALESCE(`.split(/\s+/);

/**
 * The statements of a text with where they begin. A `;` in a string, a quoted name or a comment ends none.
 * @param {string} text @returns {{sql: string, start: number, end: number}[]}
 */
export function statementsOf(text) {
  const found = [];
  const pieces = /'(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.|"")*"?|`[^`]*`?|--[^\n]*|#[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|;/g;
  let start = 0;
  const take = (end) => {
    const raw = text.slice(start, end);
    const sql = raw.trim();
    if (sql) found.push({ sql, start: start + raw.indexOf(sql), end });
    start = end + 1;
  };
  for (const piece of text.matchAll(pieces)) if (piece[0] === ";") take(piece.index);
  take(text.length);
  return found;
}

/** Where an error's message says it is, in the statement. @param {string} sql @param {string} message */
export function placeOf(sql, message) {
  const found = message.match(/at line (\d+), column (\d+)/);
  if (!found) return null;
  const line = Number(found[1]), column = Number(found[2]);
  const lines = sql.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return { line, column, text: lines[line - 1] ?? "", offset: Math.min(before + column - 1, sql.length) };
}

export async function show(main, { query }, signal) {
  const editor = h("textarea", {
    id: "editor", rows: 9, spellcheck: "false", autocapitalize: "off", "aria-describedby": "keys",
    "aria-controls": "suggestions", "aria-autocomplete": "list",
    value: query.get("q") ?? "SELECT 1 + 1 AS two;\n",
  });
  const buttons = h("div", { class: "statements", role: "group", "aria-label": "Statements" });
  const suggestions = h("ul", { id: "suggestions", role: "listbox", "aria-label": "Completions", hidden: true });
  const results = h("div", { id: "results", "aria-live": "polite" });
  const catalogue = h("div", { class: "catalogue" }), history = h("div");
  main.append(
    h("h1", {}, "SQL"),
    h("label", { for: "editor" }, "Statements, separated by ;"), h("div", { class: "complete" }, editor, suggestions),
    h("p", { id: "keys", class: "hint" }, "Ctrl+Enter runs the statement at the cursor, Ctrl+Shift+Enter all. Ctrl+Space completes; Escape closes the list."),
    buttons, results,
    h("div", { class: "columns" }, h("section", {}, h("h2", {}, "History"), history), h("section", {}, h("h2", {}, "Catalogue"), catalogue)),
  );
  const sheet = { editor, results, signal, names: [], tables: {}, views: {}, refresh: () => refresh(sheet, catalogue), recall: () => recall(sheet, history) };
  for (const change of ["input", "completed"]) editor.addEventListener(change, () => list(buttons, sheet));
  complete(editor, suggestions, () => sheet.names);
  editor.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const statements = statementsOf(editor.value);
    const here = statements.find((each) => editor.selectionStart <= each.end + 1) ?? statements.at(-1);
    perform(sheet, event.shiftKey ? statements : here ? [here] : []);
  });
  list(buttons, sheet);
  recall(sheet, history);
  // What others make is there a moment later: the lists are asked for by their tags, which costs nearly nothing.
  await every(signal, PAUSE, sheet.refresh, (error) => put(catalogue, problem(error)));
}

function list(buttons, sheet) {
  const statements = statementsOf(sheet.editor.value);
  const explained = (each) => /^(SELECT|WITH)\b/i.test(each.sql) && h("button", { type: "button", onclick: () => perform(sheet, [{ ...each, sql: `EXPLAIN ${each.sql}`, start: each.start - "EXPLAIN ".length }]), "aria-label": `Explain ${short(each.sql)}` }, "Explain");
  put(buttons, statements.map((each) => [h("button", { type: "button", class: "run", onclick: () => perform(sheet, [each]) }, `Run ${short(each.sql)}`), explained(each)]),
    statements.length > 1 && h("button", { type: "button", onclick: () => perform(sheet, statements) }, "Run all"));
}

const short = (sql) => (sql.length > 40 ? `${sql.slice(0, 39)}…` : sql).replace(/\s+/g, " ");

async function perform(sheet, statements) {
  put(sheet.results, h("p", {}, "running…"));
  const shown = [];
  let wrong = 0;
  for (const statement of statements) {
    const started = performance.now();
    remember(statement.sql);
    try {
      const { results } = await run(statement.sql);
      const took = `${(performance.now() - started).toFixed(1)} ms`;
      shown.push(...results.map((result) => shownResult(statement.sql, result, took, sheet)));
    } catch (error) {
      shown.push(shownError(statement, error, sheet.editor));
      wrong += 1;
      break;
    }
  }
  const errors = wrong > 0 && statements.length > 1 && h("p", {}, `${shown.length - wrong} of ${statements.length} statements done, `,
    h("button", { type: "button", class: "error", onclick: () => sheet.results.querySelector("[role=alert]").scrollIntoView({ block: "center" }) }, `${wrong} error`));
  put(sheet.results, errors, shown);
  sheet.recall();
  await sheet.refresh().catch(() => {});
}

function shownResult(sql, result, took, sheet) {
  const columns = result.columns.map((column) => column.name);
  const title = h("h2", {}, short(sql));
  if (/^\s*EXPLAIN\b/i.test(sql)) {
    const lines = result.rows.map((row) => String(row[0]));
    const { boxes, edges } = treeOf(lines.filter((line) => /^[│├└ ]|^\[\d+\]|^[πσ⋈⟕γτ∪]/.test(line)));
    const picture = boxes.length > 1 ? draw(boxes, edges, { label: "The plan" }).element : null;
    return h("section", { class: "result" }, title, picture, h("pre", { tabindex: "0" }, lines.join("\n")));
  }
  const done = result.done ?? (columns.length ? several(result.rows.length, "row") : `${several(result.rows_affected, "row")} changed`);
  return h("section", { class: "result" }, title, h("p", {}, `${done}, ${took}`), columns.length > 0 && table(columns, result.rows, short(sql)),
    /^\s*(SELECT|WITH)\b/i.test(sql) && makeView(sql, sheet));
}

function shownError(statement, error, editor) {
  const place = placeOf(statement.sql, error.message);
  if (!place) return h("section", { class: "result" }, h("h2", {}, short(statement.sql)), problem(error));
  const go = () => {
    const at = statement.start + place.offset;
    editor.focus();
    editor.setSelectionRange(at, Math.max(at + 1, at + (editor.value.slice(at).match(/^\w+/)?.[0].length ?? 1)));
  };
  return h("section", { class: "result" }, h("h2", {}, short(statement.sql)), problem(error),
    h("pre", { class: "place", tabindex: "0" }, `${place.text}\n${" ".repeat(Math.max(0, place.column - 1))}▲`),
    h("button", { type: "button", onclick: go }, "Go there"));
}

/** A form that keeps a SELECT as a view. @param {string} sql @param {{signal: AbortSignal, refresh: () => Promise<void>}} sheet */
export function makeView(sql, sheet) {
  const name = h("input", { required: true, placeholder: "NameOfTheView", "aria-label": "Name of the view", autocomplete: "off" });
  const told = h("p", { role: "status" });
  const make = async (event) => {
    event.preventDefault();
    const statement = `CREATE EXT VIEW \`${name.value.replaceAll("`", "``")}\` AS ${sql.replace(/;\s*$/, "")}`;
    try {
      await migrate(statement, (migration) => { told.textContent = `${migration.state}: ${migration.step}`; }, sheet.signal);
      put(told, "made: ", h("a", { href: `#/views/${encodeURIComponent(name.value)}` }, name.value));
      await sheet.refresh();
    } catch (error) {
      put(told, problem(error));
    }
  };
  return h("details", {}, h("summary", {}, "Make it a view"), h("form", { class: "line", onsubmit: make }, name, h("button", {}, "Make"), told));
}

// --- what there is --------------------------------------------------------------------------------------------------

/** The catalogue, where it has changed; what was open stays open. */
async function refresh(sheet, catalogue) {
  const { signal } = sheet;
  const [tables, views] = await Promise.all([get("v1/tables", { signal, tagged: sheet.tables }), get("v1/views", { signal, tagged: sheet.views })]);
  if (!tables && !views) return;
  if (tables) sheet.tables.shown = tables.tables;
  if (views) sheet.views.shown = views.views.filter((view) => !view.ad_hoc);
  const parts = [["tables", sheet.tables.shown, () => null], ["views", sheet.views.shown, (name) => `#/views/${encodeURIComponent(name)}`]];
  sheet.names = [...new Set([...parts.flatMap(([, found]) => found.flatMap((each) => [each.name, ...each.columns.map((column) => column.name)])), ...WORDS])];
  const opened = new Set([...catalogue.querySelectorAll("details[open] > summary")].map((each) => each.textContent));
  renew(catalogue, parts.map(([kind, found, href]) => [h("h3", {}, `${found.length} ${kind}`), found.slice(0, LISTED).map((each) => entry(each, href(each.name), opened.has(each.name))),
    found.length > LISTED && h("p", { class: "hint" }, `and ${found.length - LISTED} more: completion knows them all`)]));
}

function entry(each, href, open) {
  return h("details", { open }, h("summary", {}, each.name), h("ul", {}, each.columns.map((column) => h("li", {}, column.name, h("span", { class: "hint" }, ` ${column.type}`)))), href && h("a", { href }, "open"));
}

function recall({ editor }, history) {
  if (!remembered().length) return put(history, h("p", { class: "hint" }, "Nothing yet: what you run in this tab is here to be taken again."));
  put(history, h("ol", {}, remembered().map((sql) => h("li", {}, h("button", { type: "button", class: "plain", onclick: () => { editor.value = `${sql};\n`; editor.dispatchEvent(new Event("input")); editor.focus(); } }, short(sql))))));
}

/** @returns {string[]} */
function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
  } catch {
    return [];
  }
}

/** In this tab only, and nothing that may have a password. */
function remember(sql) {
  if (/\b(IDENTIFIED|PASSWORD)\b/i.test(sql)) return;
  sessionStorage.setItem(KEPT, JSON.stringify([sql, ...remembered().filter((each) => each !== sql)].slice(0, HISTORY_MOST)));
}

// --- completion -------------------------------------------------------------------------------------------------------

function complete(editor, box, names) {
  let found = [], chosen = -1;
  const close = () => { box.hidden = true; chosen = -1; editor.removeAttribute("aria-activedescendant"); };
  const begun = () => editor.value.slice(0, editor.selectionStart).match(/[\w.]+$/)?.[0].split(".").at(-1) ?? "";
  const take = (name) => {
    const start = editor.selectionStart - begun().length;
    editor.setRangeText(/^\w+[(*)]*$/.test(name) ? name : `\`${name.replaceAll("`", "``")}\``, start, editor.selectionStart, "end");
    editor.dispatchEvent(new Event("completed"));
    close();
    editor.focus();
  };
  const open = (least) => {
    const word = begun().toLowerCase();
    found = word.length < least ? [] : names().filter((name) => name.toLowerCase().startsWith(word) && name.toLowerCase() !== word).slice(0, SUGGESTED);
    if (!found.length) return close();
    put(box, found.map((name, at) => h("li", { role: "option", id: `option-${at}`, "aria-selected": String(at === chosen), onmousedown: (event) => { event.preventDefault(); take(name); } }, name)));
    box.hidden = false;
  };
  const choose = (at) => {
    chosen = (at + found.length) % found.length;
    [...box.children].forEach((each, number) => each.setAttribute("aria-selected", String(number === chosen)));
    editor.setAttribute("aria-activedescendant", `option-${chosen}`);
  };
  editor.addEventListener("input", () => { chosen = -1; open(2); });
  editor.addEventListener("blur", close);
  editor.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      if (box.hidden) open(0);
      if (!box.hidden) choose(chosen + 1);
    } else if (box.hidden) return;
    else if (event.key === "Escape") close();
    else if (chosen >= 0 && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      choose(chosen + (event.key === "ArrowDown" ? 1 : -1));
    } else if (chosen >= 0 && event.key === "Enter" && !event.ctrlKey) {
      event.preventDefault();
      take(found[chosen]);
    }
  });
}
