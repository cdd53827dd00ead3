// The page Compose: write a query, see its plan and what the server foresees, watch it run, start it.

import { Chart } from "./chart.js";
import { quoted } from "./detail.js";
import { action, card, h, say } from "./dom.js";
import { editor } from "./editor.js";
import * as figures from "./figures.js";
import { planView } from "./plan.js";
import { qosGraph } from "./qos.js";
import { ResultsTable } from "./results.js";
import { named } from "./sql.js";
import { keep } from "./store.js";

const DRAFT = "millstream-draft"; // in the session's storage
const CHARTS_MAX = 3;
const NUMBERS = /^(BIGINT|INT|DOUBLE)$/;

/** Return the text with what is promised at its end. */
export function withPromises(text, { className, qos }) {
  const promises = [className && `class = '${className.replaceAll("'", "''")}'`, qos && `qos = '${qos}'`].filter(Boolean);
  const bare = text.trim().replace(/;\s*$/, "");
  return promises.length ? `${bare}\nWITH (${promises.join(", ")})` : bare;
}

function resultsCard(link) {
  const results = new ResultsTable();
  const charts = h("div", { class: "cards" });
  let drawn = [];
  let past = null;
  const clear = () => {
    for (const chart of drawn) chart.destroy();
    drawn = [];
    charts.replaceChildren();
  };
  const take = (message) => {
    if (message.columns) {
      clear();
      past = { times: [], measures: {} };
      const numbers = message.columns.filter(([, type]) => NUMBERS.test(type)).slice(0, CHARTS_MAX);
      drawn = numbers.map(([name], place) => new Chart({ title: name, series: [{ measure: name, label: "newest", tone: `--c${place + 1}`, show: figures.number }] }));
      charts.replaceChildren(...drawn.map((chart) => chart.element));
    }
    const newest = results.take(message).at(-1);
    if (newest && past) {
      keep(past, Date.now(), newest);
      for (const chart of drawn) chart.set(past, []);
    }
  };
  return { element: h("div", {}, results.element, charts), begin: (what) => link.follow(what, take), clear };
}

/** Return the page. */
export function composePage({ link, store, open }) {
  const plan = planView((text) => write.set(text));
  const told = h("p", { class: "quiet", role: "status" }, "Write a SELECT. The server checks it while you type.");
  const foreseen = h("div", {});
  const meaning = h("ul", {});
  const results = resultsCard(link);
  const name = h("input", { "aria-label": "Name of the query", placeholder: "name" });
  const className = h("select", { "aria-label": "Class" });
  const started = h("div", { role: "status" });
  let leave = null;
  let offered = "";

  const whole = () => withPromises(write.text(), { className: className.value === "default" ? "" : className.value, qos: graph.value() });
  const check = async (text) => {
    sessionStorage.setItem(DRAFT, text);
    if (!text.trim()) return null;
    try {
      const explained = await link.run(`EXPLAIN\n${text.trim().replace(/;\s*$/, "")}`);
      if (explained.info.plan) plan.set(explained.info.plan);
      say(told, "The server takes it.");
      told.className = "good";
      await foresee();
      return null;
    } catch (refusal) {
      say(told, refusal.message);
      told.className = "bad";
      return { refusal, above: 1 };
    }
  };
  const foresee = async () => {
    const promises = await link.run(`EXPLAIN QOS\n${whole()}`);
    foreseen.replaceChildren(h("dl", { class: "pairs" }, promises.rows.map(([promise, value]) => h("div", {}, h("dt", {}, promise), h("dd", {}, value)))));
    const explained = await link.run(`EXPLAIN\n${whole()}`);
    const lines = explained.rows.map(([line]) => line);
    const shares = lines.slice(lines.indexOf("Sharing") + 1).filter((line) => line.startsWith("  ")).slice(0, 1);
    const rules = await link.run(`EXPLAIN SEMANTICS\n${whole()}`);
    meaning.replaceChildren(h("li", {}, `It would share: ${shares[0]?.trim() ?? "nothing"}`), ...rules.rows.map(([line]) => h("li", {}, line)));
  };
  const again = () => foresee().catch((refusal) => say(told, refusal.message));
  const graph = qosGraph(again);
  className.addEventListener("change", again);
  const write = editor({ text: sessionStorage.getItem(DRAFT) ?? "", check });
  const begin = h("select", { "aria-label": "Begin with a stream", onchange: () => begin.value && write.set(`SELECT * FROM ${named(begin.value)}`) });
  const tryIt = h("button", { type: "button", class: "main", onclick: () => toggle() }, "Try it");
  const toggle = () => {
    leave?.();
    leave = leave ? null : results.begin({ query: whole(), is_text: true });
    say(tryIt, leave ? "Stop trying" : "Try it");
  };
  const why = store.refusal("admin");
  const start = async () => {
    if (!name.value.trim()) {
      started.replaceChildren(h("p", { class: "told bad" }, "Give the query a name first."));
      name.focus();
      return;
    }
    try {
      const answer = await link.run(`CREATE QUERY ${quoted(name.value.trim())} AS\n${whole()}`);
      started.replaceChildren(h("p", { class: "told good" }, answer.notices.join(" ") || "It runs. ", action("Look at it", null, () => open("query", name.value.trim()))));
    } catch (refusal) {
      started.replaceChildren(h("p", { class: "told bad" }, refusal.message));
    }
  };
  return {
    element: h("div", {}, h("h1", {}, "Compose"),
      h("div", { class: "halves" }, card("Query", null, write.element, told), card("Plan", begin, plan.element)),
      h("div", { class: "halves" },
        card("Promises", null, h("label", {}, "Class ", className), graph.element),
        card("What the server foresees", null, foreseen)),
      card("What its answers mean", null, meaning),
      card("Results", tryIt, h("p", { class: "why" }, "A try belongs to this page and ends with it. It reads the live rows from now on."), results.element),
      card("Start", null, h("div", { class: "row" }, name, action("Start the query", why, start), why && h("span", { class: "why" }, why)), started)),
    update() {
      const streams = store.tables.streams;
      const names = [...streams.map((row) => row.name + row.columns), ...store.tables.classes.map((row) => row.name)].join();
      if (names === offered) return;
      offered = names;
      write.offer(streams);
      begin.replaceChildren(h("option", { value: "" }, "Begin with a stream …"), ...streams.map((row) => h("option", { value: row.name }, row.name)));
      const chosen = className.value || "default";
      className.replaceChildren(...store.tables.classes.map((row) => h("option", { value: row.name, selected: row.name === chosen }, row.name)));
    },
    destroy() {
      leave?.();
      results.clear();
      write.destroy();
      plan.destroy();
    },
  };
}
