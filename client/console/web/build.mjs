// Bundles the page into ../bundle: what the console serves. Called by `make console`.
import { build } from "esbuild";
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";

const out = "../bundle";
const docs = "../../../docs"; // what was found in the papers' experiments
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
await copyFile(`${docs}/experiments.md`, `${out}/experiments.txt`);
for (const figure of await readdir(`${docs}/experiments`)) {
  if (figure.endsWith(".svg")) await writeFile(`${out}/experiment-${figure}.gz`, gzipSync(await readFile(`${docs}/experiments/${figure}`), { level: 9 }));
}
