// The page Network: the running operators from streams to queries in layers, as wide as rows flow, coloured by what waits.

import { action, card, h, mark, pairs, s, say } from "./dom.js";
import * as figures from "./figures.js";
import { BOXES_MAX, MINUTE_SAMPLES, heat, networkOf, operatorsOf, widthOf } from "./graph.js";

const BOX = { width: 150, height: 46 };
const SCALE = ["nothing waits", "1 to 31", "32 to 999", "1,000 to 31,000", "more"];
const PLAY_MS = 150;
const LOOK_S = 2;

/** Return what lays boxes out in a worker: `lay(boxes, edges, take)`; only the newest answer is taken. */
export function layouter() {
  const worker = new Worker("/files/layout.js", { type: "module" });
  let number = 0;
  let taker = null;
  worker.onmessage = ({ data }) => data.number === number && taker(data);
  return {
    lay(boxes, edges, take, across = true) {
      number += 1;
      taker = take;
      worker.postMessage({ number, across, boxes: boxes.map(({ id }) => ({ id, ...BOX })), edges: edges.map(({ from, to }) => [from, to]) });
    },
    end: () => worker.terminate(),
  };
}

/** Return an SVG group for a box at its middle; `press` is called by click, Enter and space. */
export function boxShape(id, x, y, press) {
  const title = s("text", { x: 10, y: 19, class: "title" });
  const line = s("text", { x: 10, y: 37 });
  const rect = s("rect", { width: BOX.width, height: BOX.height, rx: 6 });
  const keys = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    press(id);
  };
  const group = s("g", { class: "box", transform: `translate(${x - BOX.width / 2} ${y - BOX.height / 2})`, tabindex: "0", role: "button", onclick: () => press(id), onkeydown: keys }, rect, title, " ", line);
  return { group, title, line };
}

