// Builds dist/: `node src/build.mjs`. The daemon and the commands are each put together into few files, packages and all: Node
// spends two thirds of a start on finding and reading some four hundred. What is left outside is what has native parts,
// or is large and seldom needed; those lie in node_modules as ever.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, sep } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL("..", import.meta.url));
const dist = join(here, "dist");
// jsonc-parser: its main file loads its parts by a require that no bundler can follow.
const OUTSIDE = ["libsql", "@napi-rs/keyring", "@pydantic/genai-prices", "systeminformation", "jsonc-parser"];

const program = {
  absWorkingDir: here,
  bundle: true,
  splitting: true,
  format: "esm",
  platform: "node",
  target: "node20.19",
  outdir: dist,
  outbase: join(here, "src"),
  external: OUTSIDE,
  // Packages of the older kind ask for Node's own modules by require().
  banner: {
    js: 'import { createRequire as requireFrom } from "node:module"; const require = requireFrom(import.meta.url);',
  },
  legalComments: "none",
  // V8 holds the whole text in memory: half a megabyte less. Names stay, and lines short enough to be pointed at.
  minifyWhitespace: true,
  lineLimit: 160,
  logLevel: "warning",
  metafile: true,
};

/** Built apart: what they have in common would be cut into fifty files, each of which costs a start half a millisecond. */
const apart = {
  name: "apart",
  setup({ onResolve }) {
    onResolve(
      { filter: /^(?:\.\.\/daemon\/daemon|\.\/program)\.ts$/, namespace: "file" },
      ({ path, kind }) =>
        kind === "dynamic-import" ? { path: path.replace(/ts$/, "js"), external: true } : undefined,
    );
  },
};

/**
 * What packages load and keybearer never uses, and what they find instead. The proxy engine: for a server of its own
 * (1.5 MB); to follow redirects, which must never happen with a key. The logger: to open files, and to write to them from
 * a thread of its own.
 */
const UNUSED = {
  "node:http2": "",
  "follow-redirects": "",
  "thread-stream": "",
  "on-exit-leak-free": "",
  "sonic-boom": "module.exports = class {};",
};

const withoutUnused = {
  name: "without-unused",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /.*/ }, ({ path }) =>
      Object.hasOwn(UNUSED, path) ? { path, namespace: "unused" } : undefined,
    );
    onLoad({ filter: /.*/, namespace: "unused" }, ({ path }) => ({ contents: UNUSED[path] ?? "" }));
  },
};

async function buildProgram() {
  const inCli = { ...program, chunkNames: "cli/[name]-[hash]", plugins: [apart] };
  const main = build({ ...inCli, entryPoints: ["src/cli/main.ts"] });
  const commands = build({ ...inCli, entryPoints: ["src/cli/program.ts"] });
  const daemon = build({
    ...program,
    chunkNames: "daemon/[name]-[hash]",
    plugins: [withoutUnused],
    entryPoints: [
      "src/daemon/daemon.ts",
      { in: "src/usage/index/index-worker.ts", out: "daemon/index-worker" },
      { in: "src/mirror/sync/compare-worker.ts", out: "daemon/compare-worker" },
    ],
  });
  const built = await Promise.all([main, commands, daemon]);
  for (const path of built.flatMap(({ metafile }) => Object.keys(metafile.outputs)))
    writeFileSync(join(here, path), inAscii(readFileSync(join(here, path), "utf8")));
  const inputs = built.flatMap(({ metafile }) => Object.keys(metafile.inputs));
  writeFileSync(join(dist, "licenses.txt"), licensesOf(new Set(inputs.map(packageOf))));
}

/**
 * With one other character in it V8 holds the whole text at two bytes a character. esbuild escapes them everywhere but in
 * regular expressions and comments, where this means the same.
 */
function inAscii(text) {
  return text.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** The folder of the package that a file belongs to; null: it is our own. */
function packageOf(input) {
  return /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(input.split(sep).join("/"))?.[0] ?? null;
}

/** What is passed on is passed on with its licence. */
function licensesOf(folders) {
  const all = [...folders].filter((folder) => folder !== null).sort();
  const texts = all.map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(here, folder, "package.json"), "utf8"));
    const file = readdirSync(join(here, folder)).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file === undefined ? "" : readFileSync(join(here, folder, file), "utf8").trim();
    return `${name} ${version} (${license})\n\n${text}\n`;
  });
  return `dist/ holds parts of these packages.\n\n${texts.join(`\n${"-".repeat(80)}\n\n`)}`;
}

/** The list of prices as src/metering/price-table.ts reads it. */
async function buildPrices() {
  const cache = join(here, "node_modules", ".cache");
  mkdirSync(cache, { recursive: true });
  const outfile = join(cache, "price-table.mjs");
  await build({
    ...program,
    splitting: false,
    outdir: undefined,
    outfile,
    entryPoints: ["src/metering/price-table.ts"],
  });
  const { tableOf } = await import(pathToFileURL(outfile).href);
  const table = tableOf(createRequire(import.meta.url)("@pydantic/genai-prices"));
  writeFileSync(join(dist, "prices.json"), JSON.stringify(table));
}

const page = {
  absWorkingDir: here,
  entryPoints: ["main.tsx", "page.css", "index.html", "licenses.txt"].map(
    (name) => `src/dashboard/page/${name}`,
  ),
  bundle: true,
  minify: true,
  charset: "utf8",
  format: "esm",
  target: "es2022",
  loader: { ".html": "copy", ".txt": "copy" },
  legalComments: "none",
  entryNames: "[name]",
  outdir: join(dist, "dashboard"),
  logLevel: "warning",
};

// What an earlier build put there and this one would not.
if (existsSync(dist)) for (const name of readdirSync(dist)) rmSync(join(dist, name), { recursive: true });
mkdirSync(dist, { recursive: true });
await Promise.all([buildProgram(), buildPrices(), build(page)]);
