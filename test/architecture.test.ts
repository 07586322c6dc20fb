import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import t from "tap";
import { ROOT } from "./doubles/paths.ts";

/**
 * Holds the house rules that no linter knows: who may import whom, what pure files may touch, where secrets are
 * revealed, and that no module keeps state. Each check is a function on sources, so that each can be shown to fail.
 */

const SRC = join(ROOT, "src");

/** A file imports its own room and lower ranks; rooms of one rank do not see each other. */
const RANKS: readonly (readonly string[])[] = [
  ["core/"],
  ["clients/", "config/", "keys/"],
  ["metering/"],
  ["limits/"],
  ["usage/"],
  ["proxy/"],
  ["mirror/"],
  ["doctor/"],
  ["control/", "dashboard/", "service/", "sandbox/"],
  ["daemon/"],
  ["cli/"],
];

/** These do no I/O and read no clock: what they answer depends on what they are given. */
const PURE = [
  "config/shape.ts",
  "config/defaults.ts",
  "config/problem.ts",
  "config/parse.ts",
  "config/references.ts",
  "config/changes.ts",
  "config/snapshot.ts",
  "config/not-yet.ts",
  "config/text/",
  "config/fields/",
  "config/edit.ts",
  "config/edit-tools.ts",

  "limits/admit.ts",
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
  "usage/record.ts",
  "usage/unknown-callers.ts",
  "usage/columns.ts",
  "usage/rollups.ts",
  "usage/journal/lines.ts",
  "usage/journal/pending.ts",
  "usage/reports/calendar.ts",
  "usage/reports/filter.ts",
  "usage/reports/format.ts",
  "usage/reports/period.ts",
  "proxy/credentials.ts",
  "proxy/guard.ts",
  "proxy/routes.ts",
  "proxy/headers.ts",
  "proxy/cause.ts",
  "proxy/failure.ts",
  "proxy/records.ts",
  "service/spec.ts",
  "service/systemd/unit.ts",
  "service/launchd/plist.ts",
  "service/node-path.ts",
  "service/package-path.ts",
  "doctor/findings.ts",

  "doctor/models.ts",
  "doctor/known-settings.ts",
  "doctor/probe-failure.ts",
  "doctor/settings-findings.ts",
  "mirror/console-row.ts",
  "mirror/verdict.ts",
  "mirror/reconcile/",
  "mirror/report/words.ts",
  "service/answer-words.ts",
  "service/key-sources.ts",
  "service/launchd/launchd-answers.ts",
  "service/systemd/systemd-answers.ts",
  "service/systemd/systemd-steps.ts",
  "service/systemd/namespaces.ts",
  "core/refusal.ts",
];

/** Where a key meets the wire, and where a console's secret meets the wire or its store. */
const MAY_REVEAL = [
  "proxy/headers.ts",
  "mirror/consoles/http.ts",
  "mirror/vault.ts",
  "doctor/probe.ts",
  "keys/store.ts",
];

interface Source {
  /** Below src/, with forward slashes. */
  readonly path: string;
  readonly text: string;
}

function sources(): Source[] {
  return readdirSync(SRC, { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".ts"))
    .map((path) => ({
      path: path.split(sep).join("/"),
      text: readFileSync(join(SRC, path), "utf8"),
    }));
}

function importsOf({ text }: Source): string[] {
  const code = withoutComments(text);
  return [...code.matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)"([^"]+)"/g)].map((match) => match[1] ?? "");
}

/** Those of types alone, which are gone once it is built. */
function typeImportsOf({ text }: Source): string[] {
  const code = withoutComments(text);
  return [...code.matchAll(/\b(?:import|export) type \{[^}]*\}\s*from\s*"([^"]+)"/g)].map(
    (match) => match[1] ?? "",
  );
}

/** What these rooms tell, the dashboard shows: it knows how that is written, but cannot call them. */
const SHOWN_BY_DASHBOARD = ["control/", "doctor/"];

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|\s)\/\/.*$/gm, "$1");
}

/** The room a file belongs to: its folder, or itself when it lies at the top. */
function roomOf(path: string): string {
  const slash = path.indexOf("/");
  return slash === -1 ? path.replace(/\.ts$/, "") : path.slice(0, slash + 1);
}

function rankOf(path: string): number {
  return RANKS.findIndex((rooms) => rooms.includes(roomOf(path)));
}

function rankFaults(files: readonly Source[]): string[] {
  return files.flatMap((file) => {
    if (rankOf(file.path) === -1) return [`${file.path} is in no room that has a rank`];
    return importsOf(file)
      .filter((name) => name.startsWith("."))
      .flatMap((name) => {
        const target = relative(SRC, resolve(SRC, dirname(file.path), name))
          .split(sep)
          .join("/");
        if (target.startsWith("..")) return [`${file.path} imports ${name} from outside src`];
        const own = roomOf(target) === roomOf(file.path);
        // The files of the lowest rank and of the daemon's lie side by side and form one room each.
        const together =
          rankOf(target) === rankOf(file.path) && !target.includes("/") && !file.path.includes("/");
        const lower = rankOf(target) !== -1 && rankOf(target) < rankOf(file.path);
        const shown =
          roomOf(file.path) === "dashboard/" &&
          SHOWN_BY_DASHBOARD.includes(roomOf(target)) &&
          typeImportsOf(file).includes(name);
        return own || together || lower || shown ? [] : [`${file.path} may not import ${target}`];
      });
  });
}

