import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import t from "tap";
import { ROOT } from "./doubles/paths.ts";

/*
 * The rules of the source layout that a linter does not know. Each rule is a function of sources, so that a test can show
 * that it fails. CONTRIBUTING.md contains the map that this file prints; `KEYBEARER_WRITE_MAP=1` writes it there.
 */

/** The modules from top to bottom. A module imports only modules above it. */
const MODULES: Readonly<Record<string, string>> = {
  core: "what everything uses: clock, errors, secrets, paths, log",
  config: "config.yaml: schema, parser, problems, snapshot, watching and editing the file",
  keys: "where keys come from and where they may go: sources, keychains, keyring, trust",
  limits: "whether a request may go: windows, counters, queue, limiter",
  metering: "bytes in, tokens and money out: protocols, SSE, usage, prices",
  usage: "what was used: records, journal, index, rollups, reports",
  clients: "the settings that point each client at keybearer, and the edits of their files",
  proxy: "the request path: guard, routes, identify, body, pipeline, upstream, response, settle",
  mirror: "our log against the console's: consoles, sync, reconcile, store, alarm, report",
  lifecycle: "keys created, rotated and deleted through the consoles, and finished after a crash",
  shared: "limits and records across machines, through a store",
  events: "what the owner should know: detected, stored, once an hour, muted",
  notify: "events sent to the desktop, a program and webhooks: channels, queue, delivery",
  doctor: "probes of keys and gateways, and findings",
  adopt: "keys in clients' files, moved into keybearer: what is a key, where copies stay behind",
  control: "the socket between the commands and the daemon: server, routes, status",
  metrics: "counters and gauges for Prometheus, and their port",
  dashboard: "the local web page and its server",
  sandbox: "the embedded gateway and console for a first try",
  service: "systemd and launchd",
  daemon: "the composition root, reload and shutdown",
  cli: "the commands",
};

/** These files do no I/O and read no clock. Their results depend on their parameters alone. */
const PURE = [
  "config/schema.ts",
  "config/problems.ts",
  "config/yaml.ts",
  "config/section.ts",
  "config/sources.ts",
  "config/values.ts",
  "config/parse.ts",
  "config/references.ts",
  "config/snapshot.ts",
  "config/changes.ts",
  "config/edit.ts",
  "config/edit-layout.ts",
  "config/edit-tools.ts",
  "clients/variables.ts",
  "clients/loose-variables.ts",
  "clients/shapes.ts",
  "adopt/inventory.ts",
  "adopt/plan.ts",
  "adopt/trace-places.ts",
  "limits/admit.ts",
  "limits/counters.ts",
  "limits/estimate.ts",
  "limits/format.ts",
  "limits/queue.ts",
  "limits/refusals.ts",
  "limits/windows.ts",
  "metering/protocols.ts",
  "metering/decode.ts",
  "metering/json-fields.ts",
  "metering/request.ts",
  "metering/service-tiers.ts",
  "metering/sse.ts",
  "metering/stream.ts",
  "metering/meter.ts",
  "metering/usage.ts",
  "metering/estimate.ts",
  "metering/gateway-ids.ts",
  "metering/model-names.ts",
  "metering/price-table.ts",
  "usage/counted.ts",
  "usage/record.ts",
  "usage/rollups.ts",
  "usage/journal/limits-replay.ts",
  "usage/journal/lines.ts",
  "usage/reports/format.ts",
  "usage/reports/calendar.ts",
  "proxy/credentials.ts",
  "proxy/guard.ts",
  "proxy/routes.ts",
  "proxy/headers.ts",
  "proxy/key-health/cause.ts",
  "proxy/key-health/key-problem.ts",
  "proxy/failure.ts",
  "proxy/records.ts",
  "service/spec.ts",
  "service/unit.ts",
  "service/plist.ts",
  "doctor/findings.ts",
  "doctor/tool-problems.ts",
  "doctor/models.ts",
  "doctor/probe-failure.ts",
  "doctor/settings-findings.ts",
  "doctor/shared-findings.ts",
  "doctor/notify-findings.ts",
  "mirror/console-row.ts",
  "mirror/verdict.ts",
  "mirror/reconcile/",
  "mirror/report/messages.ts",
  "mirror/report/notable.ts",
  "notify/message.ts",
  "notify/webhooks.ts",
  "core/refusal.ts",
  "core/units.ts",
  "control/gateway-state.ts",
  "events/event.ts",
  "events/sentence.ts",
  "events/conditions.ts",
];

