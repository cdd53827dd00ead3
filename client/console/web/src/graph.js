// The network as boxes and edges: of the rows of SHOW OPERATORS, with rates between two of them. No element in here.

export const BOXES_MAX = 400;
export const MINUTE_SAMPLES = 30; // at a sample every two seconds

/** Return the operators of a message of the link as objects. */
export function operatorsOf({ columns, rows }) {
  return rows.map((row) => Object.fromEntries(row.map((value, place) => [columns[place], value])));
}

/**
 * Return { boxes, edges, folded, left } of operators. A box is { id, kind, title, serves, operators, waiting, rowsIn, rowsOut, state }.
 * A sink is drawn as its query's end. `wanted`, if not empty, keeps the boxes whose stream or query has that text, and what lies before
 * and behind them. When there are too many boxes, what serves one query alone becomes one box; when there still are, the busiest stay.
 */
export function networkOf(operators, before, seconds, wanted) {
  const earlier = new Map((before ?? []).map((operator) => [operator.operator, operator]));
  let found = assembled(operators, earlier, seconds, (operator) => `o${operator.operator}`);
  if (wanted) found = around(found, wanted.toLowerCase());
  let folded = false;
  if (found.boxes.length > BOXES_MAX) {
    folded = true;
    found = assembled(operators, earlier, seconds, (operator) => (operator.serves.length === 1 ? `q${operator.serves[0]}` : `o${operator.operator}`));
    if (wanted) found = around(found, wanted.toLowerCase());
  }
  const left = Math.max(0, found.boxes.length - BOXES_MAX);
  if (left) {
    const kept = [...found.boxes].sort((a, b) => b.rowsIn - a.rowsIn).slice(0, BOXES_MAX);
    found = only(found, new Set(kept.map((box) => box.id)));
  }
  return { ...found, folded, left };
}

function assembled(operators, earlier, seconds, idOf) {
  const boxes = new Map();
  const edges = new Map();
  const ids = new Map(operators.map((operator) => [operator.operator, idOf(operator)]));
  const join = (from, to, rate) => {
    if (from === to) return;
    const key = JSON.stringify([from, to]);
    edges.set(key, { from, to, rate: Math.max(rate, edges.get(key)?.rate ?? 0) });
  };
  for (const operator of operators) {
    const id = ids.get(operator.operator);
    const was = earlier.get(operator.operator);
    const rate = (name) => (was && seconds > 0 ? Math.max(0, (operator[name] - was[name]) / seconds) : 0);
    const box = boxes.get(id) ?? { id, kind: operator.kind, serves: operator.serves, operators: [], waiting: 0, rowsIn: 0, rowsOut: 0, state: 0 };
    boxes.set(id, box);
    box.operators.push(operator);
    box.waiting += operator.waiting;
    box.state += operator.state_bytes;
    box.rowsIn = Math.max(box.rowsIn, rate("rows_in"));
    box.rowsOut = rate("rows_out");
    if (operator.kind === "sink" || id.startsWith("q")) {
      box.kind = operator.kind === "sink" && box.operators.length === 1 ? "query" : `${box.operators.length} operators`;
      box.title = operator.serves[0] ?? "";
    } else box.title = `${operator.kind} ${operator.operator}`;
    for (const name of operator.reads_streams) {
      const stream = `s${name}`;
      if (!boxes.has(stream)) boxes.set(stream, { id: stream, kind: "stream", title: name, serves: [], operators: [], waiting: 0, rowsIn: 0, rowsOut: 0, state: 0 });
      boxes.get(stream).rowsOut = Math.max(boxes.get(stream).rowsOut, rate("rows_in"));
      join(stream, id, rate("rows_in"));
    }
    for (const other of operator.reads_operators) if (ids.has(other)) join(ids.get(other), id, rate("rows_in"));
  }
  return { boxes: [...boxes.values()], edges: [...edges.values()] };
}

function around({ boxes, edges }, text) {
  const hit = boxes.filter((box) => box.title.toLowerCase().includes(text) || box.serves.some((name) => name.toLowerCase().includes(text)));
  const kept = new Set(hit.map((box) => box.id));
  for (const [near, far] of [["to", "from"], ["from", "to"]]) {
    const open = hit.map((box) => box.id);
    while (open.length) {
      const id = open.pop();
      for (const edge of edges) {
        if (edge[near] === id && !kept.has(edge[far])) {
          kept.add(edge[far]);
          open.push(edge[far]);
        }
      }
    }
  }
  return only({ boxes, edges }, kept);
}

function only({ boxes, edges }, kept) {
  return { boxes: boxes.filter((box) => kept.has(box.id)), edges: edges.filter(({ from, to }) => kept.has(from) && kept.has(to)) };
}

/** Return the step of a number of waiting rows on the scale of colours: 0 to 4. */
export function heat(waiting) {
  return waiting <= 0 ? 0 : Math.min(4, 1 + Math.floor(Math.log10(waiting) / 1.5));
}

/** Return how wide an edge of a rate is drawn, in pixels: 1 when nothing flows, one more for each tenfold. */
export function widthOf(rate) {
  return rate < 1 ? 1 : Math.min(9, 1.5 + 1.3 * Math.log10(rate));
}
