// Figures for people: three digits, and a unit that keeps them short, as `millstream top` writes them.

export const UNKNOWN = "—";
const THOUSANDS = ["", "k", "M", "G", "T"];
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Return a number with three digits: 0.0123, 1.23, 12.3, 1234. */
export function significant(value) {
  if (value === 0) return "0";
  const decimals = Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
  const text = value.toFixed(decimals);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function scaled(value, base, units, gap) {
  let step = 0;
  while (step + 1 < units.length && Math.abs(Number(value.toPrecision(3))) >= base) {
    value /= base;
    step += 1;
  }
  return `${significant(value)}${gap}${units[step]}`.trimEnd();
}

const known = (show) => (value) => (value === null || value === undefined || Number.isNaN(value) ? UNKNOWN : show(value));

export const text = known((value) => String(value));
export const number = known(significant);
export const count = known((value) => (Math.abs(value) <= 9999 ? Math.round(value).toLocaleString("en") : scaled(value, 1000, THOUSANDS, "")));
export const rate = known((value) => `${Math.abs(value) < 1000 ? significant(value) : scaled(value, 1000, THOUSANDS, "")}/s`);
export const size = known((value) => scaled(value, 1024, BYTES, " "));
export const percent = known((value) => `${significant(value)}%`);
export const duration = known((milliseconds) => {
  if (Math.abs(milliseconds) < 1000) return `${significant(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (Math.abs(seconds) >= length) return `${significant(seconds / length)} ${unit}`;
  }
  return `${significant(seconds)} s`;
});

/** Return the time of day of milliseconds since 1970: 14:03:07. */
export const clock = known((at) => new Date(at).toLocaleTimeString("en-GB"));
