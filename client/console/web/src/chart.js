// Charts over time, with the events as marks: uPlot in a card that follows its width and the theme.

import uPlot from "uplot";
import { clock, count } from "./figures.js";
import { card, h, mark, say } from "./dom.js";

const HEIGHT_PX = 150;
const WHOLE = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat(); // steps of an axis that counts
const WHOLE_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400]; // a clock shows no less

/** Return the value that a colour of the style sheet has now. */
export function colour(name) {
  const probe = h("span", { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function swatchOf(tone) {
  const swatch = h("i", { "aria-hidden": "true" });
  swatch.style.background = `var(${tone})`;
  return swatch;
}

/**
 * series: { measure, label, tone: "--c1", show }. `set(past, events)` draws a past of the store, times in ms.
 * A chart belongs to the document while it is shown; `destroy` lets go of it.
 */
export class Chart {
  #series;
  #plot = null;
  #past = null;
  #events = [];
  #observer;
  #theme = null;
  #tones = {};

  constructor({ title, series }) {
    this.#series = series;
    this.title = title;
    this.holder = h("div", { class: "chart", role: "img", "aria-label": title });
    this.keys = series.map(({ tone }) => ({ swatch: swatchOf(tone), value: h("span", {}) }));
    const legend = h("div", { class: "row" }, this.keys.map(({ swatch, value }) => h("span", { class: "key" }, swatch, value)));
    this.element = card(title, null, legend, this.holder);
    this.#observer = new ResizeObserver(() => this.#resize());
    this.#observer.observe(this.holder);
  }

  set(past, events) {
    this.#past = past;
    this.#events = events;
    const theme = getComputedStyle(document.documentElement).getPropertyValue("color-scheme") + matchMedia("(prefers-color-scheme: dark)").matches;
    if (theme !== this.#theme && this.#plot) this.#drop();
    this.#theme = theme;
    if (!this.#plot) this.#make();
    else this.#plot.setData(this.#data());
    this.#read(null);
    const last = this.#series.map(({ measure, label, show }) => `${label} ${show(past.measures[measure]?.at(-1))}`);
    mark(this.holder, "aria-label", `${this.title}, last fifteen minutes; now ${last.join(", ")}`);
  }

  #data() {
    const times = this.#past.times.map((at) => at / 1000);
    return [times, ...this.#series.map(({ measure }) => this.#past.measures[measure] ?? new Array(times.length).fill(null))];
  }

  #make() {
    if (!this.holder.clientWidth) return;
    const [text, line] = [colour("--quiet"), colour("--line")];
    this.#tones = { bad: colour("--bad"), other: colour("--accent") };
    const show = this.#series[0].show;
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui" };
    const options = {
      width: this.holder.clientWidth,
      height: HEIGHT_PX,
      cursor: { y: false },
      legend: { show: false },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] }, x: { time: true } },
      axes: [{ ...axis, incrs: WHOLE_SECONDS, size: 28, space: 64, values: (_, ticks) => ticks.map((at) => clock(at * 1000)) }, { ...axis, ...(show === count && { incrs: WHOLE }), size: 62, values: (_, ticks) => ticks.map(show) }],
      series: [
        {},
        ...this.#series.map(({ label, tone }) => ({ label, stroke: colour(tone), width: 1.6, points: { show: false } })),
      ],
      hooks: { draw: [(plot) => this.#marks(plot)], setCursor: [(plot) => this.#read(plot.cursor.idx ?? null)] },
    };
    this.#plot = new uPlot(options, this.#data(), this.holder);
  }

  /** Write the values at a place into the legend, or the newest with the time left out. */
  #read(place) {
    this.#series.forEach(({ measure, label, show }, number) => {
      const value = this.#past.measures[measure]?.at(place ?? -1);
      const when = place === null ? "" : ` at ${clock(this.#past.times[place])}`;
      say(this.keys[number].value, `${label} ${show(value)}${when}`);
    });
  }

  #marks(plot) {
    const { ctx, bbox } = plot;
    const [from, to] = [plot.scales.x.min, plot.scales.x.max];
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    for (const bad of [false, true]) {
      const shown = this.#events.filter((event) => event.bad === bad && event.at / 1000 >= from && event.at / 1000 <= to);
      // One mark a pixel is all that can be seen, and one path for all of them takes one stroke.
      const places = new Set(shown.map((event) => Math.round(plot.valToPos(event.at / 1000, "x", true))));
      ctx.strokeStyle = bad ? this.#tones.bad : this.#tones.other;
      ctx.setLineDash(bad ? [] : [4, 3]);
      ctx.beginPath();
      for (const x of places) {
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
      }
      ctx.stroke();
    }
    ctx.restore();
  }

  #resize() {
    if (this.#plot && this.holder.clientWidth) this.#plot.setSize({ width: this.holder.clientWidth, height: HEIGHT_PX });
    else if (this.#past) this.#make();
  }

  #drop() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  destroy() {
    this.#observer.disconnect();
    this.#drop();
  }
}
