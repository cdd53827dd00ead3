// The page's connection to the console: one WebSocket for what comes by itself, requests for what is asked. It connects again by itself.

const TOKEN = "millstream-token"; // in the session's storage: gone when the tab is closed
const AGAIN_MS = [500, 1000, 2000, 5000];

/** A refusal of the server: `code`, `message`, `hint`, and of a statement `line` and `column`. */
export class Refusal extends Error {
  constructor(told) {
    super(told.hint ? `${told.message}; ${told.hint}` : told.message);
    Object.assign(this, { code: told.code, line: told.line, column: told.column, token: told.token, said: told.message });
  }
}

export class Link extends EventTarget {
  #socket = null;
  #failures = 0;
  #follows = new Map();
  #network = false;
  #number = 0;

  /** Connect, and stay connected. What comes is dispatched as an event of its kind; `refused` when the token does not do. */
  connect() {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/live`);
    this.#socket = socket;
    let refused = false;
    socket.onopen = () => socket.send(JSON.stringify({ token: sessionStorage.getItem(TOKEN) }));
    socket.onmessage = (event) => {
      const message = JSON.parse(event.data);
      if (message.kind === "entered") {
        this.#failures = 0;
        for (const [number, follow] of this.#follows) this.#ask({ ask: "follow", follow: number, ...follow.what });
        if (this.#network) this.#ask({ ask: "network", on: true });
      }
      if (message.kind === "refused" && message.code === "unauthorized") refused = true;
      if (message.kind === "rows") this.#follows.get(message.follow)?.take(message);
      else this.dispatchEvent(new CustomEvent(message.kind, { detail: message }));
    };
    socket.onclose = () => {
      if (this.#socket !== socket || refused) return;
      this.dispatchEvent(new CustomEvent("lost", { detail: { why: "the console does not answer" } }));
      setTimeout(() => this.connect(), AGAIN_MS[Math.min(this.#failures++, AGAIN_MS.length - 1)]);
    };
  }

  /** Enter with another token; null forgets it. */
  enter(token) {
    if (token === null) sessionStorage.removeItem(TOKEN);
    else sessionStorage.setItem(TOKEN, token);
    const old = this.#socket;
    this.#socket = null;
    old?.close();
    this.connect();
  }

  #ask(what) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(what));
  }

  /** Ask for the past of a thing; it comes as an event `past`. */
  past(kind, name) {
    this.#ask({ ask: "past", kind, name });
  }

  /** Have the running operators told with every other look, as events `network`, or no longer. */
  network(on) {
    this.#network = on;
    this.#ask({ ask: "network", on });
  }

  /** Follow the results of a query (`query` a name, or with `is_text` a SELECT); `take` gets each message. Returns a function that ends it. */
  follow(what, take) {
    const number = ++this.#number;
    this.#follows.set(number, { what, take });
    this.#ask({ ask: "follow", follow: number, ...what });
    return () => {
      if (this.#follows.delete(number)) this.#ask({ ask: "leave", follow: number });
    };
  }

  /** Run a statement and return its answer, with `objects` for its rows by name; throws Refusal. */
  async run(sql) {
    const answer = await this.post("statement", { sql });
    const names = answer.columns.map(([name]) => name);
    answer.objects = answer.rows.map((row) => Object.fromEntries(row.map((value, place) => [names[place], value])));
    return answer;
  }

  /** Post to one of the console's own addresses; throws Refusal. */
  async post(where, what) {
    const headers = { "Content-Type": "application/json" };
    const token = sessionStorage.getItem(TOKEN);
    if (token) headers.Authorization = `Bearer ${token}`;
    let response;
    try {
      response = await fetch(`/api/${where}`, { method: "POST", headers, body: JSON.stringify(what) });
    } catch {
      throw new Refusal({ code: "unreachable", message: "the console does not answer", hint: "see whether it still runs" });
    }
    const told = await response.json();
    if (!response.ok) throw new Refusal(told);
    return told;
  }
}
