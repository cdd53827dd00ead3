// A plan as boxes, the streams on the left, and drawing in it: of the plan object that EXPLAIN gives, and into the text that it is written as.

import { h, mark, s, say } from "./dom.js";
import { boxShape, layouter, linePath } from "./network.js";
import { column, listed, named, sqlOf, undrawable } from "./sql.js";

const SAYS_MOST = ["stream", "condition", "window", "columns", "aggregates", "on", "order_by", "partition_by", "limit", "kind"];
const columnText = ([name, text]) => (named(name) === text ? text : `${text} AS ${named(name)}`);
const aggregateText = ([name, call, argument]) => `${call.toUpperCase()}(${argument}) AS ${named(name)}`;
const plainText = { show: (value) => String(value ?? ""), read: (text) => text || undefined };
const listText = { show: (value) => (value ?? []).map((one) => (Array.isArray(one) ? one[1] : one)).join(", "), read: listed };
const columnsText = { show: (value) => (Array.isArray(value) ? value.map(columnText).join(", ") : ""), read: (text) => listed(text).map(column) };
const aggregatesText = { show: (value) => (value ?? []).map(aggregateText).join(", "), read: (text) => listed(text).map(aggregate) };
const FIELDS = {
  source: [["stream", "Stream", plainText]],
  select: [["condition", "Rows for which", plainText]],
  project: [["columns", "Columns", columnsText]],
  window: [["window", "Window", plainText]],
  aggregate: [["window", "Window", plainText], ["where", "Rows for which", plainText], ["group_by", "Group by", listText], ["aggregates", "Aggregates", aggregatesText]],
  distinct: [],
  top: [["order_by", "Order by", plainText], ["limit", "First", { show: plainText.show, read: (text) => Number(text) }]],
  join: [["stream", "With the stream (call it b)", plainText], ["on", "Pairs for which (the left is a)", plainText], ["within", "Within", plainText]],
};
const EXAMPLES = { condition: "value > 30", window: "RANGE 10 SECONDS SLIDE 1 SECOND", columns: "sensor, value * 2 AS twice", group_by: "sensor", aggregates: "COUNT(*) AS n, AVG(value) AS mean", order_by: "value DESC", limit: "10", on: "a.sensor = b.sensor", within: "2 SECONDS" };
const PALETTE = ["select", "project", "window", "aggregate", "top", "distinct", "join"];

/** Return "AVG(value) AS mean" as a plan has it: [name, function, argument]. */
export function aggregate(text) {
  const [name, call] = column(text);
  const found = /^(\w+)\s*\((.*)\)$/s.exec(call);
  if (!found) throw new Error(`${call} is no aggregate; write COUNT(*) AS n`);
  return [name === call ? found[1].toLowerCase() : name, found[1].toLowerCase(), found[2].trim()];
}

/** Return the boxes of a plan object's root, each { id, op, says, node }, and its edges. */
export function boxesOf(root) {
  const boxes = [];
  const edges = [];
  const visit = (node) => {
    const id = `p${boxes.length}`;
    boxes.push({ id, op: node.op, says: saysOf(node), node });
    for (const input of inputsOf(node)) edges.push({ from: visit(input), to: id });
    return id;
  };
  visit(root);
  return { boxes, edges };
}

function inputsOf(node) {
  return Object.values(node).flat().filter((value) => value !== null && typeof value === "object" && "op" in value);
}

function saysOf(node) {
  const key = SAYS_MOST.find((name) => node[name] !== undefined);
  const value = node[key];
  if (value === undefined) return "";
  if (!Array.isArray(value)) return String(value);
  return value.map((one) => (Array.isArray(one) ? one[0] : String(one))).join(", ");
}

/** Return a plan in which `change(node)` stands for one node; what concerns the whole query stays at the root. */
export function changed(plan, target, change) {
  const visit = (node) => {
    if (node === target) return change(node);
    const next = { ...node };
    if (node.input) next.input = visit(node.input);
    if (node.inputs) next.inputs = node.inputs.map(visit);
    return next;
  };
  const { emit, stream, every } = plan.root.op === "source" ? {} : plan.root;
  const whole = Object.fromEntries(Object.entries({ emit, stream, every }).filter(([, value]) => value !== undefined));
  const bare = (node) => {
    const rest = { ...node };
    if (node.op !== "source") for (const name of Object.keys(whole)) delete rest[name];
    return rest;
  };
  const root = target === plan.root ? change(bare(plan.root)) : bare(visit(plan.root));
  return { ...plan, root: root.op === "source" ? root : { ...root, ...whole } };
}

