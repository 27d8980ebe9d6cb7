/**
 * The tour for a newcomer: a story's answer, a vote that changes it, an eviction, the miss after it, and the dataflow
 * that lights up where the vote went. With the demo's tables it is about the story that leads the front page; else it
 * makes two tables and two views of its own.
 */

import { call, get, migrate, viewPath } from "./api.js";
import { count, h, problem, show as put } from "./dom.js";
import { legend } from "./drawing.js";
import { pictureOf } from "./graph.js";
import { live, outcome, read, rowsTable } from "./reading.js";

export const TITLE = "Tour";

const OWN = `CREATE TABLE tour_stories (id INT PRIMARY KEY, author INT, title TEXT);
CREATE TABLE tour_votes (voter BIGINT, story_id INT, PRIMARY KEY (voter, story_id), KEY (story_id));
CREATE VIEW TourCount AS SELECT story_id, COUNT(*) AS votes FROM tour_votes GROUP BY story_id;
CREATE EXT VIEW TourStory AS SELECT id, title, author, COALESCE(votes, 0) AS votes
  FROM tour_stories LEFT JOIN TourCount ON TourCount.story_id = tour_stories.id WHERE tour_stories.id = ?`;
const TITLES = ["Water power", "The headrace of the old mill", "Tail water"];
const SEEN = ["title", "upvotes", "downvotes", "score", "votes", "comments_count"];

/** @typedef {{view: string, params: Record<string, string>, votes: string, row: () => any, about: string}} Subject */

export async function show(main, route, signal) {
  main.append(
    h("h1", {}, "A tour in five steps"),
    h("p", {}, "Headrace keeps the answers to SQL queries ready to read. An answer is computed when it is first asked for, kept right with every write, and forgotten when memory is short."),
  );
  const stage = h("div");
  main.append(stage);
  const { views } = await get("v1/views", { signal });
  const subject = await subjectOf(new Set(views.map((view) => view.name)), signal);
  if (subject) return play(stage, subject, signal);
  const told = h("p", { role: "status" });
  const begin = h("button", { type: "button", class: "main", onclick: async () => {
    begin.disabled = true;
    try {
      await prepare((migration) => { told.textContent = `${migration.state}: ${migration.step}`; }, signal);
      put(stage);
      await play(stage, ownSubject(), signal);
    } catch (error) {
      begin.disabled = false;
      if (!signal.aborted) put(told, problem(error));
    }
  } }, "Make the tour's tables and views");
  put(stage, h("p", {}, "The tour needs two tables, stories and votes, and a view of a story with its votes:"), h("pre", { tabindex: "0" }, OWN), begin, told);
}

async function prepare(told, signal) {
  await migrate(OWN, told, signal);
  await call("POST", "v1/tables/tour_stories/rows", { body: { rows: TITLES.map((title, at) => ({ id: at + 1, author: 1, title })), on_duplicate: "ignore" } });
  await call("POST", "v1/tables/tour_votes/rows", { body: { rows: [1, 2, 3].map((voter) => ({ voter, story_id: 1 })), on_duplicate: "ignore" } });
}

const someone = () => Math.floor(Math.random() * 1e9) + 1000;

/** @returns {Subject} */
function ownSubject() {
  return { view: "TourStory", params: { id: "1" }, votes: "tour_votes", row: () => ({ voter: someone(), story_id: 1 }), about: "story 1" };
}

/** @returns {Promise<Subject | null>} */
async function subjectOf(views, signal) {
  if (views.has("frontpage_ids") && views.has("stories_by_id") && views.has("story_by_short_id")) {
    const first = (await get("v1/views/frontpage_ids", { signal })).rows[0];
    const [story] = first ? (await get(`v1/views/stories_by_id?id=${first.story_id}`, { signal })).rows : [];
    if (story) {
      return {
        view: "story_by_short_id", params: { short_id: story.short_id }, votes: "votes", about: `“${story.title}”`,
        row: () => ({ user_id: someone(), story_id: first.story_id, vote: 1 }),
      };
    }
  }
  return views.has("TourStory") ? ownSubject() : null;
}

