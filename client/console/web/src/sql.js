// From a plan object to the text of a query, for what is drawn as boxes. No element in here.
//
// A plan is written from the streams up. What still has room takes the next operator into the same SELECT, else that one reads it as a
// subquery. The server reads the text again, so what is drawn is always what the text means.

const PLAIN = /^[A-Za-z_][A-Za-z0-9_]*$/;
const DRAWN = new Set(["source", "select", "project", "aggregate", "top", "distinct", "union", "join", "window"]);
const HIDDEN = /^hidden_\d+$/; // columns that the server adds for its own sake

/** Return a name as the language writes it: quoted where it must be. */
export function named(name) {
  return PLAIN.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

const TOKEN = /--[^\n]*|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'|"((?:[^"]|"")*)"|([A-Za-z_][A-Za-z0-9_]*)|\S/g;

/** Return where a text names streams behind FROM, JOIN or a comma: [{ stream, end }], `end` the place behind the name. */
export function streamsIn(text, streams) {
  const found = [];
  const from = []; // by depth of brackets, whether a list of FROM stands there
  let depth = 0;
  let before = "";
  for (const token of text.matchAll(TOKEN)) {
    const [all, quotedName, plain] = token;
    if (all.startsWith("--") || all.startsWith("/*")) continue;
    const word = plain?.toUpperCase() ?? all;
    if (word === "(" || word === "[") depth += 1;
    else if (word === ")" || word === "]") {
      from[depth] = false;
      depth -= 1;
    } else if (/^(FROM|JOIN)$/.test(word)) from[depth] = true;
    else if (/^(WHERE|GROUP|HAVING|ORDER|LIMIT|EMIT|SELECT|ON|UNION|INTERSECT|EXCEPT|WITH)$/.test(word)) from[depth] = false;
    const name = quotedName === undefined ? plain : quotedName.replaceAll('""', '"');
    if (name !== undefined && (/^(FROM|JOIN)$/.test(before) || (before === "," && from[depth]))) {
      const stream = streams.find((one) => one === name) ?? streams.find((one) => quotedName === undefined && one.toLowerCase() === name.toLowerCase());
      if (stream !== undefined) found.push({ stream, end: token.index + all.length });
    }
    before = word;
  }
  return found;
}

/** Return the text of a SELECT as one that asks about the past of its streams, from an instant (milliseconds since 1970) on, or all of it. */
export function ofHistory(text, streams, from = null) {
  const words = ` HISTORY${from === null ? "" : ` FROM '${new Date(from).toISOString()}'`}`;
  return streamsIn(text, streams).reverse().reduce((whole, { end }) => whole.slice(0, end) + words + whole.slice(end), text);
}

/** Return why a plan cannot be written as text here, or null when it can. */
export function undrawable(plan) {
  if (plan.root.stream !== undefined && plan.root.op !== "source") return "it has ISTREAM, DSTREAM or RSTREAM";
  const visit = (node) => {
    if (!DRAWN.has(node.op)) return `it has ${node.op}`;
    if (node.op === "join" && (node.kind ?? "inner").includes("asof")) return "it has an ASOF join";
    if (node.op === "join" && Array.isArray(node.within)) return "its join has different bounds on the two sides";
    for (const input of node.inputs ?? (node.input ? [node.input] : [])) {
      const why = visit(input);
      if (why) return why;
    }
    return null;
  };
  return visit(plan.root);
}

/** Return the text of a plan object (see `undrawable`), without what is promised. */
export function sqlOf(plan) {
  const emit = plan.root.emit ?? plan.emit;
  return written(parts(plan.root)) + (emit ? `\nEMIT ${emit.replace(/^EMIT /, "")}` : "");
}

function written({ select = "*", distinct, from, where, group, having, order, limit, union }) {
  if (union) return union;
  const lines = [`SELECT ${distinct ? "DISTINCT " : ""}${select}`, `FROM ${from}`];
  if (where) lines.push(`WHERE ${where}`);
  if (group?.length) lines.push(`GROUP BY ${group.join(", ")}`);
  if (having) lines.push(`HAVING ${having}`);
  if (order) lines.push(`ORDER BY ${order}`);
  if (limit !== undefined) lines.push(`LIMIT ${limit}`);
  return lines.join("\n");
}

const isBare = (part) => !part.union && !part.alias && part.select === undefined && !part.distinct && part.limit === undefined;

/** Return a part as what stands behind FROM. */
function item(part) {
  if (isBare(part) && !part.where) return part.from;
  return `(${written(part).replaceAll("\n", "\n  ")})${part.alias ? ` AS ${named(part.alias)}` : ""}`;
}

function parts(node) {
  const part = ownParts(node);
  return node.as !== undefined && node.op !== "source" ? { ...part, alias: node.as, outputs: undefined } : part;
}

function ownParts(node) {
  switch (node.op) {
    case "source":
      return { from: named(node.stream) + (node.as ? ` AS ${named(node.as)}` : "") };
    case "select": {
      const input = parts(node.input);
      if (input.outputs && !input.having) return { ...input, having: replaced(node.condition, input.outputs) };
      if (!isBare(input)) return { from: item(input), where: node.condition };
      return { ...input, where: input.where ? `(${input.where}) AND (${node.condition})` : node.condition };
    }
    case "window":
      return { from: `${item(parts(node.input))} [${node.window}]` };
    case "project":
      return projected(node, parts(node.input));
    case "aggregate":
      return aggregated(node, parts(node.input));
    case "distinct": {
      const input = parts(node.input);
      return input.union || input.distinct || input.limit !== undefined || input.group ? { from: item(input), distinct: true } : { ...input, distinct: true };
    }
    case "top": {
      const input = parts(node.input);
      const full = input.union || input.alias || input.limit !== undefined || input.distinct;
      return { ...(full ? { from: item(input) } : input), order: node.order_by, limit: node.limit };
    }
    case "union":
      return { union: node.inputs.map((input) => written(parts(input))).join("\nUNION ALL\n") };
    case "join":
      return joined(node);
    default:
      throw new Error(`a ${node.op} cannot be written as text`);
  }
}

function projected(node, input) {
  if (node.columns === "*") return input;
  if (input.limit !== undefined && input.columns?.some(([name]) => HIDDEN.test(name))) {
    const seen = input.columns.filter(([name]) => !HIDDEN.test(name));
    if (JSON.stringify(node.columns) === JSON.stringify(seen.map(([name]) => [name, named(name)]))) return { ...input, select: input.spelled(seen), columns: seen };
  }
  const writer = (spell) => {
    const spelled = (columns) => columns.map(([name, text]) => (spell(text) === name ? named(name) : `${spell(text)} AS ${named(name)}`)).join(", ");
    return { columns: node.columns, spelled, select: spelled(node.columns) };
  };
  if (input.outputs && node.columns.every(([, text]) => input.outputs.has(text))) {
    const { outputs, ...rest } = input;
    return { ...rest, ...writer((text) => outputs.get(text)) };
  }
  if (isBare(input)) return { ...input, ...writer((text) => text) };
  return { from: item(input), ...writer((text) => text) };
}

function aggregated(node, input) {
  const group = node.group_by ?? [];
  const outputs = new Map(group.map((key) => (Array.isArray(key) ? key : [key, key])));
  for (const [name, call, argument] of node.aggregates) outputs.set(named(name), `${call.toUpperCase()}(${argument})`);
  for (const bound of ["window_start", "window_end"]) if (node.window) outputs.set(bound, bound);
  const keys = group.map((key) => (Array.isArray(key) ? key[1] : key));
  const select = [...keys, ...node.aggregates.map(([name, call, argument]) => `${call.toUpperCase()}(${argument}) AS ${named(name)}`)].join(", ");
  const from = item(input) + (node.window ? ` [${node.window}]` : "");
  return { select, from, where: node.where, group: keys, outputs };
}

/** Return an expression with the names of outputs replaced by what they are, outside of quotes and where they are not called. */
function replaced(text, outputs) {
  return text.split(/('(?:[^']|'')*'|"(?:[^"]|"")*")/).map((piece) => {
    if (piece.startsWith("'")) return piece;
    if (piece.startsWith('"')) return outputs.get(piece) ?? piece;
    return piece.replace(/[A-Za-z_]\w*\b(?!\s*\()/g, (word) => outputs.get(word) ?? word);
  }).join("");
}

