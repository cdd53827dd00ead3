// A table of any length: only the rows in view are elements. Search, groups, sort by a column, arrow keys, Enter opens.

import { h, mark, s, say } from "./dom.js";

const ROW_PX = 32;
const SPARE_ROWS = 6;
const GROW_ROWS = 14;
const TOTALS = {
  sum: (values) => values.reduce((total, value) => total + value, 0),
  most: (values) => values.reduce((most, value) => Math.max(most, value)),
};

/** Return a small line of the last values. */
export function sparkline() {
  const path = s("path", {});
  const svg = s("svg", { class: "spark", viewBox: "0 0 60 20", preserveAspectRatio: "none", "aria-hidden": "true" }, path);
  return { element: svg, draw: (values) => mark(path, "d", linePath(values)) };
}

/** Return an SVG path through values of 0 to their maximum; it breaks where nothing is known. */
export function linePath(values) {
  const top = values.reduce((most, value) => Math.max(most, value ?? 0), 0) || 1;
  const step = 60 / Math.max(1, values.length - 1);
  let path = "";
  let pen = "M";
  values.forEach((value, place) => {
    if (value === null) {
      pen = "M";
      return;
    }
    path += `${pen}${(place * step).toFixed(1)} ${(19 - (18 * value) / top).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

/** Return rows in groups by a key, as [{ group, rows, totals }]; of each column with a `total`, "sum", "most" or a function of rows, what it gives. */
export function grouped(rows, key, columns) {
  const groups = new Map();
  for (const row of rows) {
    const name = row[key] || "none";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(row);
  }
  const totalOf = ({ total, key: column }, list) => {
    if (typeof total === "function") return total(list);
    const known = list.map((row) => row[column]).filter((value) => value !== null && value !== undefined);
    return known.length ? TOTALS[total](known) : null;
  };
  return [...groups].map(([group, list]) => ({ group, rows: list, totals: Object.fromEntries(columns.filter(({ total }) => total).map((column) => [column.key, totalOf(column, list)])) }));
}

const ordered = (items, of, down) => {
  const unknown = (item) => of(item) === null || of(item) === undefined;
  const known = items.filter((item) => !unknown(item));
  known.sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0) * (down ? -1 : 1));
  return [...known, ...items.filter(unknown)];
};

/**
 * columns: { key, title, show, number, last (the last in order are of interest first), spark(row) -> values, tone(row) -> "good" | "bad" | null, total: see `grouped` }.
 * open(row), if given, is called for the row that is clicked or on which Enter is pressed. `caption` names the table.
 * groups: [[key, title]] by which a user may group rows; more rows than are in view are shown as groups to be opened.
 */
export class Table {
  #columns;
  #open;
  #rows = [];
  #shown = [];
  #sort = null;
  #filter = "";
  #focus = 0;
  #pool = [];
  #group = "";
  #turned = new Set(); // the groups that a user has opened, or closed where they are open by themselves

  constructor({ caption, columns, open = null, sort = null, groups = [] }) {
    this.#columns = columns;
    this.#open = open;
    this.#sort = sort;
    this.heads = columns.map((column) => {
      const button = h("button", { class: "plain", type: "button", onclick: () => this.#sortBy(column) }, column.title);
      return h("th", { scope: "col", class: column.number ? "number" : undefined }, column.spark ? column.title : button);
    });
    this.above = h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: columns.length }));
    this.below = h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: columns.length }));
    this.body = h("tbody", { onkeydown: (event) => this.#key(event) }, this.above, this.below);
    this.table = h("table", { "aria-label": caption }, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${caption}, scrolls`, onscroll: () => this.#draw() }, this.table);
    this.counted = h("span", { class: "quiet", role: "status" });
    const filter = (event) => {
      this.#filter = event.target.value.toLowerCase();
      this.#arrange();
    };
    this.search = h("input", { type: "search", placeholder: "Search", "aria-label": `Search in ${caption}`, oninput: filter });
    const choose = (event) => {
      this.#group = event.target.value;
      this.#turned.clear();
      this.#arrange();
    };
    const choices = [["", "not grouped"], ...groups].map(([value, title]) => h("option", { value }, title));
    this.grouping = groups.length ? h("select", { "aria-label": `Group ${caption}`, onchange: choose }, choices) : null;
    this.tools = h("div", { class: "row" }, this.counted, this.grouping, this.search);
    this.element = this.scroll;
  }

  /** Show these rows (objects with a `name`). */
  set(rows) {
    this.#rows = rows;
    this.#arrange();
  }

  /** Show only rows with this text, as if the user had written it into Search. */
  find(text) {
    this.search.value = text;
    this.#filter = text.toLowerCase();
    this.#arrange();
  }

  #sortBy(column) {
    const down = this.#sort?.key === column.key ? !this.#sort.down : Boolean(column.number || column.last);
    this.#sort = { key: column.key, down };
    this.#arrange();
  }

  #arrange() {
    const texts = this.#columns.filter((column) => !column.number && !column.spark);
    let rows = this.#rows;
    if (this.#filter) rows = rows.filter((row) => texts.some((column) => column.show(row[column.key], row).toLowerCase().includes(this.#filter)));
    const { key, down } = this.#sort ?? {};
    if (this.#sort) rows = ordered(rows, (row) => row[key], down);
    const found = rows.length;
    if (this.#group) rows = this.#inGroups(rows);
    this.#shown = rows;
    this.#focus = Math.min(this.#focus, Math.max(0, rows.length - 1));
    this.#columns.forEach((column, place) => {
      mark(this.heads[place], "aria-sort", this.#sort?.key === column.key ? (this.#sort.down ? "descending" : "ascending") : null);
    });
    say(this.counted, found === this.#rows.length ? `${found}` : `${found} of ${this.#rows.length}`);
    mark(this.table, "aria-rowcount", rows.length + 1);
    this.scroll.style.maxHeight = `${(Math.min(rows.length, GROW_ROWS) + 1) * (ROW_PX + 1) + 18}px`;
    this.#draw();
  }

  /** Return the groups, the rows of open ones behind each. What the user sorts by sorts groups too, by their totals. */
  #inGroups(rows) {
    const { key, down } = this.#sort ?? {};
    const groups = ordered(grouped(rows, this.#group, this.#columns), (one) => one.group, false);
    const sorted = this.#columns.some((column) => column.key === key && column.total) ? ordered(groups, (one) => one.totals[key], down) : groups;
    return sorted.flatMap((one) => (this.#isOpen(one.group) ? [one, ...one.rows] : [one]));
  }

  #isOpen(group) {
    return this.#turned.has(group) !== this.#rows.length <= GROW_ROWS;
  }

  #press(row) {
    if (row?.group === undefined) {
      if (row) this.#open?.(row);
      return;
    }
    if (!this.#turned.delete(row.group)) this.#turned.add(row.group);
    this.#arrange();
  }

  #draw() {
    const from = Math.max(0, Math.floor(this.scroll.scrollTop / ROW_PX) - SPARE_ROWS);
    const to = Math.min(this.#shown.length, from + GROW_ROWS + 2 * SPARE_ROWS);
    while (this.#pool.length < to - from) this.#pool.push(this.#row());
    this.#pool.forEach((line, place) => {
      const index = from + place;
      if (index >= to) {
        line.element.remove();
        return;
      }
      if (!line.element.isConnected) this.body.insertBefore(line.element, this.below);
      line.index = index;
      mark(line.element, "aria-rowindex", index + 2);
      if (this.#open || this.#group) mark(line.element, "tabindex", index === this.#focus ? 0 : -1);
      line.fill(this.#shown[index]);
    });
    this.above.firstChild.style.height = `${from * ROW_PX}px`;
    this.below.firstChild.style.height = `${Math.max(0, this.#shown.length - to) * ROW_PX}px`;
  }

  #row() {
    const cells = this.#columns.map((column) => {
      const line = column.spark ? sparkline() : null;
      const cell = h("td", { class: column.number ? "number" : undefined }, line?.element);
      return { cell, line, column };
    });
    const record = { index: 0 };
    record.element = h("tr", { onclick: () => this.#press(this.#shown[record.index]) }, cells.map(({ cell }) => cell));
    record.fill = (row) => {
      mark(record.element, "class", row.group === undefined ? null : "group");
      if (row.group !== undefined) {
        this.#fillGroup(cells, row);
        return;
      }
      for (const { cell, line, column } of cells) {
        if (line) {
          line.draw(column.spark(row));
          continue;
        }
        say(cell, column.show(row[column.key], row));
        if (!column.number) mark(cell, "title", cell.textContent.length > 30 ? cell.textContent : null);
        if (column.tone) mark(cell, "class", `${column.number ? "number " : ""}${column.tone(row) ?? ""}`.trim());
      }
    };
    return record;
  }

  #fillGroup(cells, { group, rows, totals }) {
    const opened = this.#isOpen(group);
    for (const { cell, line, column } of cells) {
      if (line) line.draw([]);
      else if (column === this.#columns[0]) say(cell, `${opened ? "▾" : "▸"} ${group}: ${rows.length}`);
      else say(cell, !column.total ? "" : typeof column.total === "function" ? totals[column.key] : column.show(totals[column.key]));
      if (!column.number) mark(cell, "title", column === this.#columns[0] ? `${group}; Enter ${opened ? "closes" : "opens"} it` : null);
      if (column.tone) mark(cell, "class", column.number ? "number" : null);
    }
  }

  #key(event) {
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: GROW_ROWS, PageUp: -GROW_ROWS, Home: -Infinity, End: Infinity }[event.key];
    if (move !== undefined && (this.#open || this.#group)) {
      event.preventDefault();
      this.#focus = Math.max(0, Math.min(this.#shown.length - 1, this.#focus + move));
      const top = this.#focus * ROW_PX;
      const bottom = top + 2 * ROW_PX - this.scroll.clientHeight + 20;
      this.scroll.scrollTop = Math.min(top, Math.max(this.scroll.scrollTop, bottom));
      this.#draw();
      this.#pool.find((line) => line.index === this.#focus)?.element.focus({ preventScroll: true });
    } else if (event.key === "Enter") {
      this.#press(this.#shown[this.#focus]);
    }
  }
}
