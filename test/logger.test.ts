import t from "tap";
import { createLogger } from "../src/logger.ts";
import { Secret } from "../src/secret.ts";

function logInto(lines: Record<string, unknown>[]) {
  return createLogger({
    level: "info",
    destination: { write: (line: string) => void lines.push(JSON.parse(line)) },
    forPeople: false,
    secrets: () => [new Secret("sk-canary-0123456789")],
  });
}

t.test("a field named like a credential is not written, neither in a line nor one level down", async (t) => {
  const lines: Record<string, unknown>[] = [];
  const log = logInto(lines);
  const inner = { "x-api-key": "a", Authorization: "b", model: "m", list: [1] };
  log.info({ token: "c", "api-key": "d", inner, n: 1, none: null }, "words");
  t.match(lines[0], {
    token: "[redacted]",
    "api-key": "[redacted]",
    inner: { "x-api-key": "[redacted]", Authorization: "[redacted]", model: "m", list: [1] },
    n: 1,
    none: null,
    msg: "words",
    level: "info",
  });
  t.equal(inner["x-api-key"], "a", "what is logged stays as it is to its owner");
});

t.test("an error keeps its words and its place, and loses its credential", async (t) => {
  const lines: Record<string, unknown>[] = [];
  const log = logInto(lines);
  log.error({ err: Object.assign(new Error("it broke"), { password: "p", code: "E1" }) }, "words");
  log.error({ err: new Error("it broke") }, "words");
  t.match(lines[0], {
    err: { message: "it broke", password: "[redacted]", code: "E1", stack: /logger\.test/ },
  });
  t.match(lines[1], { err: { type: "Error", message: "it broke", stack: /logger\.test/ } });
});

t.test("a secret inside a message is blotted", async (t) => {
  const lines: Record<string, unknown>[] = [];
  logInto(lines).warn({ path: "/x/sk-canary-0123456789" }, "no sk-canary-0123456789 here");
  t.match(lines[0], { path: "/x/[redacted]", msg: "no [redacted] here" });
});

t.test("a line says when it was written, to the millisecond, also after the clock went back", async (t) => {
  const lines: Record<string, unknown>[] = [];
  const log = logInto(lines);
  const times = [1763164800999, 1763164801000, 1763164801007, 1763164799500];
  const { now } = Date;
  t.teardown(() => {
    Date.now = now;
  });
  for (const time of times) {
    Date.now = () => time;
    log.info("words");
  }
  Date.now = now;
  t.strictSame(
    lines.map((line) => line.time),
    times.map((time) => new Date(time).toISOString()),
  );
});