/** The files that send a secret or write it to a key store. */
const MAY_REVEAL = [
  "cli/service/system/hand-over.ts",
  "proxy/headers.ts",
  "mirror/consoles/http.ts",
  "mirror/vault.ts",
  "doctor/probe.ts",
  "keys/stored-keys.ts",
  // The key that a client had before, back into its settings.
  "clients/undo-store.ts",
  "shared/connection.ts",
  "shared/signature.ts",
  "notify/channels.ts",
  // The sandbox's own password, into the configuration that is parsed for it.
  "daemon/sandbox-session.ts",
];

/** Packages that only one file may import. */
const ENGINES: Readonly<Record<string, readonly string[]>> = {
  "http-proxy-3": ["proxy/upstream.ts"],
};

interface Source {
  /** Below src/, with forward slashes. */
  readonly path: string;
  readonly text: string;
}

/** A dollar sign before a value, where nothing is formatted: what a person typed, and the store's protocol. */
const MAY_WRITE_DOLLAR_SIGNS = ["core/units.ts", "config/values.ts", "cli/budget.ts", "shared/connection.ts"];

function moneyFaults(files: readonly Source[]): string[] {
  return files
    .filter(({ path, text }) => text.includes("$${") && !MAY_WRITE_DOLLAR_SIGNS.includes(path))
    .map(({ path }) => `${path} formats money: use core/units.ts`);
}

function readSources(): Source[] {
  return readdirSync(SRC, { recursive: true, encoding: "utf8" })
    .filter((path) => /\.tsx?$/.test(path))
    .map((path) => ({ path: forwardSlashes(path), text: readFileSync(join(SRC, path), "utf8") }));
}

const SRC = join(ROOT, "src");

function forwardSlashes(path: string): string {
  return path.split(sep).join("/");
}

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|\s)\/\/.*$/gm, "$1");
}

/** The names in import and export statements and in `import()`, of types too. */
function importsOf({ text }: Source): string[] {
  const code = withoutComments(text);
  return [...code.matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)"([^"]+)"/g)].map((match) => match[1] ?? "");
}

/** The files of src/ that a file imports. */
function localImportsOf(file: Source): string[] {
  return importsOf(file)
    .filter((name) => name.startsWith("."))
    .map((name) => forwardSlashes(relative(SRC, resolve(SRC, dirname(file.path), name))));
}

function moduleOf(path: string): string {
  return path.split("/", 1)[0] ?? "";
}

function layerFaults(files: readonly Source[]): string[] {
  const order = Object.keys(MODULES);
  const faults: string[] = [];
  for (const file of files) {
    const own = order.indexOf(moduleOf(file.path));
    if (own === -1) faults.push(`${file.path} is in no module`);
    for (const target of localImportsOf(file)) {
      const other = order.indexOf(moduleOf(target));
      if (other === -1 || other > own) faults.push(`${file.path} may not import ${target}`);
    }
  }
  return faults;
}

/** Each cycle once, as the files in it. */
function importCycles(files: readonly Source[]): string[] {
  const imports = new Map(files.map((file) => [file.path, localImportsOf(file)]));
  const done = new Set<string>();
  const cycles: string[] = [];
  const visit = (path: string, trail: readonly string[]) => {
    const at = trail.indexOf(path);
    if (at !== -1) cycles.push([...trail.slice(at), path].join(" -> "));
    if (at !== -1 || done.has(path)) return;
    for (const next of imports.get(path) ?? []) visit(next, [...trail, path]);
    done.add(path);
  };
  for (const path of imports.keys()) visit(path, []);
  return cycles;
}

