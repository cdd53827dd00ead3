// The page's frame: who is let in, which page is shown (by the address's hash), the head with what is always worth a look.

import { detailPage } from "./detail.js";
import { action, h, say } from "./dom.js";
import { experimentsPage } from "./experiments.js";
import { UNKNOWN } from "./figures.js";
import { Link } from "./link.js";
import { nowPage } from "./now.js";
import { networkPage } from "./network.js";
import { overloadPage } from "./overload.js";
import { policiesPage } from "./policies.js";
import { Store } from "./store.js";

const THEME = "millstream-theme";
const PAGES = [
  ["now", "Now", nowPage],
  ["network", "Network", networkPage],
  ["compose", "Compose", later("Compose", async () => (await import("./compose.js")).composePage)],
  ["policies", "Policies", policiesPage],
  ["overload", "Overload", overloadPage],
  ["experiments", "Experiments", experimentsPage],
];

/** Return what makes a page whose code is loaded when it is first shown. */
function later(title, load) {
  return (given) => {
    const element = h("div", {}, h("h1", {}, title));
    let page = null;
    let gone = false;
    load().then((make) => {
      if (gone) return;
      page = make(given);
      element.replaceChildren(page.element);
      page.update();
    });
    return {
      element,
      update: () => page?.update(),
      destroy() {
        gone = true;
        page?.destroy();
      },
    };
  };
}

const link = new Link();
const store = new Store(link);
const [head, nav, main] = ["head", "nav", "main"].map((id) => document.getElementById(id));
let shown = null;
let entered = false;

const at = {
  server: h("span", { class: "quiet" }),
  policy: h("span", {}),
  role: h("span", { class: "quiet" }),
  state: h("span", { role: "status" }),
};

function theme(wanted) {
  if (wanted) document.documentElement.dataset.theme = wanted;
  else delete document.documentElement.dataset.theme;
}

function buildHead() {
  const next = { "": "dark", dark: "light", light: "" };
  const button = h("button", { type: "button", class: "push" });
  const told = () => say(button, `Theme: ${document.documentElement.dataset.theme ?? "as the system"}`);
  button.addEventListener("click", () => {
    const wanted = next[document.documentElement.dataset.theme ?? ""];
    localStorage.setItem(THEME, wanted);
    theme(wanted);
    told();
    shown?.update();
  });
  theme(localStorage.getItem(THEME) ?? "");
  told();
  const leave = action("Leave", null, () => {
    entered = false;
    link.enter(null);
  });
  head.replaceChildren(h("strong", {}, "Millstream"), at.policy, at.state, at.server, at.role, button, leave);
}

function drawHead() {
  say(at.policy, `Policy ${store.policy || UNKNOWN}`);
  say(at.server, store.server);
  say(at.role, `You are ${store.role}`);
  say(at.state, store.lost ? `No answer: ${store.lost}` : "Live");
  at.state.className = store.lost ? "bad" : "good";
}

function open(...parts) {
  location.hash = `#/${parts.map(encodeURIComponent).join("/")}`;
}

function route() {
  if (!entered) return;
  const [where = "now", ...rest] = location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  shown?.destroy();
  const found = PAGES.find(([name]) => name === where);
  const given = { link, store, open, name: rest.join("/") };
  if (["query", "stream", "class"].includes(where)) shown = detailPage({ ...given, kind: where });
  else shown = (found ?? PAGES[0])[2](given);
  nav.replaceChildren(...PAGES.map(([name, title]) => h("a", { href: `#/${name}`, "aria-current": (found?.[0] ?? "now") === name ? "page" : undefined }, title)));
  main.replaceChildren(shown.element);
  document.title = `${main.querySelector("h1").textContent} – Millstream`;
  shown.update();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function askForToken({ why, hint }) {
  entered = false;
  shown?.destroy();
  shown = null;
  nav.replaceChildren();
  const input = h("input", { type: "password", autocomplete: "off", id: "token", required: true });
  const submit = (event) => {
    event.preventDefault();
    link.enter(input.value);
  };
  const form = h("form", { class: "card enter", onsubmit: submit }, h("h1", {}, "Enter"), h("p", { class: "told bad" }, [why, hint].filter(Boolean).join("; ")),
    h("label", { for: "token" }, "Token of the server"), input, h("button", { class: "main", type: "submit" }, "Enter"),
    h("p", { class: "why" }, "It is kept until this tab is closed."));
  main.replaceChildren(form);
  input.focus();
}

link.addEventListener("refused", ({ detail }) => {
  if (detail.code === "unauthorized") askForToken(detail);
  else {
    store.lost = detail.why;
    drawHead();
  }
});
store.addEventListener("entered", () => {
  drawHead();
  if (!entered) {
    entered = true;
    route();
  }
});
store.addEventListener("changed", () => {
  drawHead();
  if (!document.hidden) shown?.update();
});
document.addEventListener("visibilitychange", () => !document.hidden && shown?.update());
addEventListener("hashchange", route);
buildHead();
link.connect();
