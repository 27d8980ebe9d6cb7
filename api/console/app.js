/**
 * The page around the pages: it shows the one that the address names after `#`, and asks for a key where one is needed.
 *
 *     #/views/StoriesWithVC?id=7  ──►  views.js: show(main, {path: ["StoriesWithVC"], query}, signal)
 *
 * Each page is left by aborting its signal, which ends whatever it polls.
 */

import { account, get, every } from "./api.js";
import { h, problem, show } from "./dom.js";
import * as graph from "./graph.js";
import * as operate from "./operate.js";
import * as sql from "./sql.js";
import * as tour from "./tour.js";
import * as views from "./views.js";

/** @typedef {{path: string[], query: URLSearchParams, go: (hash: string) => void}} Route */

const PAGES = { tour, sql, views, graph, operate };
const main = document.getElementById("main");
let leaving = new AbortController();
/** Whether the page could not be made, as nobody answered. */
let unopened = false;

function parts() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [page, ...rest] = path.split("/").map(decoded);
  return { page: page in PAGES ? page : "tour", path: rest.filter(Boolean), query: new URLSearchParams(query ?? "") };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function open() {
  leaving.abort();
  leaving = new AbortController();
  unopened = false;
  const { signal } = leaving;
  const { page, path, query } = parts();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${page}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${PAGES[page].TITLE} · Headrace`;
  const place = h("div", { class: `page ${page}` });
  show(main, place);
  try {
    await PAGES[page].show(place, { path, query, go: (hash) => { location.hash = hash; } }, signal);
  } catch (error) {
    if (signal.aborted) return;
    place.append(problem(error));
    unopened = error.code === "unreachable";
  }
}

// --- who asks ------------------------------------------------------------------------------------------------------

const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("signin"));
const field = /** @type {HTMLInputElement} */ (document.getElementById("key"));
const out = document.getElementById("account");
let asking = null;
let declined = false;

account.ask = (message) => {
  if (declined && !message) return Promise.resolve(false);
  asking ??= new Promise((done) => {
    document.getElementById("signin-error").textContent = message;
    field.value = "";
    dialog.returnValue = "no";
    dialog.showModal();
    dialog.addEventListener("close", () => {
      asking = null;
      declined = dialog.returnValue !== "go";
      if (!declined) account.key = field.value.trim();
      else account.key = null;
      field.value = "";
      document.getElementById("signin-error").textContent = "";
      signed();
      done(!declined);
    }, { once: true });
  });
  return asking;
};

function signed() {
  out.hidden = !account.key && !declined;
  out.textContent = account.key ? "Sign out" : "Sign in";
}

out.addEventListener("click", () => {
  declined = false;
  account.key = null;
  signed();
  open();
});

// --- whether it serves -----------------------------------------------------------------------------------------------

const health = document.getElementById("health");
every(new AbortController().signal, 5000, async () => {
  const answer = await fetch(new URL("../readyz", import.meta.url), { cache: "no-store" });
  const told = await answer.json();
  health.className = answer.ok ? "good" : "bad";
  health.textContent = answer.ok ? "serving" : told.error?.message ?? "not ready";
  if (unopened) open();
}, () => {
  health.className = "bad";
  health.textContent = "the server does not answer";
});

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", open);
signed();
open();
