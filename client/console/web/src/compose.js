// The page Compose: write a query, see its plan and what the server foresees, watch it run, start it.

import { Chart } from "./chart.js";
import { quoted } from "./detail.js";
import { action, card, h, say } from "./dom.js";
import { editor } from "./editor.js";
import * as figures from "./figures.js";
import { planView } from "./plan.js";
import { qosGraph } from "./qos.js";
import { ResultsTable } from "./results.js";
import { named, ofHistory, streamsIn } from "./sql.js";
import { keep } from "./store.js";

const DRAFT = "millstream-draft"; // in the session's storage
const CHARTS_MAX = 3;
const NUMBERS = /^(BIGINT|INT|DOUBLE)$/;
const TIME = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d/;
const FILES = ".csv,.json,.jsonl,.ndjson,.parquet,.arrow";
const TRIES = [["live", "the live rows, from now on"], ["journal", "the last rows, which the journal has"], ["600", "the archive's last 10 minutes"], ["3600", "the archive's last hour"], ["all", "all of the archive"], ["files", "files of mine"]];

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
  /** Show an answer that is there at once: rows as objects, over the time that they name if they name one. */
  const show = (columns, rows, came) => {
    take({ columns, rows: [], came: 0 });
    results.take({ rows, came });
    const time = columns.map(([name]) => name).findLast((name) => TIME.test(rows[0]?.[name]));
    if (!time) clear();
    for (const row of time ? rows : []) keep(past, Date.parse(row[time]), row);
    for (const chart of drawn) chart.set(past, []);
  };
  return { element: h("div", {}, results.element, charts), begin: (what) => link.follow(what, take), show, clear };
}

/** Return the choice of what a query is tried on: `element`, `update(text)`, `chosen()`, `files()`, `timeFormat()`. */
function triesOn(store) {
  const rows = h("div", { class: "row" });
  const format = h("input", { "aria-label": "How the files write times", placeholder: "%d.%m.%Y %H:%M, or s, ms" });
  const given = h("div", { hidden: true }, rows, h("label", {}, "Times, if not as 2026-11-29 14:00:00: ", format));
  let shown = null;
  const turn = () => {
    given.hidden = choice.value !== "files";
  };
  const choice = h("select", { "aria-label": "Try it on", onchange: turn }, TRIES.map(([value, title]) => h("option", { value }, title)));
  return {
    element: h("div", {}, h("label", {}, "Try it on ", choice), given),
    chosen: () => choice.value,
    timeFormat: () => format.value.trim() || null,
    update(text) {
      const names = [...new Set(streamsIn(text, store.tables.streams.map((row) => row.name)).map(({ stream }) => stream))];
      if (names.join("\n") === shown) return;
      shown = names.join("\n");
      rows.replaceChildren(...(names.length ? names.map((name) => h("label", {}, `Rows of ${name}: `, h("input", { type: "file", accept: FILES, "data-stream": name })))
        : [h("p", { class: "why" }, "Write a SELECT from a stream first.")]));
    },
    async files() {
      const chosen = [...rows.querySelectorAll("input")].filter((input) => input.files.length);
      return Object.fromEntries(await Promise.all(chosen.map(async (input) => [input.dataset.stream, { name: input.files[0].name, data: await base64(input.files[0]) }])));
    },
  };
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** Return [name, type] of the columns of rows that come as objects: numbers are told from the rest. */
function columnsOf(rows) {
  return Object.entries(rows[0] ?? {}).map(([name, value]) => [name, typeof value === "number" ? "DOUBLE" : "TEXT"]);
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
    tries.update(text);
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
  const tries = triesOn(store);
  const tried = h("p", { class: "quiet", role: "status" });
  const toggle = async () => {
    const on = tries.chosen();
    if (leave || on === "live") {
      leave?.();
      leave = leave ? null : results.begin({ query: whole(), is_text: true });
      say(tryIt, leave ? "Stop trying" : "Try it");
      say(tried, "");
      return;
    }
    say(tried, "Trying …");
    tried.className = "quiet";
    try {
      say(tried, await (on === "files" ? tryFiles() : tryHistory(on)));
    } catch (refusal) {
      say(tried, refusal.message);
      tried.className = "bad";
    }
  };
  const bare = () => write.text().trim().replace(/;\s*$/, "");
  const tryHistory = async (on) => {
    let asked = bare();
    if (on !== "journal") {
      const kept = (await link.run("SHOW STREAMS")).objects.filter((row) => row.kind === "derived" || / ARCHIVE\b/.test(row.definition));
      asked = ofHistory(asked, kept.map((row) => row.name), on === "all" ? null : Date.now() - 1000 * Number(on));
      if (asked === bare()) return "No stream of it has an archive: CREATE STREAM … DURABILITY journal ARCHIVE begins one.";
    }
    const answer = await link.run(`FETCH ${asked}`);
    results.show(answer.columns, answer.objects, answer.rows_in_all);
    return [`${figures.count(answer.rows_in_all)} rows.`, ...answer.notices].join(" ");
  };
  const tryFiles = async () => {
    const files = await tries.files();
    if (!Object.keys(files).length) return "Choose a file first.";
    const answer = await link.post("try", { sql: bare(), files, time_format: tries.timeFormat() });
    results.show(columnsOf(answer.rows), answer.rows, answer.rows_in_all);
    return [`${figures.count(answer.rows_in_all)} rows.`, ...answer.messages].join(" ");
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
      card("Results", tryIt, tries.element, h("p", { class: "why" }, "A try belongs to this page and ends with it. Past rows are there of streams that say DURABILITY journal or sync; ARCHIVE keeps all of them."), tried, results.element),
      card("Start", null, h("div", { class: "row" }, name, action("Start the query", why, start), why && h("span", { class: "why" }, why)), started)),
    update() {
      const streams = store.tables.streams;
      const names = [...streams.map((row) => row.name + row.columns), ...store.tables.classes.map((row) => row.name)].join();
      if (names === offered) return;
      offered = names;
      tries.update(write.text());
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
