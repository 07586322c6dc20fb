import { readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import t from "tap";
import { ROOT } from "./doubles/paths.ts";

/* What is published: dist and the dependencies. packaging.long.test.ts packs and installs it. */

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

t.test("dist contains no package, and loads exactly the dependencies", async (t) => {
  const imported = [...FILES.keys()]
    .flatMap((file) => [...importsOf(file, STATIC_IMPORT), ...importsOf(file, DYNAMIC_IMPORT)])
    .filter(isPackage);
  for (const name of new Set(imported)) t.ok(name in dependencies, `${name} is a dependency`);
  const all = [...FILES.values()].join("\n");
  for (const name of Object.keys(dependencies)) t.ok(all.includes(`"${name}"`), `${name} is used`);
  t.notOk(/^\/\/ node_modules\//m.test(all), "no package is inside");
});

t.test("a command that asks the daemon loads no package but commander", async (t) => {
  t.same([...packagesWith("cli/main.js")], []);
  t.same([...packagesWith(fileWith("src/cli/program.ts"))], ["commander"]);
});

t.test("the daemon starts without the keychain's library and without systeminformation", async (t) => {
  const loaded = packagesWith(fileWith("src/daemon/daemon.ts"));
  t.ok(loaded.has("http-proxy-3") && loaded.has("libsql"), [...loaded].join(" "));
  t.notOk(loaded.has("systeminformation"));
  t.notOk(loaded.has("@napi-rs/keyring"));
});

t.test("the lookup of projects is loaded only when a configuration asks for it", async (t) => {
  const files = new Set<string>();
  packagesWith(fileWith("src/daemon/daemon.ts"), files);
  t.ok(files.has(fileWith("src/proxy/pipeline.ts")));
  t.notOk(files.has(fileWith("src/proxy/projects.ts")));
});

t.test("prom-client is loaded only when a configuration asks for metrics", async (t) => {
  t.notOk(packagesWith(fileWith("src/daemon/daemon.ts")).has("prom-client"));
  t.ok(packagesWith(fileWith("src/metrics/exporter.ts")).has("prom-client"));
});

t.test("package.json publishes the program and the service's files, and dist has no sources", async (t) => {
  const { files } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
  t.same(files, ["dist", "service", "config.example.yaml", "NOTICE"]);
  const built = readdirSync(join(ROOT, "dist"), { recursive: true, encoding: "utf8" });
  for (const path of [
    "cli/main.js",
    "index-worker.js",
    "mirror-worker.js",
    "prices.json",
    "dashboard/index.html",
  ])
    t.ok(built.includes(path), path);
  t.same(
    built.filter((path) => /\.ts$|\.map$/.test(path)),
    [],
  );
});

t.test("the licences of the page name the versions of the libraries in it", async (t) => {
  const licenses = readFileSync(join(ROOT, "dist/dashboard/licenses.txt"), "utf8");
  for (const name of ["preact", "uplot"]) {
    const { version } = JSON.parse(readFileSync(join(ROOT, "node_modules", name, "package.json"), "utf8"));
    t.match(licenses, new RegExp(`^${name} ${version}$`, "im"));
  }
});
