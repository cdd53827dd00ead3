// What the page knows of the server: the newest look, the last fifteen minutes of the totals, a minute of each thing, the events.

const SAMPLES_MAX = 900;
const SPARK_MAX = 60;
const EVENTS_MAX = 500;
const RANKS = { reader: 1, writer: 2, admin: 3 };

export class Store extends EventTarget {
  role = "reader";
  server = "";
  policy = "";
  lost = "";
  tables = { queries: [], streams: [], classes: [] };
  totals = {};
  scheduler = {};
  events = [];
  past = { times: [], measures: {} };
  #columns = {};
  #sparks = {};

  constructor(link) {
    super();
    link.addEventListener("entered", ({ detail }) => this.#enter(detail));
    link.addEventListener("state", ({ detail }) => this.#take(detail));
    link.addEventListener("events", ({ detail }) => {
      this.events = [...this.events, ...detail.events].slice(-EVENTS_MAX);
    });
    link.addEventListener("lost", ({ detail }) => {
      this.lost = detail.why;
      this.dispatchEvent(new Event("changed"));
    });
  }

  #enter(told) {
    Object.assign(this, { role: told.role, past: told.past, events: [], lost: "" });
    this.#columns = told.columns;
    this.#sparks = told.sparks;
    this.dispatchEvent(new Event("entered"));
  }

  #take(look) {
    Object.assign(this, { server: look.server, policy: look.policy, totals: look.totals, scheduler: look.scheduler, at: look.at, lost: "" });
    for (const [kind, rows] of Object.entries(look.tables)) {
      const names = this.#columns[kind];
      this.tables[kind] = rows.map((row) => Object.fromEntries(names.map((name, place) => [name, row[place]])));
      this.#spark(kind);
    }
    if (look.at !== null && look.at !== this.past.times.at(-1)) keep(this.past, look.at, look.totals);
    this.dispatchEvent(new Event("changed"));
  }

  #spark(kind) {
    const kept = {};
    for (const row of this.tables[kind]) {
      const old = this.#sparks[kind]?.[row.name] ?? {};
      kept[row.name] = old;
      for (const measure of ["rows_per_s", "results_per_s", "latency_now_ms", "load"]) {
        if (row[measure] === undefined) continue;
        const line = (old[measure] ??= []);
        line.push(row[measure]);
        if (line.length > SPARK_MAX) line.shift();
      }
    }
    this.#sparks[kind] = kept;
  }

  /** Return the last minute of a measure. */
  spark(kind, name, measure) {
    return this.#sparks[kind]?.[name]?.[measure] ?? [];
  }

  row(kind, name) {
    return this.tables[kind].find((row) => row.name === name);
  }

  /** Return why the user may not do what needs a role, or null when he may. */
  refusal(least) {
    return RANKS[this.role] >= RANKS[least] ? null : `this needs the ${least} role, and your token grants ${this.role}`;
  }
}

/** Add a sample to a past (times and a column for each measure), which keeps fifteen minutes. */
export function keep(past, at, row) {
  const length = past.times.length;
  past.times.push(at);
  for (const [measure, value] of Object.entries(row)) {
    if (value !== null && typeof value !== "number") continue;
    (past.measures[measure] ??= new Array(length).fill(null)).push(value);
  }
  for (const column of Object.values(past.measures)) if (column.length <= length) column.push(null);
  if (past.times.length > SAMPLES_MAX) {
    past.times.shift();
    for (const column of Object.values(past.measures)) column.shift();
  }
}