const vote = (subject) => call("POST", `v1/tables/${subject.votes}/rows`, { body: { rows: [subject.row()] } });

const seen = (rows) => rows.map((row) => Object.fromEntries(Object.entries(row).filter(([name]) => SEEN.includes(name))));

/** The subject's live answer, once it is there, and what ends it. @param {Subject} subject */
async function watchedNow(subject) {
  const answer = live(subject.view, subject.params);
  let end;
  await new Promise((done, failed) => {
    end = answer.subscribe(({ state, error }) => {
      if (state === "live") done();
      if (state === "failed") failed(error);
    });
  });
  return { answer, end };
}

async function play(stage, subject, signal) {
  const answer = h("div", { "aria-live": "polite" }), picture = h("div"), about = h("section"), said = h("p", { role: "status", id: "said" });
  let before, watched;
  const flow = pictureOf(subject.view, picture, about);
  const ask = async (token) => {
    const found = await read(subject.view, subject.params, { signal, token });
    const rows = seen(found.rows);
    put(answer, outcome(found), rowsTable(rows, "The story's answer", before));
    before = rows;
    return found;
  };
  const acts = {
    read: async () => {
      const found = await ask();
      await flow(signal);
      return found.miss ? "Nobody had asked for this story yet, so there was a hole. Its answer was computed from the tables, and is kept. Read again: now it hits." : "It was kept ready: nothing was computed.";
    },
    vote: async () => {
      const started = performance.now();
      const { token } = await vote(subject);
      const took = performance.now() - started;
      await ask(token);
      const lit = await flow(signal);
      return `One row was written in ${took.toFixed(1)} ms, and flowed through ${count(lit)} nodes to the answer. Nothing was invalidated, and nothing computed anew: the read after it, with the write's token, is a hit.`;
    },
    watch: async () => {
      watched ??= await watchedNow(subject);
      signal.addEventListener("abort", watched.end, { once: true });
      const started = performance.now();
      await watched.answer.reached((await vote(subject)).token);
      const told = performance.now() - started;
      const rows = seen(watched.answer.now.rows);
      put(answer, h("p", { class: "outcome live" }, h("strong", {}, "live"), ` ${told.toFixed(1)} ms after the vote was sent, this page was told`), rowsTable(rows, "The story's answer", before));
      before = rows;
      await flow(signal);
      return "This page watches the view now, and was sent the change: it did not read. What somebody watches is evicted last, and filled again at once where that is done by hand.";
    },
    evict: async () => {
      const { evicted } = await call("POST", viewPath(subject.view, "/evict"), { body: { keys: [subject.params] } });
      put(answer, h("p", { class: "outcome evicted" }, h("strong", {}, "evicted"), ` ${evicted} key: there is a hole now, never a wrong answer`));
      await flow(signal);
      return "Answers that nobody reads are forgotten when memory is short; here by hand. The next read is a miss.";
    },
  };
  const button = (act, text) => h("button", { type: "button", "data-act": act, onclick: async (event) => {
    event.target.disabled = true;
    try {
      said.textContent = await acts[act]();
    } catch (error) {
      if (!signal.aborted) put(said, problem(error));
    }
    event.target.disabled = false;
    event.target.focus();
  } }, text);
  put(answer, h("p", { class: "hint" }, "Nobody here has read it yet: begin with step 1."));
  put(stage,
    h("p", {}, `This is ${subject.about}, by the view `, h("a", { href: `#/views/${encodeURIComponent(subject.view)}` }, subject.view), ". No column holds its votes: the view is SQL over the votes themselves."),
    h("ol", { class: "steps" }, h("li", {}, button("read", "Read the story")), h("li", {}, button("vote", "Vote for it")), h("li", {}, button("evict", "Evict its answer")), h("li", {}, "Read it again: a miss."), h("li", {}, button("watch", "Watch it, and vote"))),
    said, h("div", { class: "columns" }, h("section", {}, h("h2", {}, "The answer"), answer), h("section", {}, h("h2", {}, "The dataflow"), legend(), picture, about)));
  await flow(signal);
}