/** Return a path through points. */
export function linePath(points) {
  return points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

/** Return a rank in words; ranks of a policy differ by powers of ten, or in the last digits of great numbers. */
export function rankText(rank) {
  if (rank === null || rank === undefined) return figures.UNKNOWN;
  const size = Math.abs(rank);
  return size !== 0 && (size >= 1e7 || size < 1e-3) ? rank.toExponential(size >= 1e7 ? 6 : 2) : figures.number(rank);
}

function detail({ link, store, box, bills }) {
  const why = store.refusal("admin");
  const policyName = store.policy.split(" ")[0];
  const told = h("p", { class: "quiet", role: "status" });
  const look = async () => {
    say(told, `Looking for ${LOOK_S} seconds …`);
    try {
      const found = await link.post("decisions", { seconds: LOOK_S });
      const numbers = box.operators.map(({ operator }) => ` ${operator}`);
      const own = found.orders.filter((order) => order.steps.some((step) => numbers.some((number) => step.endsWith(number))));
      say(told, own.length ? `It was in ${own.length} of the last ${found.orders.length} orders.` : "No order ran it in that time.");
      orders.replaceChildren(...own.slice(-8).reverse().map((order) => h("li", {},
        `order ${order.order}, begun with ${order.steps[0]}: rank ${rankText(order.rank)}, unit ${figures.text(order.terms?.unit)}, ${figures.count(order.terms?.rows)} rows waiting`)));
    } catch (refusal) {
      say(told, refusal.message);
    }
  };
  const orders = h("ul", {});
  const facts = h("div", {});
  const factsOf = (now) => now.operators.map((one) => pairs([
    ["Operator", `${one.kind} ${one.operator}`],
    ["Cost of a row", one.cost_us_per_row === null ? figures.UNKNOWN : `${figures.number(one.cost_us_per_row)} µs`],
    ["Selectivity", figures.number(one.selectivity)],
    ["Rows in", figures.count(one.rows_in)],
    ["Rows out", figures.count(one.rows_out)],
    ["Waiting", figures.count(one.waiting)],
    ["Its unit", figures.text(one.unit)],
    [`Priority of the unit under ${policyName}`, rankText(one.rank)],
    ["State", `${figures.count(one.state_rows)} rows, ${figures.size(one.state_bytes)}`],
    ["Watermark", one.watermark === null ? figures.UNKNOWN : new Date(one.watermark / 1000).toISOString()],
  ]));
  const served = box.serves.map((name) => {
    const bill = bills.get(name);
    const costs = bill ? `: ${figures.duration(bill.cpu_ms)} of processor time, alone it would be ${figures.duration(bill.cpu_ms_unshared)}` : "";
    return h("li", {}, h("a", { href: `#/query/${encodeURIComponent(name)}` }, name), costs);
  });
  const update = (now) => facts.replaceChildren(...factsOf(now));
  update(box);
  const element = card(`${box.title}: ${box.kind}`, null, facts,
    served.length > 0 && [h("h3", {}, served.length > 1 ? `Shared by ${served.length} queries; the bill of each` : "Serves"), h("ul", {}, served)],
    box.operators.length > 0 && [h("div", { class: "row" }, action("Its last orders", why, look), why && h("span", { class: "why" }, why)), told, orders]);
  return { element, update };
}

/** Return the page. */
export function networkPage({ link, store }) {
  const layout = layouter();
  const told = h("p", { class: "quiet", role: "status" }, "Waiting for the network …");
  const svg = s("svg", { class: "network", role: "group", "aria-label": "The network, from streams to queries" });
  const search = h("input", { type: "search", placeholder: "Query or stream", "aria-label": "Show only what belongs to", oninput: () => draw() });
  const zoom = h("select", { "aria-label": "Size", onchange: () => size() }, [25, 50, 75, 100, 150].map((share) => h("option", { value: share, selected: share === 100 }, `${share}%`)));
  const past = h("input", { type: "range", min: "0", max: "0", value: "0", "aria-label": "Moment of the last minute", oninput: () => colour() });
  const play = h("button", { type: "button", onclick: () => animate() }, "Play the last minute");
  const moment = h("span", { class: "quiet" }, "now");
  const side = h("div", {});
  const samples = []; // of the last minute: waiting by operator
  let operators = [];
  let before = null;
  let at = 0;
  let seconds = 0;
  let shown = { boxes: [], edges: [] };
  let shape = "";
  let shapes = new Map();
  let lines = new Map();
  let extent = [1, 1];
  let chosen = null;
  let facts = null; // of the box that is chosen
  let bills = new Map();
  let timer = 0;

  function size() {
    const share = Number(zoom.value) / 100;
    svg.setAttribute("width", extent[0] * share);
    svg.setAttribute("height", extent[1] * share);
  }

  function draw() {
    shown = networkOf(operators, before, seconds, search.value);
    const parts = [`${shown.boxes.length} boxes`];
    if (shown.folded) parts.push("what serves one query alone is one box");
    if (shown.left) parts.push(`${shown.left} boxes with fewer rows are not shown (at most ${BOXES_MAX}); search for them`);
    say(told, operators.length ? parts.join("; ") : "Nothing runs.");
    const next = JSON.stringify([shown.boxes.map(({ id }) => id), shown.edges.map(({ from, to }) => [from, to])]);
    if (next === shape) {
      colour();
      return;
    }
    shape = next;
    layout.lay(shown.boxes, shown.edges, place);
  }

  function place({ places, lines: laid, width, height }) {
    shapes = new Map(places.map(([id, x, y]) => [id, boxShape(id, x, y, choose)]));
    lines = new Map(laid.map(([from, to, points]) => [JSON.stringify([from, to]), s("path", { class: "edge", d: linePath(points) })]));
    mark(svg, "viewBox", `0 0 ${Math.max(1, width)} ${Math.max(1, height)}`);
    extent = [width, height];
    svg.replaceChildren(...lines.values(), ...[...shapes.values()].map(({ group }) => group));
    size();
    colour();
  }

  function colour() {
    const back = samples[samples.length - 1 - Number(past.value)];
    say(moment, Number(past.value) === 0 ? "now" : `${2 * Number(past.value)} s ago`);
    for (const box of shown.boxes) {
      const drawn = shapes.get(box.id);
      if (!drawn) continue;
      const waiting = back ? box.operators.reduce((sum, { operator }) => sum + (back.get(operator) ?? 0), 0) : box.waiting;
      const flows = box.kind === "stream" ? `${figures.rate(box.rowsOut)} out` : `${figures.rate(box.rowsIn)}, ${figures.count(waiting)} waiting`;
      const short = box.title.length > 19 ? `${box.title.slice(0, 18)}…` : box.title;
      say(drawn.title, short);
      say(drawn.line, flows);
      const more = [box.kind, short === box.title ? "" : box.title, box.serves.length > 1 ? `shared by ${box.serves.length} queries` : ""];
      mark(drawn.group, "aria-label", [`${short} ${flows}`, ...more.filter(Boolean)].join(", ")); // begins with what is seen, for who speaks to the page
      mark(drawn.group, "class", `box heat${heat(waiting)}${box.kind === "stream" || box.kind === "query" ? " end" : ""}${box.serves.length > 1 ? " shared" : ""}${box.id === chosen ? " chosen" : ""}`);
    }
    for (const edge of shown.edges) {
      const line = lines.get(JSON.stringify([edge.from, edge.to]));
      if (line) line.style.strokeWidth = `${widthOf(edge.rate).toFixed(1)}px`;
    }
  }

  async function choose(id) {
    chosen = id;
    const box = shown.boxes.find((one) => one.id === id);
    if (!box) return;
    try {
      bills = new Map((await link.run("SHOW SHARING")).objects.map((row) => [row.query, row]));
    } catch {
      bills = new Map(); // an older server has no bills; the box says what it knows
    }
    facts = detail({ link, store, box, bills });
    side.replaceChildren(facts.element);
    colour();
  }

  function animate() {
    clearInterval(timer);
    past.value = past.max;
    timer = setInterval(() => {
      colour();
      if (Number(past.value) === 0) clearInterval(timer);
      else past.value = String(Number(past.value) - 1);
    }, PLAY_MS);
  }

  const heard = ({ detail: message }) => {
    const next = operatorsOf(message);
    seconds = (message.at - at) / 1000;
    [before, operators, at] = [operators, next, message.at];
    samples.push(new Map(next.map((operator) => [operator.operator, operator.waiting])));
    if (samples.length > MINUTE_SAMPLES) samples.shift();
    past.max = String(samples.length - 1);
    draw();
    const box = shown.boxes.find((one) => one.id === chosen);
    if (box) facts?.update(box);
  };
  link.addEventListener("network", heard);
  link.network(true);
  const scale = h("div", { class: "row" }, h("span", { class: "quiet" }, "Waiting:"), SCALE.map((title, step) => h("span", { class: "key" }, h("i", { class: `heat${step}`, "aria-hidden": "true" }), title)));
  const frame = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Network, scrolls" }, svg);
  frame.style.maxHeight = "70vh";
  return {
    element: h("div", {}, h("h1", {}, "Network"),
      card("Running operators", h("div", { class: "row" }, search, h("label", {}, "Size ", zoom)), told, scale,
        h("div", { class: "row" }, play, past, moment), frame), side),
    update() {},
    destroy() {
      clearInterval(timer);
      link.removeEventListener("network", heard);
      link.network(false);
      layout.end();
    },
  };
}