function joined(node) {
  const kind = { inner: "JOIN", left: "LEFT JOIN", right: "RIGHT JOIN", full: "FULL JOIN" }[node.kind ?? "inner"];
  const sides = node.inputs.map((input, place) => {
    const text = item(parts({ ...input, as: undefined }));
    const window = node.windows?.[place] ? ` [${node.windows[place]}]` : "";
    return `${text}${window}${input.as ? ` AS ${named(input.as)}` : ""}`;
  });
  return { from: `${sides[0]} ${kind} ${sides[1]} ON ${node.on}${node.within ? ` WITHIN ${node.within}` : ""}` };
}

/** Return a list's parts, cut at the commas that stand in no bracket and no quotes. */
export function listed(text) {
  const found = [];
  let [depth, quote, from] = [0, "", 0];
  for (let place = 0; place <= text.length; place += 1) {
    const letter = text[place];
    if (letter === undefined || (letter === "," && !depth && !quote)) {
      if (text.slice(from, place).trim()) found.push(text.slice(from, place).trim());
      from = place + 1;
    } else if (quote) quote = letter === quote ? "" : quote;
    else if (letter === "'" || letter === '"') quote = letter;
    else if ("([{".includes(letter)) depth += 1;
    else if (")]}".includes(letter)) depth -= 1;
  }
  return found;
}

/** Return "expression AS name" as [name, expression]; a bare expression is named by itself. */
export function column(text) {
  const found = /^(.*\S)\s+AS\s+("(?:[^"]|"")+"|\w+)$/is.exec(text);
  return found ? [found[2].replace(/^"|"$/g, "").replaceAll('""', '"'), found[1]] : [text, text];
}
