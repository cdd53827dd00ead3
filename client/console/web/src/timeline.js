// When each operator ran: a lane an operator, a bar a train, as wide as its run took.

import { h, mark, s } from "./dom.js";
import { count, duration } from "./figures.js";

const LANES_MAX = 24;
const LANE_PX = 22;
const LABEL_PX = 190;
const WIDTH_PX = 1000;
const WINDOWS_MS = [5, 20, 100, 500, 2000];

/** Return what draws the spans of a look: `element`, `control` (which part of it is shown), `set(look)`. */
export function timeline() {
  let look = { operators: [], spans: [] };
  let windowMs = 500;
  let from = 0;
  const svg = s("svg", { class: "timeline", role: "img", "aria-label": "No look was taken yet" });
  const place = h("input", { type: "range", min: "0", max: "1000", value: "1000", "aria-label": "Which part of the look", oninput: () => draw() });
  const choose = (event) => {
    windowMs = Number(event.target.value);
    draw();
  };
  const width = h("select", { "aria-label": "How much time is shown", onchange: choose }, WINDOWS_MS.map((ms) => h("option", { value: ms, selected: ms === windowMs }, duration(ms))));

  function draw() {
    const end = look.spans.reduce((latest, [at, took]) => Math.max(latest, at + took), 0);
    from = Math.max(0, ((end - windowMs * 1000) * Number(place.value)) / 1000);
    const scale = (WIDTH_PX - LABEL_PX) / (windowMs * 1000);
    const spent = new Map();
    for (const [, took, operator] of look.spans) spent.set(operator, (spent.get(operator) ?? 0) + took);
    const lanes = [...spent].sort((a, b) => b[1] - a[1]).slice(0, LANES_MAX).map(([operator]) => operator);
    const shown = look.spans.filter(([at, took]) => at + took >= from && at <= from + windowMs * 1000);
    const bars = shown.filter(([, , operator]) => lanes.includes(operator)).map(([at, took, operator, rows, out]) => {
      const x = LABEL_PX + Math.max(0, at - from) * scale;
      const bar = s("rect", { x, y: lanes.indexOf(operator) * LANE_PX + 3, width: Math.max(1, Math.min(took * scale, WIDTH_PX - x)), height: LANE_PX - 6, rx: 2 });
      bar.append(s("title", {}, `${look.operators[operator]}: ${count(rows)} rows in, ${count(out)} out, ${duration(took / 1000)}`));
      return bar;
    });
    const labels = lanes.map((operator, lane) => s("text", { x: 0, y: lane * LANE_PX + 15 }, cut(look.operators[operator]), s("title", {}, look.operators[operator])));
    const lines = lanes.map((_, lane) => s("line", { x1: LABEL_PX, x2: WIDTH_PX, y1: (lane + 1) * LANE_PX, y2: (lane + 1) * LANE_PX }));
    mark(svg, "viewBox", `0 0 ${WIDTH_PX} ${Math.max(1, lanes.length) * LANE_PX}`);
    mark(svg, "aria-label", `${count(shown.length)} runs of ${spent.size} operators in ${duration(windowMs)}, from ${duration(from / 1000)} of the look on; the table of orders says the same`);
    svg.replaceChildren(...lines, ...labels, ...bars);
  }

  return {
    element: h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Timeline, scrolls" }, svg),
    control: h("div", { class: "row" }, h("label", {}, "Shown ", width), h("label", {}, "From ", place)),
    set(found) {
      look = found;
      draw();
    },
  };
}

function cut(text) {
  return text.length > 27 ? `${text.slice(0, 26)}…` : text;
}
