// The results of a query as they come: the newest rows on top, and how many came in all.

import { h, say } from "./dom.js";
import { UNKNOWN, count } from "./figures.js";

const ROWS_SHOWN = 50;

/** Return a value as a cell shows it: text as it is, NULL, else JSON. */
export function cellText(value) {
  if (value === null || value === undefined) return "NULL";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export class ResultsTable {
  #names = [];
  #rows = [];
  #came = 0;
  #lost = 0;
  #drawing = 0;

  constructor() {
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.told = h("p", { class: "quiet", role: "status" }, "No results yet.");
    const table = h("table", { "aria-label": "Results, the newest first" }, h("thead", {}, this.head), this.body);
    this.scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Results, scrolls", hidden: true }, table);
    this.scroll.style.maxHeight = "24rem";
    this.element = h("div", {}, this.told, this.scroll);
  }

  /** Take a message of a follow; returns its rows. */
  take(message) {
    if (message.columns) {
      this.#names = message.columns.map(([name]) => name);
      this.#rows = [];
      this.#came = this.#lost = 0;
      this.head.replaceChildren(...message.columns.map(([name, type]) => h("th", { scope: "col", title: type }, name)));
      this.body.replaceChildren();
      this.scroll.hidden = false;
    }
    this.#came += message.came ?? 0;
    this.#lost = message.lost ?? this.#lost;
    this.#rows = [...message.rows.slice(-ROWS_SHOWN).reverse(), ...this.#rows].slice(0, ROWS_SHOWN);
    cancelAnimationFrame(this.#drawing);
    this.#drawing = requestAnimationFrame(() => this.#draw());
    const lost = this.#lost ? `; ${count(this.#lost)} were lost, as this page was too slow` : "";
    const end = message.end ? ` — ended: ${message.end.why || UNKNOWN}` : "";
    say(this.told, `${count(this.#came)} rows came; the newest ${Math.min(this.#rows.length, ROWS_SHOWN)} are shown${lost}${end}`);
    return message.rows;
  }

  #draw() {
    while (this.body.rows.length < this.#rows.length) this.body.append(h("tr", {}, this.#names.map(() => h("td", {}))));
    this.#rows.forEach((row, place) => {
      this.#names.forEach((name, column) => say(this.body.rows[place].cells[column], cellText(row[name])));
    });
  }
}