/** Return { element, set(plan), destroy() }; `write(text)` puts a text into the editor. */
export function planView(write) {
  const layout = layouter();
  const svg = s("svg", { class: "plan", role: "group", "aria-label": "The plan" });
  const told = h("p", { class: "quiet", role: "status" }, "Select a box to change it or to put another behind it.");
  const form = h("form", {});
  let shown = { boxes: [] };
  let plan = null;

  const draw = (target, change) => {
    try {
      const next = changed(plan, target, change);
      const why = undrawable(next);
      if (why) throw new Error(`This plan cannot be drawn: ${why}. Change its text instead.`);
      write(sqlOf(next));
      form.replaceChildren();
      say(told, "Written into the text.");
    } catch (problem) {
      say(told, problem.message);
    }
  };

  /** Show the fields of an operator; `put(words)` gets what was written into them. */
  const ask = (op, node, put, more) => {
    const fields = FIELDS[op].map(([key, title, { show, read }]) => {
      const input = h("input", { value: show(node[key]), placeholder: EXAMPLES[key] });
      return { key, read, input, label: h("label", { class: "field" }, title, input) };
    });
    const submit = (event) => {
      event.preventDefault();
      try {
        put(Object.fromEntries(fields.map(({ key, read, input }) => [key, read(input.value.trim())])));
      } catch (problem) {
        say(told, problem.message);
      }
    };
    form.onsubmit = submit;
    const done = fields.length > 0 || !more ? h("button", { type: "submit", class: "main" }, more ? `Change ${op}` : `Put ${op} in`) : null;
    form.replaceChildren(...fields.map(({ label }) => label), h("div", { class: "row" }, done, more));
    fields[0]?.input.focus();
  };

  const add = (target, op) => {
    const put = (words) => draw(target, (node) => {
      if (op !== "join") return { op, ...words, input: node };
      const right = { op: "source", stream: words.stream, as: "b" };
      return { op, kind: "inner", on: words.on, within: words.within, inputs: [{ ...node, as: node.as ?? "a" }, right] };
    });
    if (FIELDS[op].length) ask(op, {}, put, null);
    else put({});
  };

  const press = (id) => {
    const { node, op } = shown.boxes.find((box) => box.id === id);
    if (!FIELDS[op] || op === "join") {
      form.replaceChildren();
      say(told, `A ${op} is changed in the text.`);
      return;
    }
    const behind = PALETTE.map((name) => h("button", { type: "button", onclick: () => add(node, name) }, `+ ${name}`));
    const away = node.input && h("button", { type: "button", onclick: () => draw(node, () => node.input) }, `Remove ${op}`);
    say(told, "Behind it:");
    ask(op, node, (words) => draw(node, (old) => ({ ...old, ...words })), [behind, away]);
  };

  const place = ({ places, lines, width, height }) => {
    mark(svg, "viewBox", `0 0 ${Math.max(1, width)} ${Math.max(1, height)}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    const shapes = places.map(([id, x, y], number) => {
      const box = shown.boxes[number];
      const { group, title, line } = boxShape(id, x, y, press);
      say(title, box.op);
      say(line, box.says.length > 19 ? `${box.says.slice(0, 18)}…` : box.says);
      mark(group, "aria-label", `${title.textContent} ${line.textContent}, ${box.says}`);
      mark(group, "class", "box");
      group.addEventListener("dragover", (event) => event.preventDefault());
      group.addEventListener("drop", (event) => {
        event.preventDefault();
        const op = event.dataTransfer.getData("text/plain");
        if (PALETTE.includes(op)) add(box.node, op);
      });
      return group;
    });
    svg.replaceChildren(...lines.map(([, , points]) => s("path", { class: "edge", d: linePath(points) })), ...shapes);
  };

  const carried = (op) => (event) => event.dataTransfer.setData("text/plain", op);
  const palette = PALETTE.map((op) => h("span", { class: "tool", draggable: "true", ondragstart: carried(op) }, op));
  return {
    element: h("div", {}, h("p", { class: "why" }, "Drag onto a box: ", palette), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Plan, scrolls" }, svg), told, form),
    set(next) {
      plan = next;
      shown = boxesOf(plan.root);
      layout.lay(shown.boxes, shown.edges, place);
    },
    destroy: () => layout.end(),
  };
}
