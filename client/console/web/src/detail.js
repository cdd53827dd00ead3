// One query, stream or class: its figures, its last fifteen minutes, its operators, its results as they come, and what one may do with it.

import { Chart } from "./chart.js";
import { action, card, h, pairs, say } from "./dom.js";
import * as figures from "./figures.js";
import { standing } from "./now.js";
import { ResultsTable } from "./results.js";
import { keep } from "./store.js";
import { Table } from "./table.js";

const KINDS = { query: "queries", stream: "streams", class: "classes" };
const OPERATORS_EVERY_MS = 2000;

const CHARTS = {
  queries: [
    ["Rows a second", [["rows_per_s", "in", "--c1", figures.rate], ["results_per_s", "out", "--c2", figures.rate]]],
    ["Latency, mean of each second", [["latency_now_ms", "latency", "--c1", figures.duration]]],
    ["Rows waiting", [["queued", "waiting", "--c3", figures.count]]],
    ["Memory", [["memory_bytes", "memory", "--c4", figures.size]]],
  ],
  streams: [
    ["Rows a second", [["rows_per_s", "in", "--c1", figures.rate]]],
    ["Watermark behind", [["behind_ms", "behind", "--c2", figures.duration]]],
  ],
  classes: [
    ["Latency, mean of each second", [["latency_now_ms", "latency", "--c1", figures.duration]]],
    ["Load and headroom", [["load", "load", "--c1", figures.number], ["headroom", "headroom", "--c3", figures.number]]],
    ["Dropped", [["drop_percent", "dropped", "--c2", figures.percent]]],
  ],
};

const FIGURES = {
  queries: [
    ["State", "state", figures.text],
    ["Class", "class", figures.text],
    ["Rows in", "rows_per_s", figures.rate],
    ["Results out", "results_per_s", figures.rate],
    ["Latency now", "latency_now_ms", figures.duration],
    ["Latency p50", "latency_p50_ms", figures.duration],
    ["Latency p99", "latency_p99_ms", figures.duration],
    ["Target", "target", (value, row) => standing(value, row.target_since)],
    ["Slowdown", "slowdown", figures.number],
    ["Utility", "utility", figures.number],
    ["Rows waiting", "queued", figures.count],
    ["Shed", "shed_percent", figures.percent],
    ["Late", "late", figures.count],
    ["Memory", "memory_bytes", figures.size],
    ["Spilled", "spilled_bytes", figures.size],
    ["Failure", "failure", figures.text],
  ],
  streams: [
    ["Kind", "kind", figures.text],
    ["State", "state", figures.text],
    ["Rows in", "rows_per_s", figures.rate],
    ["Rows", "accepted", figures.count],
    ["Refused", "refused", figures.count],
    ["Shed", "shed", figures.count],
    ["Watermark behind", "behind_ms", figures.duration],
    ["Columns", "columns", figures.text],
  ],
  classes: [
    ["Priority", "priority", figures.number],
    ["Target", "target_ms", figures.duration],
    ["Stands", "verdict", (value, row) => standing(value, row.verdict_since)],
    ["Latency now", "latency_now_ms", figures.duration],
    ["Latency p99", "latency_p99_ms", figures.duration],
    ["Load", "load", figures.number],
    ["Headroom", "headroom", figures.number],
    ["Share of the processor", "quota", figures.number],
    ["Dropped now", "drop_percent", figures.percent],
    ["Shed in all", "loss_percent", figures.percent],
  ],
};

const OPERATORS = [
  { key: "operator", title: "Number", show: figures.text, number: true },
  { key: "kind", title: "Operator", show: figures.text },
  { key: "queries", title: "Queries", show: figures.count, number: true },
  { key: "rows_in", title: "Rows in", show: figures.count, number: true },
  { key: "rows_out", title: "Rows out", show: figures.count, number: true },
  { key: "selectivity", title: "Selectivity", show: figures.number, number: true },
  { key: "cost_us_per_row", title: "µs a row", show: figures.number, number: true },
  { key: "waiting", title: "Waiting", show: figures.count, number: true },
  { key: "state_bytes", title: "State", show: figures.size, number: true },
];

/** Return a name as the language writes it. */
export function quoted(name) {
  return `"${name.replaceAll('"', '""')}"`;
}