const IMPURE_IMPORTS =
  /^(?:node:(?:fs|http|https|net|tls|dns|child_process|os|timers|process|dgram|cluster|worker_threads)(?:\/.*)?|chokidar|pino|http-proxy-3|systeminformation|libsql|@napi-rs\/keyring)$/;
const IMPURE_CODE =
  /\bDate\.now\(|\bnew Date\(\s*\)|\bperformance\.now\(|\bprocess\.|\bMath\.random\(|\bset(?:Timeout|Interval|Immediate)\(|\bfetch\(|\brandomBytes\(/;

function purityFaults(files: readonly Source[]): string[] {
  return files
    .filter(({ path }) => PURE.some((name) => path === name || (name.endsWith("/") && path.startsWith(name))))
    .flatMap((file) => [
      ...importsOf(file)
        .filter((name) => IMPURE_IMPORTS.test(name))
        .map((name) => `${file.path} is pure and may not import ${name}`),
      ...(IMPURE_CODE.test(withoutComments(file.text))
        ? [`${file.path} is pure and may not do I/O or read a clock`]
        : []),
    ]);
}

/** Top-level lets, collections and made objects: two daemons in one process would share them. */
const STATE =
  /^(?:export )?(?:let|var) |^(?:export )?const [A-Za-z_$][\w$]*(?:: [^=\n]+)? = (?:await |new (?!(?:RegExp|URL)\b)|create[A-Z]\w*\(|\[\];|\{\};)/m;

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

/** What sends requests, and who may know it. */
const ENGINES: Readonly<Record<string, readonly string[]>> = {
  "http-proxy-3": ["proxy/upstream.ts"],
};

function engineFaults(files: readonly Source[]): string[] {
  return Object.entries(ENGINES).flatMap(([engine, mayKnow]) =>
    files
      .filter((file) => !mayKnow.includes(file.path) && importsOf(file).includes(engine))
      .map(({ path }) => `${path} may not know ${engine}`),
  );
}

const all = sources();

t.test("every room imports only itself and lower ranks", (t) => {
  t.same(rankFaults(all), []);
  t.end();
});

t.test("an import upwards or across is noticed", (t) => {
  const upwards = { path: "config/parse.ts", text: 'import { serve } from "../proxy/pipeline.ts";' };
  const across = { path: "keys/read.ts", text: 'import type { Tool } from "../config/shape.ts";' };
  const nowhere = { path: "utils/misc.ts", text: "" };
  t.same(rankFaults([upwards]), ["config/parse.ts may not import proxy/pipeline.ts"]);
  t.same(rankFaults([across]), ["keys/read.ts may not import config/shape.ts"]);
  t.match(rankFaults([nowhere])[0], /no room/);
  const types = { path: "dashboard/x.ts", text: 'import type { Status } from "../control/status.ts";' };
  const values = { path: "dashboard/x.ts", text: 'import { statusOf } from "../control/status.ts";' };
  const others = { path: "dashboard/x.ts", text: 'import type { Sandbox } from "../sandbox/sandbox.ts";' };
  t.same(rankFaults([types]), [], "the dashboard shows what control tells");
  t.same(rankFaults([values]), ["dashboard/x.ts may not import control/status.ts"]);
  t.same(rankFaults([others]), ["dashboard/x.ts may not import sandbox/sandbox.ts"]);
  t.end();
});

t.test("pure files do no I/O and read no clock", (t) => {
  t.same(purityFaults(all), []);
  for (const name of PURE) {
    t.ok(
      all.some(({ path }) => path === name || path.startsWith(name)),
      `${name} exists`,
    );
  }
  t.end();
});

t.test("I/O or a clock in a pure file is noticed", (t) => {
  const file = (text: string) => [{ path: "proxy/guard.ts", text }];
  for (const text of [
    'import { readFileSync } from "node:fs";',
    'import { watch } from "chokidar";',
    "const now = Date.now();",
    "const home = process.env.HOME;",
    "setTimeout(() => {}, 1);",
  ]) {
    t.equal(purityFaults(file(text)).length, 1, text);
  }
  t.same(purityFaults(file("// reads Date.now() elsewhere")), [], "a comment is no code");
  t.end();
});

t.test("no module keeps state", (t) => {
  t.same(stateFaults(all), []);
  t.end();
});

t.test("module-level state is noticed", (t) => {
  for (const text of [
    "let count = 0;",
    "export let current = null;",
    "const cache = new Map();",
    "const seen: Set<string> = new Set();",
    "const daemon = createDaemon();",
    "const list: string[] = [];",
  ]) {
    t.equal(stateFaults([{ path: "x.ts", text }]).length, 1, text);
  }
  t.same(stateFaults([{ path: "x.ts", text: "function f() {\n  let inner = 0;\n  return inner;\n}" }]), []);
  t.end();
});

t.test("a secret is revealed only where it meets the wire", (t) => {
  t.same(revealFaults(all), []);
  t.equal(revealFaults([{ path: "logger.ts", text: "key.reveal()" }]).length, 1, "anywhere else is noticed");
  t.end();
});

t.test("what sends requests is known only where it is used", (t) => {
  t.same(engineFaults(all), []);
  for (const engine of Object.keys(ENGINES))
    t.equal(engineFaults([{ path: "proxy/pipeline.ts", text: `import { x } from "${engine}";` }]).length, 1);
  t.end();
});
