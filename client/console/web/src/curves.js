// Curves: a measure over the load, a line a policy, told apart by colour, by dashes and by a label at its end; and the same as a table.

import { h, s } from "./dom.js";
import * as figures from "./figures.js";

const WIDTH = 640;
const HEIGHT = 260;
const LEFT = 70;
const RIGHT = 130;
const TOP = 12;
const BOTTOM = 34;
const LABEL_PX = 13;
const LOG_FROM = 30; // times between the least and the greatest value
const DASHES = ["", "7 3", "2 3"];
const TONES = ["--c1", "--c2", "--c3", "--c4"];

/** Return round numbers from `low` to `high`, some four of them, or powers of ten. */
export function ticksOf(low, high, log) {
  if (log) {
    const powers = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) powers.push(10 ** power);
    return powers;
  }
  const rough = (high - low || high || 1) / 4;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((times) => times * size >= rough) * size;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high * (1 + 1e-9); tick += step) ticks.push(tick);
  return ticks;
}

/** Return a chart of series [{ label, points: [[x, y]] }]; `show` writes a value of y, `xTitle` and `title` name the axes. */
export function curves({ title, xTitle, series, show }) {
  const known = series.map(({ label, points }) => ({ label, points: points.filter(([, y]) => typeof y === "number") }));
  const values = known.flatMap(({ points }) => points.map(([, y]) => y));
  const places = known.flatMap(({ points }) => points.map(([x]) => x));
  if (!values.length) return h("p", {}, "There is nothing to draw of this measure.");
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const log = least > 0 && most / least >= LOG_FROM;
  const ticks = ticksOf(log ? least : 0, most || 1, log);
  const [low, high] = log ? [ticks[0], ticks.at(-1)] : [0, Math.max(most, ticks.at(-1)) || 1];
  const [from, to] = [Math.min(...places), Math.max(...places)];
  const x = (value) => LEFT + ((value - from) / (to - from || 1)) * (WIDTH - LEFT - RIGHT);
  const share = (value) => (log ? Math.log(value / low) / Math.log(high / low || 10) : (value - low) / (high - low));
  const y = (value) => HEIGHT - BOTTOM - share(value) * (HEIGHT - TOP - BOTTOM);
  const grid = ticks.map((tick) => [s("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) }), s("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, show(tick))]);
  const loads = [...new Set(places)].map((place) => s("text", { x: x(place), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, figures.number(place)));
  const ends = apart(known.map(({ points }, number) => ({ number, at: y(points.at(-1)?.[1] ?? least) })));
  const lines = known.flatMap(({ label, points }, number) => {
    const path = s("path", { d: points.map(([at, value], place) => `${place ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("") });
    path.style.stroke = `var(${TONES[number % TONES.length]})`;
    path.style.strokeDasharray = DASHES[Math.floor(number / TONES.length) % DASHES.length];
    const text = s("text", { x: WIDTH - RIGHT + 8, y: ends.get(number) + 4 }, label.length > 18 ? `${label.slice(0, 17)}…` : label);
    text.style.fill = `var(${TONES[number % TONES.length]})`;
    return [path, text];
  });
  const told = known.map(({ label, points }) => `${label} ${points.map(([at, value]) => `${show(value)} at ${figures.number(at)}`).join(", ")}`);
  const chart = s("svg", { class: "curves", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title} over ${xTitle}: ${told.join("; ")}` }, grid.flat(), loads,
    s("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 2, "text-anchor": "middle" }, xTitle), lines);
  return h("figure", {}, h("figcaption", {}, log ? `${title}, on a scale of powers of ten` : title), chart);
}

/** Return by number where labels stand, each a line below the one above it at least. */
function apart(labels) {
  const found = new Map();
  let free = TOP;
  for (const { number, at } of [...labels].sort((a, b) => a.at - b.at)) {
    found.set(number, Math.max(at, free));
    free = found.get(number) + LABEL_PX;
  }
  const over = Math.max(0, free - LABEL_PX - (HEIGHT - 4));
  return new Map([...found].map(([number, at]) => [number, at - over]));
}
