// The page Experiments: the papers' figures, what the papers say beside what we found, the verdicts, and a button that runs one again.

import { action, card, h, say } from "./dom.js";
import * as figures from "./figures.js";

const EVERY_MS = 1000;
const figureAt = (name) => `/files/experiment-${encodeURIComponent(name)}.svg`;
const PAPERS = { Pajjuri: "Pajjuri 2004: path capacity and segment scheduling", Carney: "Carney 2005: scheduling in Aurora", Sharaf: "Sharaf 2007: HNR, BSD and their kin", Golab: "Golab 2006: schedule sharing", Pham: "Pham 2013: DILoS" };
const NUMBERS = /^(-?\d[\d.]*(?:e[+-]\d+)?(?:(?: \/ | against )-?\d[\d.]*(?:e[+-]\d+)?)*)(?:\s*(%|ms|µs|s))?$/;

/** Return the numbers and the unit of a text such as "0 / 5.2 / 51%" or "0.90 against 0.65"; null where it says something else. */
export function numbersOf(text) {
  const found = NUMBERS.exec(text.replaceAll(/%(?= against )/g, "").trim());
  return found && { values: found[1].split(/ \/ | against /).map(Number), unit: found[2] ?? "" };
}

/** Return [paper, here] for each number of a claim, where both tell as many of the same kind; else none. */
export function pairsOf(paper, here) {
  const [one, other] = [numbersOf(paper), numbersOf(here)];
  if (!one || !other || one.unit !== other.unit || one.values.length !== other.values.length) return [];
  return one.values.map((value, place) => [value, other.values[place]]);
}

function bar(title, value, top) {
  const filled = h("i", {});
  filled.style.width = `${top > 0 ? Math.max(1, (100 * Math.abs(value)) / top) : 1}%`;
  return h("div", {}, h("span", {}, title), h("span", { class: "bar" }, filled));
}

/** Return bars of what the paper says beside ours (and the last run's), drawn to one scale; null where the texts have no numbers to compare. */
function beside(claim, again) {
  const found = pairsOf(claim.paper, claim.here);
  if (!found.length) return null;
  const runs = again ? pairsOf(claim.paper, again.here) : [];
  const top = Math.max(...found.flat(), ...runs.flat());
  return h("div", { class: "bars beside", "aria-hidden": "true" }, found.map(([paper, here], place) => h("div", { class: "group" },
    bar("paper", paper, top), bar("here", here, top), runs[place] && bar("again", runs[place][1], top))));
}

const verdict = (holds) => h("span", { class: holds ? "good" : "bad" }, holds ? "✓ holds" : "✗ does not hold");
const held = (claims) => `${claims.filter((claim) => claim.holds).length} of ${claims.length} claims hold`;
const scaleOf = (one) => `${one.scale} scale${one.earlier ? ", earlier code" : ""}${one.live ? ", live" : ""}`;

function figureOf(one, source, what) {
  return h("figure", {}, h("img", { src: source, alt: `${one.title}: the figure of ${what}`, loading: "lazy" }), h("figcaption", { class: "quiet" }, what));
}

function gallery(experiments) {
  const groups = new Map();
  for (const one of experiments) {
    const paper = one.source.split(" ")[0];
    const group = PAPERS[paper] ?? "Our own";
    groups.set(group, [...(groups.get(group) ?? []), one]);
  }
  return [...groups].map(([paper, list]) => card(`${paper} (${held(list.flatMap((one) => one.claims))})`, null, h("div", { class: "gallery" }, list.map((one) => {
    const all = one.claims.every((claim) => claim.holds);
    return h("a", { class: "shot", href: `#/experiments/${encodeURIComponent(one.name)}` },
      h("img", { src: figureAt(one.name), alt: "", loading: "lazy", width: 240, height: 150 }), h("strong", {}, one.name), h("span", {}, one.title), h("span", { class: "quiet" }, one.source), h("span", { class: all ? "good" : "bad" }, `${all ? "✓" : "✗"} ${held(one.claims)}`));
  }))));
}

function claimsTable(one, run) {
  const again = run?.claims.length === one.claims.length ? run.claims : []; // another code may judge other claims
  const heads = ["Claim", "Paper", `Here, ${scaleOf(one)}`, ...(again.length ? [`Run again, ${run.scale} scale`] : []), "Beside each other"];
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Claims, scrolls" }, h("table", { class: "wrapped", "aria-label": "Claims" },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, one.claims.map((claim, place) => {
      const found = again[place];
      return h("tr", {}, h("td", {}, claim.text), h("td", {}, claim.paper), h("td", {}, verdict(claim.holds), h("br", {}), claim.here),
        found && h("td", {}, verdict(found.holds), h("br", {}), found.here), h("td", {}, beside(claim, found)));
    }))));
}

