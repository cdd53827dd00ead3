// The editor of a query: completion of the language's words and of what the server has, and the server's own check while one types.

import { acceptCompletion, autocompletion } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { StandardSQL, sql } from "@codemirror/lang-sql";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { lintKeymap, linter } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const CHECK_AFTER_MS = 350;
const WORDS = ["RANGE", "SLIDE", "ROWS", "UNBOUNDED", "NOW", "EMIT", "CHANGES", "FINAL", "SECONDS", "MINUTES", "HOURS", "MILLISECONDS", "ASOF", "LIMIT", "WITH", "WITHIN", "SESSION", "TUMBLE"];
const COLOURS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--c1)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--c2)" },
  { tag: tags.number, color: "var(--c3)" },
  { tag: tags.comment, color: "var(--quiet)" },
]);
const LOOK = EditorView.theme({
  "&": { border: "1px solid var(--quiet)", borderRadius: "6px", backgroundColor: "var(--card)", color: "var(--text)" },
  "&.cm-focused": { outline: "2px solid var(--accent)" },
  ".cm-content": { minHeight: "7rem", caretColor: "var(--text)" },
  ".cm-placeholder": { color: "var(--quiet)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--quiet)", border: "0" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--text)", border: "1px solid var(--line)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
});

/** Return the part of a text that a refusal names, as [from, to]; `above` lines stand before the text in what was checked. */
export function placeOf(text, refusal, above) {
  if (!refusal.line || refusal.line <= above) return [0, text.length];
  const lines = text.split("\n");
  const before = lines.slice(0, refusal.line - above - 1).reduce((sum, line) => sum + line.length + 1, 0);
  const from = Math.min(before + refusal.column - 1, text.length);
  return [from, Math.min(text.length, from + Math.max(1, refusal.token?.length ?? 1))];
}

/** Return { stream: [columns] } of what SHOW STREAMS tells: "sensor TEXT, value DOUBLE". */
export function schemaOf(streams) {
  return Object.fromEntries(streams.map(({ name, columns }) => [name, (columns ?? "").split(", ").map((column) => column.split(" ")[0]).filter(Boolean)]));
}

/**
 * Return an editor: `element`, `text()`, `set(text)`, `offer(streams)`, `destroy()`.
 * `check(text)` is called after a pause; it returns { refusal, above } or null when nothing is wrong.
 */
export function editor({ text, check }) {
  const language = new Compartment();
  const languageFor = (schema) => sql({ dialect: StandardSQL, schema, upperCaseKeywords: true });
  const own = (context) => {
    const word = context.matchBefore(/\w+/);
    return word && { from: word.from, options: WORDS.map((label) => ({ label, type: "keyword" })) };
  };
  const found = async (view) => {
    const now = view.state.doc.toString();
    const problem = await check(now);
    if (problem === null || now !== view.state.doc.toString()) return [];
    const [from, to] = placeOf(now, problem.refusal, problem.above);
    return [{ from, to, severity: "error", message: problem.refusal.message }];
  };
  const view = new EditorView({
    state: EditorState.create({
      doc: text,
      extensions: [
        EditorView.cspNonce.of(document.querySelector("meta[name=csp-nonce]").content),
        EditorView.contentAttributes.of({ "aria-label": "Query" }),
        EditorView.lineWrapping,
        LOOK,
        lineNumbers(),
        history(),
        placeholder("SELECT … FROM …"),
        syntaxHighlighting(COLOURS),
        language.of(languageFor({})),
        StandardSQL.language.data.of({ autocomplete: own }),
        autocompletion(),
        linter(found, { delay: CHECK_AFTER_MS }),
        keymap.of([{ key: "Tab", run: acceptCompletion }, ...lintKeymap, ...historyKeymap, ...defaultKeymap]),
      ],
    }),
  });
  return {
    element: view.dom,
    text: () => view.state.doc.toString(),
    set: (next) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } }),
    offer: (streams) => view.dispatch({ effects: language.reconfigure(languageFor(schemaOf(streams))) }),
    destroy: () => view.destroy(),
  };
}
