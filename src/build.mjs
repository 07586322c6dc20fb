// Builds dist/: `node src/build.mjs`. With --if-changed it builds only if a source is newer than the last build.
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { buildProgram } from "./build-program.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "dist");
/** Written last, so it is missing after a build that failed, and its time is the time of the build. */
const lastFile = join(dist, "prices.json");

async function buildPage() {
  await build({
    absWorkingDir: root,
    entryPoints: ["main.tsx", "page.css", "index.html"].map((name) => `src/dashboard/page/${name}`),
    bundle: true,
    minify: true,
    charset: "utf8",
    format: "esm",
    target: "es2022",
    loader: { ".html": "copy" },
    legalComments: "none",
    entryNames: "[name]",
    outdir: join(dist, "dashboard"),
    logLevel: "warning",
  });
  const licenses = ["preact", "uplot"].map(readLicense);
  writeFileSync(
    join(dist, "dashboard/licenses.txt"),
    `The dashboard's page contains these libraries.\n\n${licenses.map(({ source, license }) => `${source}\n\n${license}`).join("\n")}`,
  );
}

/** Of a package that is bundled: its version and its licence. */
function readLicense(packageName) {
  const folder = join(root, "node_modules", packageName);
  const { name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  return { source: `${name} ${version}`, license: readFileSync(join(folder, "LICENSE"), "utf8") };
}

/** Writes the price list for src/metering/prices.ts. price-table.ts says why the daemon does not load the package itself. */
async function buildPrices() {
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: ["src/metering/price-table.ts"],
    bundle: true,
    format: "esm",
    write: false,
    logLevel: "warning",
  });
  const { buildTable } = await import(`data:text/javascript,${encodeURIComponent(outputFiles[0].text)}`);
  const table = buildTable(await import("@pydantic/genai-prices"));
  writeFileSync(lastFile, JSON.stringify({ ...readLicense("@pydantic/genai-prices"), ...table }));
}

function isUpToDate() {
  if (!existsSync(lastFile)) return false;
  const builtAt = statSync(lastFile).mtimeMs;
  // Folders are compared, too: a folder's time changes when a file in it is deleted or renamed.
  const sources = readdirSync(join(root, "src"), { recursive: true }).map((name) => join("src", name));
  return ["package-lock.json", "src", ...sources].every(
    (path) => statSync(join(root, path)).mtimeMs < builtAt,
  );
}

async function buildAll() {
  rmSync(dist, { recursive: true, force: true });
  await Promise.all([buildProgram(dist), buildPage()]);
  await buildPrices();
}

if (!process.argv.includes("--if-changed")) {
  await buildAll();
} else if (!isUpToDate()) {
  process.stdout.write("building dist/\n");
  await buildAll();
}
