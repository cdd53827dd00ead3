// The page Now: totals, charts of the last fifteen minutes with the events on them, and the tables of queries, streams and classes.

import { Chart } from "./chart.js";
import { card, h, say } from "./dom.js";
import * as figures from "./figures.js";
import { Table } from "./table.js";

const TILES = [
  ["rows_per_s", "Rows in", figures.rate],
  ["results_per_s", "Results out", figures.rate],
  ["latency_now_ms", "Latency now", figures.duration],
  ["rows_waiting", "Rows waiting", figures.count],
  ["memory_bytes", "Memory of queries", figures.size],
  ["busy_cores", "Cores busy", figures.number],
];
const EVENTS_SHOWN = 100;
/** By what queries may be grouped. */
export const GROUPS = [["class", "by class"], ["streams", "by stream"]];

/** Return how a target stands: "met since 14:03:07". */
export function standing(verdict, since) {
  return verdict ? `${verdict}${since ? ` since ${figures.clock(since)}` : ""}` : figures.UNKNOWN;
}

/** Return how many of the rows miss their target; of a group. */
export function missed(rows, key) {
  const [bad, all] = [rows.filter((row) => row[key] === "missed").length, rows.filter((row) => row[key]).length];
  return all ? `${bad} of ${all} missed` : "";
}

const tone = (verdict) => (verdict === "missed" ? "bad" : verdict === "met" ? "good" : null);

const columnsOf = (store) => ({
  queries: [
    { key: "name", title: "Query", show: figures.text },
    { key: "state", title: "State", show: figures.text, tone: (row) => (row.state === "failed" ? "bad" : null) },
    { key: "class", title: "Class", show: figures.text },
    { key: "target", title: "Target", show: (value, row) => standing(value, row.target_since), tone: (row) => tone(row.target), last: true, total: (rows) => missed(rows, "target") },
    { key: "rows_per_s", title: "In", show: figures.rate, number: true, total: "sum" },
    { key: "results_per_s", title: "Out", show: figures.rate, number: true, total: "sum" },
    { key: "out_line", title: "Out, last minute", spark: (row) => store.spark("queries", row.name, "results_per_s") },
    { key: "latency_now_ms", title: "Latency now", show: figures.duration, number: true, total: "most" },
    { key: "latency_line", title: "Latency, last minute", spark: (row) => store.spark("queries", row.name, "latency_now_ms") },
    { key: "latency_p50_ms", title: "p50", show: figures.duration, number: true, total: "most" },
    { key: "latency_p99_ms", title: "p99", show: figures.duration, number: true, total: "most" },
    { key: "slowdown", title: "Slowdown", show: figures.number, number: true, total: "most" },
    { key: "queued", title: "Waiting", show: figures.count, number: true, total: "sum" },
    { key: "shed_percent", title: "Shed", show: figures.percent, number: true, total: "most" },
    { key: "memory_bytes", title: "Memory", show: figures.size, number: true, total: "sum" },
    { key: "spilled_bytes", title: "Spilled", show: figures.size, number: true, total: "sum" },
    { key: "streams", title: "Streams", show: figures.text },
  ],
  streams: [
    { key: "name", title: "Stream", show: figures.text },
    { key: "kind", title: "Kind", show: figures.text },
    { key: "state", title: "State", show: figures.text },
    { key: "rows_per_s", title: "In", show: figures.rate, number: true },
    { key: "in_line", title: "In, last minute", spark: (row) => store.spark("streams", row.name, "rows_per_s") },
    { key: "accepted", title: "Rows", show: figures.count, number: true },
    { key: "refused", title: "Refused", show: figures.count, number: true },
    { key: "shed", title: "Shed", show: figures.count, number: true },
    { key: "behind_ms", title: "Watermark behind", show: figures.duration, number: true },
  ],
  classes: [
    { key: "name", title: "Class", show: figures.text },
    { key: "priority", title: "Priority", show: figures.number, number: true },
    { key: "target_ms", title: "Target", show: figures.duration, number: true },
    { key: "verdict", title: "Stands", show: (value, row) => standing(value, row.verdict_since), tone: (row) => tone(row.verdict) },
    { key: "latency_now_ms", title: "Latency now", show: figures.duration, number: true },
    { key: "latency_line", title: "Last minute", spark: (row) => store.spark("classes", row.name, "latency_now_ms") },
    { key: "latency_p50_ms", title: "p50", show: figures.duration, number: true },
    { key: "latency_p99_ms", title: "p99", show: figures.duration, number: true },
    { key: "slowdown", title: "Slowdown", show: figures.number, number: true },
    { key: "load", title: "Load", show: figures.number, number: true },
    { key: "headroom", title: "Headroom", show: figures.number, number: true },
    { key: "loss_percent", title: "Shed", show: figures.percent, number: true },
  ],
});

