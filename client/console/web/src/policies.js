// The page Policies: which one is in force and why it chose as it did, when each operator ran, what others would have given.

import { curves } from "./curves.js";
import { action, card, h, say } from "./dom.js";
import * as figures from "./figures.js";
import { rankText } from "./network.js";
import { Table } from "./table.js";
import { timeline } from "./timeline.js";

const BACK = "millstream-policy-before"; // in the session's storage: the policy that was in force before the last switch
const LOOK_S = 2;
const SIMULATION_S = 120; // as the console bounds them
const SWEEP_S = 300;
const SPANS = [["30", "30 seconds"], ["60", "minute"], ["300", "5 minutes"], ["600", "10 minutes"], ["3600", "hour"]];
const MEASURES = [
  ["response_ms_mean", "Latency", figures.duration, -1],
  ["response_ms_p50", "p50", figures.duration, -1],
  ["response_ms_p95", "p95", figures.duration, -1],
  ["response_ms_p99", "p99", figures.duration, -1],
  ["slowdown_mean", "Slowdown", figures.number, -1],
  ["utility_per_application", "Utility", figures.number, 1],
  ["memory_bytes_max", "Memory, most", figures.size, -1],
  ["shed", "Shed, worst class", (value) => figures.percent(value === undefined ? null : 100 * value), -1],
  ["decision_share", "Deciding", (value) => figures.percent(value === undefined ? null : 100 * value), -1],
];
const LOADS = [["none", "nobody"], ["common", "common: all alike"], ["class", "class: each its own"], ["dilos", "dilos: shares are lent"]];
const CUSTOMARY = ["fcfs", "hnr", "bsd-log", "segment"];

/** Return name and options of a policy as the server tells them: "hnr (level=query, sharing=tree)". */
export function parsed(told) {
  const [, name, rest] = /^(\S+)(?: \((.*)\))?$/.exec(told) ?? [null, told, ""];
  const options = (rest ?? "").split(", ").filter(Boolean).map((option) => option.split(/=(.*)/s, 2));
  return { name, options };
}

/** Return the statement that switches to a policy. */
export function switching({ name, options }) {
  const literal = (value) => (/^(-?\d+(\.\d+)?|true|false)$/i.test(value) ? value : `'${value.replaceAll("'", "''")}'`);
  const list = options.map(([option, value]) => `${option} = ${literal(value)}`).join(", ");
  return `SET POLICY "${name}"${list ? ` WITH (${list})` : ""}`;
}

/** Return a policy as `simulate` takes it: hnr:level=query+sharing=tree. */
export function spelled({ name, options }) {
  return options.length ? `${name}:${options.map(([option, value]) => `${option}=${value}`).join("+")}` : name;
}

function orderColumns() {
  const term = (key) => (_, row) => figures.number(row.terms?.[key]);
  return [
    { key: "order", title: "Order", show: figures.text },
    { key: "unit", title: "Began with", show: figures.text },
    { key: "rows", title: "Rows waiting", show: figures.count, number: true },
    { key: "waited_ms", title: "Oldest waited", show: figures.duration, number: true },
    { key: "rank", title: "Rank", show: rankText, number: true },
    { key: "next", title: "Best left waiting", show: figures.text },
    { key: "next_rank", title: "Its rank", show: rankText, number: true },
    { key: "steps", title: "Ran", show: (steps) => steps.join(", ") },
    { key: "selectivity", title: "Selectivity", show: term("selectivity"), number: true },
  ];
}

function orderRow(order) {
  const { terms, next_terms: next } = order;
  return {
    ...order,
    name: order.order,
    unit: order.steps[0],
    rows: terms?.rows,
    waited_ms: terms && terms.wait_ns / 1e6,
    next: next ? `${next.label}, unit ${next.unit}` : "nothing",
  };
}

function decidingCard({ link, store }) {
  const told = h("p", { class: "quiet", role: "status" }, `A look records what the scheduler decides for ${LOOK_S} seconds.`);
  const table = new Table({ caption: "Last orders", columns: orderColumns() });
  const chart = timeline();
  const why = store.refusal("admin");
  const look = async () => {
    say(told, `Looking for ${LOOK_S} seconds …`);
    try {
      const found = await link.post("decisions", { seconds: LOOK_S });
      table.set(found.orders.map(orderRow).reverse());
      chart.set(found);
      const last = found.orders.at(-1);
      say(told, found.orders.length ? `${found.orders_in_all} orders in ${LOOK_S} seconds. ${sentence(last)}` : "Nothing was decided: no rows came.");
    } catch (refusal) {
      say(told, refusal.message);
    }
  };
  return [
    card("Why it chose as it did", action("Look now", why, look), why && h("p", { class: "why" }, why), told, table.element),
    card("When each operator ran", chart.control, chart.element),
  ];
}

