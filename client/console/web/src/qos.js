// The QoS graph of a query: how much a result is worth by its latency, drawn by dragging its points or with the arrow keys.

import { h, mark, s, say } from "./dom.js";
import { duration, number } from "./figures.js";

const [WIDTH, HEIGHT, EDGE] = [320, 130, 24];
const [LEAST_MS, MOST_MS] = [1, 100000];
const POINTS = [[10, 1], [1000, 1], [10000, 0]]; // as the server assumes: ms and utility

const xOf = (ms) => EDGE + ((WIDTH - 2 * EDGE) * Math.log10(ms / LEAST_MS)) / Math.log10(MOST_MS / LEAST_MS);
const msOf = (x) => LEAST_MS * 10 ** ((Math.max(0, Math.min(1, (x - EDGE) / (WIDTH - 2 * EDGE)))) * Math.log10(MOST_MS / LEAST_MS));
const yOf = (utility) => HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * utility;
const utilityOf = (y) => Math.max(0, Math.min(1, (HEIGHT - EDGE - y) / (HEIGHT - 2 * EDGE)));

/** Return points moved so that latencies rise and utilities do not: the point `moved` stays where it was put as far as its neighbours let it. */
export function inOrder(points, moved) {
  const [before, , after] = [points[moved - 1], points[moved], points[moved + 1]];
  const low = before ? before[0] * 1.01 : LEAST_MS;
  const high = after ? after[0] / 1.01 : MOST_MS;
  const top = before ? before[1] : 1;
  const bottom = after ? after[1] : 0;
  const [ms, utility] = points[moved];
  return points.map((point, place) => (place === moved ? [Math.max(low, Math.min(high, ms)), Math.max(bottom, Math.min(top, utility))] : point));
}

/** Return the graph as WITH (qos = …) writes it. */
export function qosText(points) {
  return ["0ms:1", ...points.map(([ms, utility]) => `${Number(ms.toPrecision(3))}ms:${Number(utility.toFixed(2))}`)].join(", ");
}

/** Return { element, value() -> text or null when nothing was changed }. `changed` is called after each change. */
export function qosGraph(changed) {
  let points = POINTS;
  let touched = false;
  const line = s("path", { class: "edge" });
  const svg = s("svg", { class: "qos", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": "QoS graph: utility by latency" });
  const told = h("span", { class: "quiet", role: "status" }, "as the server assumes");
  const dots = points.map((_, place) => s("circle", { r: 7, tabindex: "0", role: "slider", "aria-valuemin": LEAST_MS, "aria-valuemax": MOST_MS, onkeydown: (event) => key(event, place), onpointerdown: (event) => drag(event, place) }));
  svg.append(
    s("line", { x1: EDGE, y1: yOf(0), x2: WIDTH - EDGE, y2: yOf(0) }), s("line", { x1: EDGE, y1: yOf(0), x2: EDGE, y2: yOf(1) }),
    ...[1, 10, 100, 1000, 10000].map((ms) => s("text", { x: xOf(ms) - 8, y: HEIGHT - 6 }, duration(ms))), line, ...dots,
  );

  function draw() {
    mark(line, "d", `M${EDGE} ${yOf(1)}${points.map(([ms, utility]) => `L${xOf(ms)} ${yOf(utility)}`).join("")}L${WIDTH - EDGE} ${yOf(points.at(-1)[1])}`);
    points.forEach(([ms, utility], place) => {
      const text = `utility ${number(utility)} at ${duration(ms)}`;
      for (const [name, value] of Object.entries({ cx: xOf(ms), cy: yOf(utility), "aria-valuenow": Math.round(ms), "aria-valuetext": text, "aria-label": `Point ${place + 1} of the graph` })) mark(dots[place], name, value);
    });
  }

  function move(place, ms, utility) {
    points = inOrder(points.map((point, other) => (other === place ? [ms, utility] : point)), place);
    touched = true;
    say(told, qosText(points));
    draw();
  }

  function key(event, place) {
    const step = { ArrowLeft: [1 / 1.15, 0], ArrowRight: [1.15, 0], ArrowUp: [1, 0.05], ArrowDown: [1, -0.05] }[event.key];
    if (!step) return;
    event.preventDefault();
    move(place, points[place][0] * step[0], points[place][1] + step[1]);
    changed();
  }

  function drag(event, place) {
    const dot = dots[place];
    dot.setPointerCapture(event.pointerId);
    const at = (moved) => {
      const box = svg.getBoundingClientRect();
      move(place, msOf(((moved.clientX - box.left) * WIDTH) / box.width), utilityOf(((moved.clientY - box.top) * HEIGHT) / box.height));
    };
    dot.addEventListener("pointermove", at);
    dot.addEventListener("pointerup", () => {
      dot.removeEventListener("pointermove", at);
      changed();
    }, { once: true });
  }

  draw();
  return { element: h("div", {}, svg, told), value: () => (touched ? qosText(points) : null) };
}