/** Return the list of what happened, the newest first; `events` of the store. */
export function eventList() {
  const list = h("ol", { class: "events", tabindex: "0", "aria-label": "Events, the newest first" });
  let newest = 0;
  return {
    element: list,
    set(events) {
      const number = events.at(-1)?.number ?? 0;
      if (number === newest && list.childElementCount) return;
      newest = number;
      const lines = events.slice(-EVENTS_SHOWN).reverse();
      list.replaceChildren(...lines.map((event) => h("li", {}, h("time", {}, figures.clock(event.at)), h("span", { class: event.bad ? "bad" : undefined }, event.text))));
      if (!lines.length) list.append(h("li", {}, "", "Nothing has happened yet since the console looks."));
    },
  };
}

/** Return the page: `element`, `update()` after each look, `destroy()`. */
export function nowPage({ store, open }) {
  const values = TILES.map(([, title]) => ({ title, element: h("dd", {}, figures.UNKNOWN) }));
  const tiles = h("dl", { class: "tiles" }, values.map(({ title, element }) => h("div", { class: "tile" }, h("dt", {}, title), element)));
  const charts = [
    new Chart({
      title: "Rows a second",
      series: [
        { measure: "rows_per_s", label: "in", tone: "--c1", show: figures.rate },
        { measure: "results_per_s", label: "out", tone: "--c2", show: figures.rate },
      ],
    }),
    new Chart({ title: "Latency, mean of each second", series: [{ measure: "latency_now_ms", label: "latency", tone: "--c1", show: figures.duration }] }),
    new Chart({ title: "Rows waiting", series: [{ measure: "rows_waiting", label: "waiting", tone: "--c3", show: figures.count }] }),
    new Chart({ title: "Cores busy", series: [{ measure: "busy_cores", label: "busy", tone: "--c4", show: figures.number }] }),
  ];
  const columns = columnsOf(store);
  const tables = {
    queries: new Table({ caption: "Queries", columns: columns.queries, open: (row) => open("query", row.name), groups: GROUPS }),
    streams: new Table({ caption: "Streams", columns: columns.streams, open: (row) => open("stream", row.name) }),
    classes: new Table({ caption: "Classes", columns: columns.classes, open: (row) => open("class", row.name) }),
  };
  const shown = (title, table) => card(title, table.tools, table.element);
  const late = h("button", { type: "button", class: "late", hidden: true, onclick: () => tables.queries.find("missed") });
  tables.queries.tools.prepend(late);
  const events = eventList();
  const element = h(
    "div",
    {},
    h("h1", {}, "Now"),
    tiles,
    h("div", { class: "cards" }, charts.map((chart) => chart.element)),
    shown("Queries", tables.queries),
    h("div", { class: "cards" }, shown("Streams", tables.streams), card("Events", null, events.element)),
    shown("Classes", tables.classes),
  );
  return {
    element,
    update() {
      TILES.forEach(([measure, , show], place) => say(values[place].element, show(store.totals[measure])));
      for (const chart of charts) chart.set(store.past, store.events);
      for (const [kind, table] of Object.entries(tables)) table.set(store.tables[kind]);
      const missing = store.tables.queries.filter((row) => row.target === "missed").length;
      late.hidden = missing === 0;
      say(late, missing === 1 ? "1 misses its target" : `${missing} miss their targets`);
      events.set(store.events);
    },
    destroy() {
      for (const chart of charts) chart.destroy();
    },
  };
}