/** Return in words why an order took what it took. */
export function sentence(order) {
  const took = `The last one began with ${order.steps[0]}`;
  if (order.rank === null || order.rank === undefined) return `${took}, whose turn it was.`;
  if (order.next_rank === null || order.next_rank === undefined) return `${took}; nothing else waited.`;
  return `${took}: its rank ${rankText(order.rank)} was above the ${rankText(order.next_rank)} of ${order.next_terms.label}.`;
}

function whatIfCard({ link, store, use }) {
  const told = h("p", { class: "quiet", role: "status" }, "The policies are simulated on what arrived, with the costs that were measured.");
  const minutes = h("select", { "aria-label": "What arrived in the last" }, SPANS.map(([value, title]) => h("option", { value, selected: value === "60" }, title)));
  const boxes = h("div", { class: "row" });
  const load = h("select", { "aria-label": "Who sheds" }, LOADS.map(([value, title]) => h("option", { value }, title)));
  const results = h("div", {});
  const over = h("div", {});
  const why = store.refusal("admin");
  let drawn = "";
  let begin;
  const offered = new Promise((resolve) => {
    begin = resolve;
  });
  const simulated = async (more, show) => {
    await offered; // a quick user presses before the server has said which policies there are
    const policies = [...boxes.querySelectorAll("input:checked")].map((box) => box.value);
    if (!policies.length) {
      say(told, "Choose at least one policy.");
      return;
    }
    const began = Date.now();
    const waiting = () => say(told, `Simulating for ${Math.round((Date.now() - began) / 1000)} s, at most ${more.sweep ? SWEEP_S : SIMULATION_S}; fewer policies or a shorter time are quicker …`);
    const timer = setInterval(waiting, 1000);
    waiting();
    try {
      const found = await link.post("simulate", { policies, last_s: Number(minutes.value), load: load.value, ...more });
      say(told, found.notices.join(" "));
      show(found.runs.map(withShed));
    } catch (refusal) {
      say(told, refusal.message);
    } finally {
      clearInterval(timer);
    }
  };
  const run = () => simulated({}, (runs) => results.replaceChildren(comparison(runs, store, use), bars(runs)));
  const sweep = () => simulated({ sweep: true }, (runs) => over.replaceChildren(overLoad(runs)));
  const element = card("What if", null, h("div", { class: "row" }, h("label", {}, "What arrived in the last ", minutes), h("label", {}, "who sheds ", load), action("Simulate", why, run, { class: "main" }), action("Draw curves over the load", why, sweep)),
    why && h("p", { class: "why" }, why), h("fieldset", {}, h("legend", {}, "Policies"), boxes), told, results, over);
  return {
    element,
    /** Offer the policies there are; what the user has chosen stays. */
    offer(policies) {
      const names = policies.map((row) => row.name).filter((name) => name !== "user").join();
      if (names === drawn || !store.policy) return; // the one in force stands first, so it has to be known
      drawn = names;
      const own = parsed(store.policy);
      const offered = [spelled(own), ...names.split(",").filter((name) => name !== own.name)];
      boxes.replaceChildren(...offered.map((policy, place) => {
        const chosen = place === 0 || CUSTOMARY.includes(policy);
        return h("label", {}, h("input", { type: "checkbox", value: policy, checked: chosen }), ` ${policy}`);
      }));
      begin();
    },
  };
}

const OBJECTIVES = [["p99", "latency p99"], ["slowdown", "slowdown"], ["utility", "utility"], ["memory", "memory"]];