function queryParts({ link, store, name }) {
  const told = h("div", { role: "status" });
  const text = h("pre", {}, h("code", {}, ""));
  const operators = new Table({ caption: "Operators", columns: OPERATORS });
  const results = new ResultsTable();
  const why = () => store.refusal("admin");
  const steer = (verb) => async () => {
    try {
      const answer = await link.run(`${verb} QUERY ${quoted(name)}`);
      told.replaceChildren(h("p", { class: "told good" }, answer.notices.join(" ") || "Done."));
    } catch (refusal) {
      told.replaceChildren(h("p", { class: "told bad" }, refusal.message));
    }
  };
  const verbs = [["PAUSE", "Pause"], ["RESUME", "Resume"], ["STOP", "Stop"], ["START", "Start"]].map(([verb, label]) => action(label, why(), steer(verb)));
  let leave = null;
  const watch = h("button", { type: "button", onclick: () => toggle() }, "Watch results");
  const toggle = () => {
    if (leave) leave();
    leave = leave ? null : link.follow({ query: name }, (message) => results.take(message));
    say(watch, leave ? "Stop watching" : "Watch results");
  };
  const ask = async () => {
    try {
      operators.set((await link.run(`EXPLAIN ANALYZE ${quoted(name)}`)).objects.map((row) => ({ name: String(row.operator), ...row })));
    } catch (refusal) {
      operators.set([]);
      if (refusal.code === "unauthorized") told.replaceChildren(h("p", { class: "told bad" }, refusal.message));
    }
  };
  const describe = async () => {
    const found = (await link.run("SHOW QUERIES")).objects.find((row) => row.name === name);
    say(text.firstChild, found?.text ?? "");
    const meaning = await link.run(`EXPLAIN SEMANTICS ${quoted(name)}`);
    semantics.replaceChildren(...meaning.rows.map(([line]) => h("li", {}, line)));
  };
  const semantics = h("ul", {});
  describe().catch((refusal) => told.replaceChildren(h("p", { class: "told bad" }, refusal.message)));
  ask();
  const timer = setInterval(ask, OPERATORS_EVERY_MS);
  return {
    parts: [
      card("Steer", null, h("div", { class: "row" }, verbs, why() && h("span", { class: "why" }, why())), told),
      card("Text", null, text),
      card("Operators", null, operators.element),
      card("Results", watch, results.element),
      card("What its answers mean", null, semantics),
    ],
    destroy() {
      clearInterval(timer);
      leave?.();
    },
  };
}

/** Return the page of one thing; `kind` is query, stream or class. */
export function detailPage({ link, store, kind, name }) {
  const table = KINDS[kind];
  let past = { times: [], measures: {} };
  const listed = h("div", {});
  const charts = CHARTS[table].map(([title, series]) => new Chart({ title, series: series.map(([measure, label, tone, show]) => ({ measure, label, tone, show })) }));
  const more = kind === "query" ? queryParts({ link, store, name }) : { parts: [], destroy() {} };
  const heard = ({ detail }) => {
    if (detail.of[0] === table && detail.of[1] === name) past = { times: detail.times, measures: detail.measures };
  };
  link.addEventListener("past", heard);
  link.past(table, name);
  const again = () => link.past(table, name);
  store.addEventListener("entered", again);
  return {
    element: h(
      "div",
      {},
      h("p", {}, h("a", { href: "#/now" }, "← Now")),
      h("h1", {}, `${kind[0].toUpperCase()}${kind.slice(1)} ${name}`),
      card("Figures", null, listed),
      h("div", { class: "cards" }, charts.map((chart) => chart.element)),
      more.parts,
    ),
    update() {
      const row = store.row(table, name);
      if (!row) {
        listed.replaceChildren(h("p", {}, `${name} is gone.`));
        return;
      }
      listed.replaceChildren(pairs(FIGURES[table].map(([title, key, show]) => [title, show(row[key], row)])));
      if (past.times.length && past.times.at(-1) < store.at) keep(past, store.at, row);
      const events = store.events.filter((event) => event.name === name || event.kind === "policy");
      for (const chart of charts) chart.set(past, events);
    },
    destroy() {
      link.removeEventListener("past", heard);
      store.removeEventListener("entered", again);
      for (const chart of charts) chart.destroy();
      more.destroy();
    },
  };
}
