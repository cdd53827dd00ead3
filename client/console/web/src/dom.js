// Elements from data. Children are nodes or text; nothing is ever parsed as HTML, so a query's text or a row's value cannot become markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Return an HTML element: `h("button", { onclick: save }, "Save")`. */
export function h(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Return an SVG element. */
export function s(tag, properties, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

/** Put a text into an element, if it is not there already: the page is laid out anew only where something changed. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set an attribute, or take it away with null. */
export function mark(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Return a card: a heading, what stands beside it, and what is below. */
export function card(title, beside, ...children) {
  return h("section", { class: "card", "aria-label": title }, h("header", {}, h("h2", {}, title), beside), ...children);
}

/** Return a list of names and values. */
export function pairs(entries) {
  return h("dl", { class: "pairs" }, entries.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** Return a button that says why it cannot be pressed instead of going away: `why` is a text, or null when it can. */
export function action(label, why, act, properties = {}) {
  const press = () => why === null && act();
  return h("button", { type: "button", onclick: press, "aria-disabled": why === null ? undefined : "true", title: why ?? undefined, ...properties }, label);
}
