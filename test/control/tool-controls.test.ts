import { request } from "node:http";
import t, { type Test } from "tap";
import { askDaemon } from "../../src/control/client.ts";
import type { AllowanceAnswer, AllowanceRequest, Controls } from "../../src/control/routes.ts";
import { findPaths } from "../../src/core/paths.ts";
import { newHome } from "../doubles/command.ts";
import { serveControls } from "../doubles/idle-control.ts";

interface Call {
  readonly control: "lift" | "cut";
  readonly name: string;
  readonly lift?: AllowanceRequest;
  readonly peer: string;
}

/** A control socket in front of a daemon that knows one tool, codex, and writes down what it is asked. */
async function start(t: Test) {
  const calls: Call[] = [];
  const answer: AllowanceAnswer = {
    tool: "codex",
    levels: [
      {
        limit: "spend",
        per: "day",
        used: 1,
        estimated: 0,
        held: 0,
        most: 10,
        extra: 5,
        resets_at: 1_763_164_800_000,
        machines: [],
      },
    ],
    problem: null,
  };
  const controls: Partial<Controls> = {
    allow(name, lift, peer) {
      calls.push({ control: "lift", name, lift, peer });
      return name === "codex" ? answer : null;
    },
    cut(name, peer) {
      calls.push({ control: "cut", name, peer });
      return name === "codex" ? { cut: 3 } : null;
    },
  };
  const home = await newHome(t);
  const lines: string[] = [];
  await serveControls(t, home, controls, lines);
  const paths = findPaths({ env: { KEYBEARER_HOME: home }, home });
  return { paths, socket: paths.socket, calls, answer, lines };
}

function post(socketPath: string, path: string, body: string): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const asking = request({ socketPath, method: "POST", path }, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (part) => {
        text += part;
      });
      answer.on("end", () => resolve({ status: answer.statusCode ?? 0, text }));
    });
    asking.on("error", reject);
    asking.end(body);
  });
}

const LIFT: AllowanceRequest = { kind: "spend", amount: 5_000_000, until: null };

t.test("a lift reaches the daemon unchanged, with the caller's pid, and is answered", async (t) => {
  const { paths, calls, answer } = await start(t);
  const lifts: AllowanceRequest[] = [
    LIFT,
    { kind: "requests", amount: 1, until: 1_763_164_800_000 },
    { kind: "tokens", amount: Number.MAX_SAFE_INTEGER, until: null },
    { kind: "spend", amount: 0, until: null },
  ];
  for (const lift of lifts)
    t.strictSame(await askDaemon(paths, "POST", "/lift/codex", lift), { ok: true, value: answer });
  t.strictSame(
    calls.map(({ name, lift }) => ({ name, lift })),
    lifts.map((lift) => ({ name: "codex", lift })),
  );
  t.equal(calls[0]?.peer, `pid ${process.pid} (self-reported)`);
});

t.test("a lift for a tool that does not exist says so, whatever its name", async (t) => {
  const { paths, calls } = await start(t);
  for (const name of ["nobody", "__proto__", "../status", "a b"]) {
    const asked = await askDaemon(paths, "POST", `/lift/${encodeURIComponent(name)}`, LIFT);
    t.match(asked, { ok: false, running: true, problem: `there is no tool ${name}` });
    t.equal(calls.at(-1)?.name, name);
  }
});

t.test("a malformed lift is refused with 400 and does not reach the daemon", async (t) => {
  const { socket, calls } = await start(t);
  const valid = { kind: "spend", amount: 5, until: null };
  const bodies: unknown[] = [
    null,
    [],
    [valid],
    "spend",
    5,
    {},
    { kind: "spend", amount: 5 },
    { amount: 5, until: null },
    { ...valid, more: 1 },
    { kind: "spend", amount: 5, Until: null },
    ...["quota", "concurrent", "price", "Spend", "", null, ["spend"], { toString: "spend" }].map((kind) => ({
      ...valid,
      kind,
    })),
    ...[-1, 0.5, 2 ** 53, 1e300, "5", null, true, [5]].map((amount) => ({ ...valid, amount })),
    ...[0, -1, 1.5, 2 ** 53, "2026-11-16", false, {}].map((until) => ({ ...valid, until })),
  ];
  const texts = [
    "",
    "{",
    '{"kind":"spend","amount":NaN,"until":null}',
    '{"__proto__":{"kind":"spend","amount":5,"until":null}}',
    '{"kind":"spend","amount":5,"__proto__":null}',
    ...bodies.map((body) => JSON.stringify(body)),
  ];
  for (const text of texts) {
    const { status, text: answer } = await post(socket, "/lift/codex", text);
    t.equal(status, 400, text);
    t.notMatch(JSON.parse(answer).error, /is not a function|undefined|Cannot/);
  }
  t.strictSame(calls, []);
});

t.test("a failure inside the daemon is a 500 and is logged", async (t) => {
  const { socket, lines } = await start(t);
  const answered = await post(socket, "/open", "{}");
  t.equal(answered.status, 500);
  t.notMatch(answered.text, /there is no dashboard/, "the log says more than the answer");
  t.match(lines.join(""), /there is no dashboard.*because of a bug in keybearer/);
});

t.test("a cut answers how many requests were in flight, and 0 for a tool that is gone", async (t) => {
  const { paths, socket, calls } = await start(t);
  t.strictSame(await askDaemon(paths, "POST", "/cut/codex", {}), { ok: true, value: { cut: 3 } });
  t.strictSame(await askDaemon(paths, "POST", "/cut/gone", {}), { ok: true, value: { cut: 0 } });
  for (const text of ["", "null", "[]", "1", '{"tool":"codex"}', '{"now":true}']) {
    t.equal((await post(socket, "/cut/codex", text)).status, 400, text);
  }
  t.equal(calls.length, 2);
  t.equal(calls[0]?.peer, `pid ${process.pid} (self-reported)`);
});

t.test("lift and cut accept only POST with the name of a tool", async (t) => {
  const { paths, socket, calls } = await start(t);
  for (const path of ["/lift", "/lift/", "/cut", "/cut/", "/cut/codex/now", "/lift/codex?kind=spend"])
    t.equal((await post(socket, path, JSON.stringify(LIFT))).status, 404, path);
  for (const path of ["/lift/codex", "/cut/codex"])
    t.match(await askDaemon(paths, "GET", path), { ok: false, problem: "no such control" });
  t.strictSame(calls, []);
});
