import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { ROOT } from "./doubles/paths.ts";

/** What is published: dist as the build left it, and the packages that package.json promises. */

const { dependencies } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const FILES = new Map(
  readdirSync(join(ROOT, "dist"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".js") && !name.startsWith("dashboard"))
    .map((name) => [name, readFileSync(join(ROOT, "dist", name), "utf8")]),
);

const STATIC_IMPORT = /^(?:import|\} from)\b[^"\n]*"([^"]+)"/gm;
const DYNAMIC_IMPORT = /\bimport\("([^"]+)"\)/g;

function importsOf(file: string, pattern: RegExp): string[] {
  return [...(FILES.get(file) ?? "").matchAll(pattern)].map((match) => match[1] ?? "");
}

function isPackage(name: string): boolean {
  return !name.startsWith(".") && !name.startsWith("node:");
}

/** The packages that are loaded together with a file. */
function packagesWith(file: string, seen = new Set<string>()): Set<string> {
  const packages = new Set<string>();
  if (seen.has(file)) return packages;
  seen.add(file);
  for (const name of importsOf(file, STATIC_IMPORT)) {
    if (isPackage(name)) packages.add(name);
    else if (name.startsWith(".")) {
      const imported = posix.join(posix.dirname(file), name);
      for (const found of packagesWith(imported, seen)) packages.add(found);
    }
  }
  return packages;
}

/** The one file of dist that contains a source. The build writes the source's path above its code. */
function fileWith(source: string): string {
  const found = [...FILES].filter(([, text]) => text.includes(`\n// ${source}\n`)).map(([name]) => name);
  if (found.length !== 1) throw new Error(`${source} is in ${found.length} files of dist`);
  return found[0] ?? "";
}

t.test("dist contains no package; what it loads is a dependency, and nothing else is", async (t) => {
  const imported = [...FILES.keys()]
    .flatMap((file) => [...importsOf(file, STATIC_IMPORT), ...importsOf(file, DYNAMIC_IMPORT)])
    .filter(isPackage);
  for (const name of new Set(imported)) t.ok(name in dependencies, `${name} is a dependency`);
  const all = [...FILES.values()].join("\n");
  for (const name of Object.keys(dependencies)) t.ok(all.includes(`"${name}"`), `${name} is used`);
  t.notMatch(all, /^\/\/ node_modules\//m);
});

t.test("a command that asks the daemon loads no package but commander", async (t) => {
  t.same([...packagesWith("cli/main.js")], ["commander"]);
  t.same([...packagesWith(fileWith("src/cli/program.ts"))], ["commander"]);
});

t.test("the daemon starts without the keychain's library and without systeminformation", async (t) => {
  const loaded = packagesWith(fileWith("src/daemon/daemon.ts"));
  t.ok(loaded.has("http-proxy-3") && loaded.has("libsql"), [...loaded].join(" "));
  t.notOk(loaded.has("systeminformation"));
  t.notOk(loaded.has("@napi-rs/keyring"));
});

t.test(
  "the published package contains the program, the page with its licences, and no sources",
  async (t) => {
    // The script would build dist again, under the other tests.
    const { stdout } = await promisify(execFile)("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
      cwd: ROOT,
    });
    const paths: string[] = JSON.parse(stdout)[0].files.map((file: { path: string }) => file.path);
    for (const path of [
      "dist/cli/main.js",
      "dist/index-worker.js",
      "dist/mirror-worker.js",
      "dist/prices.json",
      "dist/dashboard/index.html",
      "dist/dashboard/licenses.txt",
      "config.example.yaml",
      "service/keybearer.service",
      "LICENSE",
    ]) {
      t.ok(paths.includes(path), path);
    }
    t.same(
      paths.filter((path) => /^(?:src|test|docs|build)\/|\.ts$|\.map$/.test(path)),
      [],
    );
  },
);

t.test("the licences of the page name the versions of the libraries in it", async (t) => {
  const licenses = readFileSync(join(ROOT, "dist/dashboard/licenses.txt"), "utf8");
  for (const name of ["preact", "uplot"]) {
    const { version } = JSON.parse(readFileSync(join(ROOT, "node_modules", name, "package.json"), "utf8"));
    t.match(licenses, new RegExp(`^${name} ${version}$`, "im"));
  }
});