const IMPURE_IMPORTS =
  /^(?:node:(?:fs|http|https|net|tls|dns|child_process|os|timers|process|dgram|cluster|worker_threads)(?:\/.*)?|chokidar|pino|http-proxy-3|systeminformation|libsql|@napi-rs\/keyring)$/;
const IMPURE_CODE =
  /\bDate\.now\(|\bnew Date\(\s*\)|\bperformance\.now\(|\bprocess\.|\bMath\.random\(|\bset(?:Timeout|Interval|Immediate)\(|\bfetch\(|\brandomBytes\(/;

function isPure({ path }: Source): boolean {
  return PURE.some((name) => (name.endsWith("/") ? path.startsWith(name) : path === name));
}

function purityFaults(files: readonly Source[]): string[] {
  const faults: string[] = [];
  for (const file of files.filter(isPure)) {
    for (const name of importsOf(file))
      if (IMPURE_IMPORTS.test(name)) faults.push(`${file.path} is pure and may not import ${name}`);
    if (IMPURE_CODE.test(withoutComments(file.text)))
      faults.push(`${file.path} is pure and may not do I/O or read a clock`);
  }
  return faults;
}

/**
 * Variables, buffers, empty collections and objects at the top level: two daemons in one process would share them. What an
 * AsyncLocalStorage holds belongs to one call.
 */
const STATE =
  /^(?:export )?(?:let|var) |^(?:export )?const [A-Za-z_$][\w$]*(?:: [^=\n]+)? = (?:await |new (?!(?:RegExp|URL|AsyncLocalStorage)\b)|create[A-Z]\w*\(|Buffer\.alloc|\[\];|\{\};)/m;

function stateFaults(files: readonly Source[]): string[] {
  return files
    .filter(({ text }) => STATE.test(withoutComments(text)))
    .map(({ path }) => `${path} keeps state at module level`);
}

function revealFaults(files: readonly Source[]): string[] {
  return files
    .filter(({ text }) => /\.reveal\(\)/.test(withoutComments(text)))
    .filter(({ path }) => !MAY_REVEAL.includes(path))
    .map(({ path }) => `${path} may not reveal a secret`);
}

function engineFaults(files: readonly Source[]): string[] {
  return Object.entries(ENGINES).flatMap(([engine, allowed]) =>
    files
      .filter((file) => !allowed.includes(file.path) && importsOf(file).includes(engine))
      .map(({ path }) => `${path} may not import ${engine}`),
  );
}

/** One line for each module: what it holds and what it imports. */
function moduleMap(files: readonly Source[]): string {
  const lines: string[] = [];
  for (const [name, subject] of Object.entries(MODULES)) {
    const own = files.filter(({ path }) => moduleOf(path) === name);
    const targets = new Set(own.flatMap(localImportsOf).map(moduleOf));
    const imported = Object.keys(MODULES).filter((other) => other !== name && targets.has(other));
    lines.push(
      `${name.padEnd(11)}${subject}`,
      `${" ".repeat(13)}imports ${imported.join(", ") || "nothing"}`,
    );
  }
  return `\`\`\`\n${lines.join("\n")}\n\`\`\`\n`;
}

const MAP_START = "<!-- module map -->\n";
const MAP_END = "<!-- end of module map -->\n";

const sources = readSources();

t.test("a module imports only modules above it", async (t) => {
  t.same(layerFaults(sources), []);
});

t.test(
  "an import of a lower module is noticed, also of a type, and so is a file outside the modules",
  async (t) => {
    const faults = (path: string, text: string) => layerFaults([{ path, text }]);
    t.same(faults("config/parse.ts", 'import { serve } from "../proxy/pipeline.ts";'), [
      "config/parse.ts may not import proxy/pipeline.ts",
    ]);
    t.same(faults("config/x.tsx", 'import type { Keyring } from "../keys/keyring.ts";'), [
      "config/x.tsx may not import keys/keyring.ts",
    ]);
    t.same(
      faults("keys/x.ts", 'export { a } from "../config/parse.ts";\nconst b = await import("./y.ts");'),
      [],
    );
    t.same(faults("cli/x.ts", 'import { b } from "../../test/b.ts";'), [
      "cli/x.ts may not import ../test/b.ts",
    ]);
    t.same(faults("utils/misc.ts", ""), ["utils/misc.ts is in no module"]);
  },
);

t.test("no file imports itself through others", async (t) => {
  t.same(importCycles(sources), []);
});

t.test("an import cycle is noticed, also one of types", async (t) => {
  const files = [
    { path: "core/a.ts", text: 'import type { B } from "./b.ts";' },
    { path: "core/b.ts", text: 'import { c } from "./c.ts";' },
    { path: "core/c.ts", text: 'export type { A } from "./a.ts";' },
    { path: "core/d.ts", text: 'import { a } from "./a.ts";' },
  ];
  t.same(importCycles(files), ["core/a.ts -> core/b.ts -> core/c.ts -> core/a.ts"]);
});

t.test("pure files do no I/O and read no clock", async (t) => {
  t.same(purityFaults(sources), []);
  for (const name of PURE) {
    const exists = sources.some(({ path }) => path === name || path.startsWith(name));
    t.ok(exists, `${name} exists`);
  }
});

t.test("I/O or a clock in a pure file is noticed", async (t) => {
  const faults = (text: string) => purityFaults([{ path: "proxy/guard.ts", text }]);
  for (const text of [
    'import { readFileSync } from "node:fs";',
    'import { watch } from "chokidar";',
    "const now = Date.now();",
    "const home = process.env.HOME;",
    "setTimeout(() => {}, 1);",
  ]) {
    t.equal(faults(text).length, 1, text);
  }
  t.same(faults("// reads Date.now() elsewhere"), [], "a comment is not code");
});

t.test("amounts of money become text in one file", async (t) => {
  t.same(moneyFaults(sources), []);
  t.equal(
    moneyFaults([{ path: "cli/x.ts", text: "`$${value.toFixed(2)}`" }]).length,
    1,
    "anywhere else is noticed",
  );
});

t.test("no module keeps state", async (t) => {
  t.same(stateFaults(sources), []);
});

t.test("module-level state is noticed", async (t) => {
  for (const text of [
    "let count = 0;",
    "export let current = null;",
    "const cache = new Map();",
    "const seen: Set<string> = new Set();",
    "const daemon = createDaemon();",
    "const list: string[] = [];",
    "const buffer = Buffer.alloc(65536);",
    "const scratch = Buffer.allocUnsafe(64);",
    "const numbers = new Uint8Array(8);",
  ]) {
    t.equal(stateFaults([{ path: "x.ts", text }]).length, 1, text);
  }
  t.same(stateFaults([{ path: "x.ts", text: "function f() {\n  let inner = 0;\n  return inner;\n}" }]), []);
});

t.test("a secret is revealed only where it is sent or stored", async (t) => {
  t.same(revealFaults(sources), []);
  t.equal(
    revealFaults([{ path: "core/log.ts", text: "key.reveal()" }]).length,
    1,
    "anywhere else is noticed",
  );
});

t.test("a package that sends requests is imported by one file", async (t) => {
  t.same(engineFaults(sources), []);
  for (const engine of Object.keys(ENGINES))
    t.equal(engineFaults([{ path: "proxy/pipeline.ts", text: `import { x } from "${engine}";` }]).length, 1);
});

t.test("CONTRIBUTING.md contains the module map", async (t) => {
  const file = join(ROOT, "CONTRIBUTING.md");
  const text = readFileSync(file, "utf8");
  const from = text.indexOf(MAP_START) + MAP_START.length;
  const to = text.indexOf(MAP_END);
  const map = moduleMap(sources);
  if (process.env.KEYBEARER_WRITE_MAP === "1")
    writeFileSync(file, text.slice(0, from) + map + text.slice(to));
  else
    t.equal(
      text.slice(from, to),
      map,
      "KEYBEARER_WRITE_MAP=1 npm run tap -- test/architecture.test.ts writes it",
    );
});
