// Bundles the page into ../bundle: what the console serves. Called by `make console`.
import { build } from "esbuild";
import { copyFile, mkdir, rm } from "node:fs/promises";

const out = "../bundle";
await rm(out, { recursive: true, force: true });
await mkdir(out);
await build({
  entryPoints: { main: "src/main.js", layout: "src/layout-worker.js", style: "style.css" },
  outdir: out,
  bundle: true,
  splitting: true, // the editor comes with the page that needs it
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "eof", // the licences of what is bundled stay with it
  logLevel: "warning",
});
await copyFile("index.html", `${out}/index.html`);