function advisorCard({ link, store, use }) {
  const why = store.refusal("admin");
  const told = h("p", { class: "quiet", role: "status" }, "The advisor tries every policy on what arrived, checks the best with other seeds and more load, and proposes one.");
  const results = h("div", {});
  const objective = h("select", { "aria-label": "What is to be good" }, OBJECTIVES.map(([value, title]) => h("option", { value }, title)));
  const span = h("select", { "aria-label": "Advise on the last" }, SPANS.map(([value, title]) => h("option", { value, selected: value === "3600" }, title)));
  const minutes = h("select", { "aria-label": "How long to try" }, [0.1, 1, 3, 10].map((value) => h("option", { value, selected: value === 1 }, figures.duration(value * 60000))));
  const ask = async () => {
    say(told, "Trying policies …");
    results.replaceChildren();
    try {
      const asked = { objective: objective.value, last_s: Number(span.value), minutes: Number(minutes.value) };
      const { advice } = await link.post("advise", asked);
      say(told, `${figures.count(advice.recorded_rows)} rows in ${figures.duration(advice.recorded_s * 1000)}, ${advice.runs} runs. In force: ${advice.present}, with ${figures.number(advice.present_value)} (${advice.words}).`);
      results.replaceChildren(...proposal(advice, why, use));
    } catch (refusal) {
      say(told, refusal.message);
    }
  };
  const choices = h("div", { class: "row" }, h("label", {}, "What is to be good: ", objective), h("label", {}, "on the last ", span), h("label", {}, "trying for ", minutes), action("Ask the advisor", why, ask, { class: "main" }));
  return card("The advisor", null, choices, why && h("p", { class: "why" }, why), told, results);
}

function proposal(advice, why, use) {
  const found = advice.proposed;
  if (found === null) return [h("p", { class: "told good" }, `Keep what you have: ${advice.reason}`)];
  const gain = ({ present, proposed, share, ci95 }) => `${figures.number(present)} → ${figures.number(proposed)}, ${figures.percent(100 * share)} ± ${figures.percent(100 * ci95)}`;
  const worse = [
    ...found.worse.map((one) => `${one.words}: ${figures.number(one.present)} → ${figures.number(one.proposed)}`),
    ...found.slower.map((one) => `p99 of query ${one.query}: ${figures.duration(one.present_ms)} → ${figures.duration(one.proposed_ms)}`),
  ];
  const apply = action(`Use ${found.policy}`, why, () => use({ name: found.policy.split(":")[0], options: optionsOf(found.policy) }), { class: "main" });
  return [
    h("div", { class: "told good" }, h("p", {}, h("strong", {}, `Proposal: ${found.policy}`)),
      h("p", {}, `Gain now: ${gain(found.gain)}`), h("p", {}, `With 20% more load: ${gain(found.gain_at_more_load)}`), apply),
    worse.length > 0 && h("div", { class: "told bad" }, h("p", {}, "Could get worse"), h("ul", {}, worse.map((line) => h("li", {}, line)))),
  ].filter(Boolean);
}

/** Return a run with the share that the class lost that lost most, where a load manager shed. */
export function withShed(run) {
  const lost = Object.entries(run).filter(([key]) => key.startsWith("loss_share_")).map(([, share]) => share);
  return lost.length ? { ...run, shed: Math.max(...lost) } : run;
}

function comparison(runs, store, use) {
  const measures = MEASURES.filter(([key]) => runs.some((run) => run[key] !== undefined));
  const best = Object.fromEntries(measures.map(([key, , , sense]) => [key, bestOf(runs.map((run) => run[key]), sense)]));
  const why = store.refusal("admin");
  const rows = runs.map((run) => h("tr", {}, h("th", { scope: "row" }, run.policy),
    measures.map(([key, , show]) => h("td", { class: run[key] === best[key] ? "number good" : "number" }, show(run[key]), run[key] === best[key] ? " ✓" : "")),
    h("td", {}, action("Use", why, () => use({ name: run.policy.split(":")[0], options: optionsOf(run.policy) }), { "aria-label": `Use ${run.policy}` }))));
  const head = h("tr", {}, h("th", { scope: "col" }, "Policy"), measures.map(([, title]) => h("th", { scope: "col", class: "number" }, title)), h("th", { scope: "col" }, "Switch"));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Policies compared, scrolls" },
    h("table", { "aria-label": "Policies compared; the best of each column has a tick" }, h("thead", {}, head), h("tbody", {}, rows)));
}

function optionsOf(policy) {
  const rest = policy.split(/:(.*)/s, 2)[1];
  return rest ? rest.split(/[+,]/).map((option) => option.split(/=(.*)/s, 2)) : [];
}

/** Return the best of values, by sense (1: the greatest); null when all are alike. */
export function bestOf(values, sense) {
  const known = values.filter((value) => typeof value === "number");
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return low === high ? null : sense > 0 ? high : low;
}

