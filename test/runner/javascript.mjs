import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const KEPT = join(ROOT, "node_modules", ".cache", "keybearer-test");
const OPTIONS = {
  loader: "ts",
  format: "esm",
  target: "node20.19",
  sourcemap: "inline",
  sourcesContent: false,
};

/** The JavaScript of one of our TypeScript files, made when the kept one is not of this very text. */
export function javascriptOf(file) {
  const source = readFileSync(file);
  const mark = `\n//${createHash("sha1").update(source).digest("hex")}\n`;
  const kept = join(KEPT, `${relative(ROOT, file)}.js`);
  const before = readKept(kept);
  if (before?.endsWith(mark)) return before;
  // Loaded only here: nearly always everything is kept already, and esbuild is a process of its own.
  const { transformSync } = createRequire(import.meta.url)("esbuild");
  const code = transformSync(source.toString("utf8"), { ...OPTIONS, sourcefile: file }).code + mark;
  keep(kept, code);
  return code;
}

function readKept(kept) {
  try {
    return readFileSync(kept, "utf8");
  } catch {
    return undefined;
  }
}

/** Other test files read the same one at the same time: they see the old text or the new one, never half of it. */
function keep(kept, code) {
  mkdirSync(dirname(kept), { recursive: true });
  const unfinished = `${kept}.${process.pid}`;
  writeFileSync(unfinished, code);
  renameSync(unfinished, kept);
}
