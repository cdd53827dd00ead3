// The page Overload: of each class its load beside what it can process, its share of the processor, what is dropped; and what queries have seen.

import { Chart } from "./chart.js";
import { card, h, mark, say } from "./dom.js";
import * as figures from "./figures.js";
import { GROUPS, standing } from "./now.js";
import { keep } from "./store.js";
import { Table } from "./table.js";

const CLASSES_DRAWN_MAX = 8;
const DEMO = { control: "demo_load", stream: "demo_flights", most: 300 }; // feeder/demo/overload.py follows the slider
const CHARTS = [
  ["Load and headroom", [["load", "load", "--c1", figures.number], ["headroom", "headroom", "--c3", figures.number]]],
  ["Share of the processor", [["quota", "share", "--c4", figures.number]]],
  ["Dropped rows", [["drop_percent", "dropped", "--c2", figures.percent]]],
  ["Latency, mean of each second", [["latency_now_ms", "latency", "--c1", figures.duration]]],
];
const CLASS_COLUMNS = [
  { key: "name", title: "Class", show: figures.text },
  { key: "may_shed", title: "May be shed", show: (value) => (value ? "yes" : "never") },
  { key: "priority", title: "Priority", show: figures.number, number: true },
  { key: "load", title: "Load", show: figures.number, number: true },
  { key: "headroom", title: "Headroom", show: figures.number, number: true },
  { key: "quota", title: "Share of the processor", show: figures.number, number: true },
  { key: "drop_percent", title: "Dropped now", show: figures.percent, number: true },
  { key: "loss_percent", title: "Shed in all", show: figures.percent, number: true },
  { key: "verdict", title: "Target", show: (value, row) => standing(value, row.verdict_since), tone: (row) => (row.verdict === "missed" ? "bad" : row.verdict === "met" ? "good" : null) },
];
const RECEIPT_COLUMNS = [
  { key: "name", title: "Query", show: figures.text },
  { key: "class", title: "Class", show: figures.text },
  { key: "streams", title: "Streams", show: figures.text },
  { key: "accepted", title: "Rows", show: figures.count, number: true, total: "sum" },
  { key: "shed", title: "Shed", show: figures.count, number: true, total: "sum" },
  { key: "seen_percent", title: "Share seen", show: figures.percent, number: true },
  { key: "shed_per_s", title: "Shed now", show: figures.rate, number: true, total: "sum" },
];

/** Return the demo's slider, which says how many flights come, where the server is the demo's: `element`, `update()`. */
function demoSlider({ link, store }) {
  const why = store.refusal("writer");
  const told = h("span", { class: "quiet" });
  const problem = h("div", { role: "status" });
  const asked = h("output", {}, "0%");
  let last = Promise.resolve();
  const insert = async (percent) => {
    try {
      await link.run(`INSERT INTO ${DEMO.control} VALUES (${percent})`);
      problem.replaceChildren();
    } catch (refusal) {
      problem.replaceChildren(h("p", { class: "told bad" }, refusal.message));
    }
  };
  const send = () => {
    const percent = Number(slider.value);
    last = last.then(() => insert(percent)); // one after the other: what was asked for last counts
  };
  const slider = h("input", { type: "range", min: 0, max: DEMO.most, step: 10, value: 0, "aria-label": "Load of the demo", disabled: why !== null, onchange: send });
  slider.addEventListener("input", () => say(asked, `${slider.value}%`));
  const element = card("Load of the demo", null, h("p", { class: "why" }, why ?? "How many flights the demo's feeder sends, in percent of what this machine worked off. Above 100% classes that may be shed lose rows, bronze first; gold loses none."),
    h("div", { class: "row" }, slider, asked, told), problem);
  return {
    element,
    update() {
      element.hidden = !store.row("streams", DEMO.control);
      const sent = store.row("streams", DEMO.stream);
      say(told, sent ? `${figures.rate(sent.rows_per_s)} come` : "");
      mark(slider, "aria-valuetext", `${slider.value}%`);
    },
  };
}

/** Return the page. */
export function overloadPage({ link, store, open }) {
  const classes = new Table({ caption: "Classes", columns: CLASS_COLUMNS, open: (row) => open("class", row.name) });
  const receipts = new Table({ caption: "What queries have seen", columns: RECEIPT_COLUMNS, open: (row) => open("query", row.name), sort: { key: "shed", down: true }, groups: GROUPS });
  const demo = demoSlider({ link, store });
  const drawn = new Map();
  const holder = h("div", {});
  const heard = ({ detail }) => {
    const one = drawn.get(detail.of[1]);
    if (one && detail.of[0] === "classes") one.past = { times: detail.times, measures: detail.measures };
  };
  const again = () => [...drawn.keys()].forEach((name) => link.past("classes", name));
  const begin = (name) => {
    const charts = CHARTS.map(([title, series]) => new Chart({ title: `${title}: ${name}`, series: series.map(([measure, label, tone, show]) => ({ measure, label, tone, show })) }));
    holder.append(card(`Class ${name}`, null, h("div", { class: "cards" }, charts.map((chart) => chart.element))));
    drawn.set(name, { charts, past: { times: [], measures: {} } });
    link.past("classes", name);
  };
  link.addEventListener("past", heard);
  store.addEventListener("entered", again);
  return {
    element: h("div", {}, h("h1", {}, "Overload"), demo.element,
      card("Classes", classes.tools,
        h("p", { class: "why" }, "Load and headroom are seconds of work a second: a class whose load is above its headroom falls behind, and sheds if it may."), classes.element),
      card("What queries have seen", receipts.tools, receipts.element), holder),
    update() {
      demo.update();
      classes.set(store.tables.classes);
      receipts.set(store.tables.queries.map((row) => ({ ...row, seen_percent: row.shed_percent === null ? null : 100 - row.shed_percent })));
      for (const row of store.tables.classes) {
        if (!drawn.has(row.name) && drawn.size < CLASSES_DRAWN_MAX) begin(row.name);
        const one = drawn.get(row.name);
        if (!one) continue;
        if (one.past.times.length && one.past.times.at(-1) < store.at) keep(one.past, store.at, row);
        for (const chart of one.charts) chart.set(one.past, store.events.filter((event) => event.name === row.name || event.kind === "policy"));
      }
    },
    destroy() {
      link.removeEventListener("past", heard);
      store.removeEventListener("entered", again);
      for (const { charts } of drawn.values()) for (const chart of charts) chart.destroy();
    },
  };
}