/** Return curves of a measure that the user chooses: each policy over the share of the processor that the work takes. */
function overLoad(runs) {
  const holder = h("div", {});
  const policies = [...new Set(runs.map((run) => run.policy))];
  const draw = () => {
    const [key, title, show] = MEASURES.find(([name]) => name === choice.value);
    const series = policies.map((label) => ({ label, points: runs.filter((run) => run.policy === label).map((run) => [run.load, run[key]]) }));
    holder.replaceChildren(curves({ title, xTitle: "load: the share of a processor that the work takes", series, show }));
  };
  const offered = MEASURES.filter(([key]) => runs.some((run) => typeof run[key] === "number"));
  const choice = h("select", { "aria-label": "Measure of the curves", onchange: draw }, offered.map(([key, title]) => h("option", { value: key, selected: key === "response_ms_p99" }, title)));
  draw();
  return h("div", {}, h("div", { class: "row" }, h("h3", {}, "If there were more or less to do"), choice),
    h("p", { class: "why" }, "The same arrivals, with costs scaled so that the work takes such a share of the processor."), holder);
}

function bars(runs) {
  const quantiles = [["response_ms_p50", "p50"], ["response_ms_p95", "p95"], ["response_ms_p99", "p99"], ["response_ms_max", "most"]];
  const top = Math.max(...runs.map((run) => run.response_ms_max)) || 1;
  const bars = runs.map((run) => h("div", { class: "bars" }, h("strong", {}, run.policy), quantiles.map(([key, title]) => {
    const bar = h("i", { "aria-hidden": "true" });
    bar.style.width = `${Math.max(0.5, (100 * run[key]) / top)}%`;
    return h("div", {}, h("span", {}, title), h("span", { class: "bar" }, bar), h("span", {}, figures.duration(run[key])));
  })));
  return h("div", { class: "cards", role: "group", "aria-label": "Latency by policy" }, bars);
}

/** Return the page. */
export function policiesPage({ link, store }) {
  const told = h("div", { role: "status" });
  const back = h("span", {});
  const now = h("p", {});
  const options = h("input", { placeholder: "clusters=12, level=operator" });
  const why = store.refusal("admin");
  let policies = [];
  const ask = async () => {
    policies = (await link.run("SHOW POLICIES")).objects;
    table.set(policies);
    page.update();
  };
  const use = async (wanted) => {
    const before = store.policy;
    try {
      const answer = await link.run(switching(wanted));
      sessionStorage.setItem(BACK, before);
      told.replaceChildren(h("p", { class: "told good" }, `${answer.notices.join(" ") || `The policy is ${wanted.name}.`} Before it was ${before}.`));
      await ask();
    } catch (refusal) {
      told.replaceChildren(h("p", { class: "told bad" }, refusal.message));
    }
  };
  const given = () => options.value.split(",").map((one) => one.trim()).filter(Boolean).map((one) => one.split(/=(.*)/s, 2));
  let chosen = null;
  const go = action("Choose a policy below", why ?? "choose a policy in the table", () => use({ name: chosen, options: given() }));
  const choose = (row) => {
    chosen = row.name;
    const ready = action(`Switch to ${chosen}`, why, () => use({ name: chosen, options: given() }), { class: "main" });
    bar.replaceChildren(ready, h("label", {}, "with options ", options));
    ready.focus();
  };
  const bar = h("div", { class: "row" }, go);
  const columns = [
    { key: "name", title: "Policy", show: figures.text },
    { key: "in_use", title: "In force", show: (value) => (value ? "in force" : "") },
    { key: "summary", title: "What runs first", show: figures.text },
    { key: "options", title: "Options", show: figures.text },
    { key: "source", title: "From", show: figures.text },
  ];
  const table = new Table({ caption: "Policies", columns, open: choose });
  const whatIf = whatIfCard({ link, store, use });
  const page = {
    element: h("div", {}, h("h1", {}, "Policies"),
      card("In force", back, now, told),
      advisorCard({ link, store, use }),
      whatIf.element,
      card("All policies", table.tools,
        h("p", { class: "why" }, why ?? "A switch takes effect with the next order; queues and states stay as they are."), bar, table.element),
      decidingCard({ link, store })),
    update() {
      if (policies.length) whatIf.offer(policies);
      const used = policies.find((row) => row.in_use);
      say(now, `${store.policy || figures.UNKNOWN}${used ? `: ${used.summary} (${used.source})` : ""}`);
      const before = sessionStorage.getItem(BACK);
      const label = before && before !== store.policy ? `Go back to ${before}` : "";
      if (back.textContent !== label) back.replaceChildren(...(label ? [action(label, why, () => use(parsed(before)))] : []));
    },
    destroy() {},
  };
  ask().catch((refusal) => told.replaceChildren(h("p", { class: "told bad" }, refusal.message)));
  return page;
}