/** Return the page; `name` is of the experiment that is shown alone, empty for all of them. */
export function experimentsPage({ link, store, name }) {
  const why = store.refusal("admin");
  const body = h("div", {}, h("p", { class: "quiet" }, "Asking for the experiments …"));
  const told = h("p", { role: "status" });
  const progress = h("progress", { "aria-label": "Progress", max: 1, value: 0 });
  const stop = action("Stop it", why, () => steer("stop"));
  const running = h("div", { class: "row", hidden: true }, told, progress, stop);
  const problem = h("div", { role: "status" });
  let known = null;
  let shown = "";
  let timer = 0;
  let gone = false;

  async function ask(what) {
    clearTimeout(timer);
    const state = await link.post("experiment", what);
    if (gone) return;
    known = state.experiments ?? known;
    draw(state);
    clearTimeout(timer);
    if (state.running) timer = setTimeout(() => ask({ do: "state" }).catch(refused), EVERY_MS);
  }

  async function steer(what) {
    problem.replaceChildren();
    await ask({ do: what, name }).catch(refused);
  }

  function refused(refusal) {
    if (!gone) problem.replaceChildren(h("p", { class: "told bad" }, refusal.message));
  }

  function draw({ running: now, ended }) {
    running.hidden = !now;
    if (now) {
      progress.max = Math.max(1, now.total);
      progress.value = now.done;
      const parts = now.total ? `${now.done} of ${now.total} parts done` : "it begins";
      say(told, `${now.name} runs at reduced scale: ${parts}, ${figures.duration(Math.round(now.seconds) * 1000)} of at most ${figures.duration(now.seconds_max * 1000)}.`);
    }
    const run = ended[name];
    const next = `${run?.at ?? ""} ${now?.name ?? ""}`;
    if (next === shown && body.childElementCount > 1) return;
    shown = next;
    const one = known.find((each) => each.name === name);
    if (one) body.replaceChildren(...single(one, run, now));
    else body.replaceChildren(...whole());
  }

  function whole() {
    const claims = known.flatMap((one) => one.claims);
    if (!known.length) return [h("p", {}, "This bundle of the page has no experiments in it; run make console in a clone of the project.")];
    return [h("p", {}, `${held(claims)}. A claim that does not hold stays here with both numbers. Open a figure to see what the paper says beside it, and to run it again.`), ...gallery(known)];
  }

  function single(one, run, now) {
    const busy = now ? `${now.name} runs already; one runs at a time` : null;
    const button = action("Run it again", why ?? busy, () => steer("start"), { class: "main" });
    const drawn = h("div", { class: "halves" }, figureOf(one, figureAt(one.name), `this engine, ${scaleOf(one)}`));
    const outcome = run && (run.problem ? h("p", { class: "told bad" }, `The last run gave nothing: ${run.problem}`)
      : h("p", { class: "told good" }, `Run again at ${figures.clock(run.at)} in ${figures.duration(run.took * 1000)}: ${held(run.claims)}. Reduced scale only shows that it runs; a claim may need the full size.${run.draws ? "" : " It drew no figure: that needs pip install 'millstream[experiments]'."}`));
    if (run?.figure) {
      link.post("experiment", { do: "figure", name: one.name }).then(({ figure }) => {
        drawn.append(figureOf(one, `data:image/svg+xml;charset=utf-8,${encodeURIComponent(figure)}`, `the run of ${figures.clock(run.at)}, ${run.scale} scale`));
      }, refused);
    }
    return [
      h("p", {}, h("a", { href: "#/experiments" }, "← All experiments")),
      card(`${one.name}: ${one.title}`, button, h("p", {}, `${one.source}. ${one.setup}`), one.substituted && h("details", {}, h("summary", {}, "What was put in the place of what the paper does not say"), h("p", {}, one.substituted)),
        h("p", { class: "why" }, why ?? `A run takes ${one.live ? "minutes of a core, and measures this machine as it is" : "up to a minute of a core"}.`), outcome),
      card(held(one.claims), null, claimsTable(one, run)),
      card("Figures", null, drawn),
    ];
  }

  ask({ do: "list" }).catch(refused);
  return {
    element: h("div", {}, h("h1", {}, "Experiments"), running, problem, body),
    update() {},
    destroy() {
      gone = true;
      clearTimeout(timer);
    },
  };
}
