import fc from "fast-check";
import t from "tap";
import { createLogger, readableLine } from "../../src/core/log.ts";
import { Secret } from "../../src/core/secret.ts";
import { runs } from "../doubles/effort.ts";
import { quietLog } from "../doubles/quiet-log.ts";

const CANARY = [new Secret("sk-canary-0123456789")];

function logInto(lines: Record<string, unknown>[]) {
  return createLogger({
    level: "info",
    destination: { write: (line: string) => void lines.push(JSON.parse(line)) },
    forPeople: false,
    secrets: [() => CANARY],
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

t.test("an error keeps its message and its stack, without the credential", async (t) => {
  const lines: Record<string, unknown>[] = [];
  const log = logInto(lines);
  log.error({ err: Object.assign(new Error("it broke"), { password: "p", code: "E1" }) }, "words");
  log.error({ err: new Error("it broke") }, "words");
  t.match(lines[0], {
    err: { message: "it broke", password: "[redacted]", code: "E1", stack: /log\.test/ },
  });
  t.match(lines[1], { err: { type: "Error", message: "it broke", stack: /log\.test/ } });
});

t.test("of an error only its type, message, code and stack are written", async (t) => {
  const lines: string[] = [];
  const error = Object.assign(new Error("the head was not HTTP"), {
    code: "HPE_INVALID",
    rawPacket: Buffer.from("Authorization: Bearer kb_token"),
    headers: { authorization: "Bearer kb_token" },
  });
  quietLog(lines).error({ err: error }, "failed");
  const { err } = JSON.parse(lines[0] ?? "");
  t.strictSame(Object.keys(err).sort(), ["code", "message", "stack", "type"]);
  t.match(err, { type: "Error", message: "the head was not HTTP", code: "HPE_INVALID" });
});

t.test("a secret inside a message is redacted", async (t) => {
  const lines: Record<string, unknown>[] = [];
  logInto(lines).warn({ path: "/x/sk-canary-0123456789" }, "no sk-canary-0123456789 here");
  t.match(lines[0], { path: "/x/[redacted]", msg: "no [redacted] here" });
});

t.test("a line has its time to the millisecond, also after the clock was set back", async (t) => {
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

t.test("nothing is left of any of many secrets, however a text spells them", async () => {
  const piece = fc.string({
    unit: fc.constantFrom("1", "2", "/", "&", '"', "\u00e9", "\ud83d", "$", "|"),
    maxLength: 7,
  });
  const secrets = fc.array(piece, { maxLength: 40 });
  fc.assert(
    fc.property(secrets, fc.array(fc.oneof(piece, fc.nat()), { maxLength: 30 }), (values, parts) => {
      const all = values.map((value) => new Secret(value));
      // Some of the pieces are secrets themselves, in one of their spellings.
      const text = parts
        .map((part) => (typeof part === "string" ? part : (values[part % 97] ?? "")))
        .map((part, at) => (at % 3 === 0 ? JSON.stringify(part) : part))
        .join("");
      const together = Secret.together(all);
      const clean = together.redactFrom(text);
      const found = all.some((one) => one.isIn(text));
      return (
        together.isIn(text) === found && !all.some((one) => one.isIn(clean)) && found === (clean !== text)
      );
    }),
    { numRuns: runs(50) },
  );
});

t.test("of a key that begins with another one nothing is left", async (t) => {
  const part = "sk-abcdefghijklmnop";
  const whole = "sk-abcdefghijklmnopQRSTUV12";
  for (const keys of [
    [part, whole],
    [whole, part],
  ]) {
    const together = Secret.together(keys.map((key) => new Secret(key)));
    t.equal(together.redactFrom(`with ${whole} and ${part}`), "with [redacted] and [redacted]");
  }
});

t.test("a secret that came, and one that changed, is redacted from the next line on", async (t) => {
  const lines: Record<string, unknown>[] = [];
  let keys: Secret[] = [];
  let others = [new Secret("sk-other-0123456789")];
  const log = createLogger({
    level: "info",
    destination: { write: (line: string) => void lines.push(JSON.parse(line)) },
    forPeople: false,
    secrets: [() => keys, () => others],
  });
  const words = "sk-canary-0123456789 sk-other-0123456789";
  log.info(words);
  keys = [new Secret("sk-canary-0123456789")];
  log.info(words);
  others = [];
  log.info({ words }, words);
  t.strictSame(
    lines.map(({ msg }) => msg),
    ["sk-canary-0123456789 [redacted]", "[redacted] [redacted]", "[redacted] sk-other-0123456789"],
  );
  t.equal(lines[2]?.words, "[redacted] sk-other-0123456789");
});

t.test("a line for people has local times, and commands as they can be typed", async (t) => {
  const [, before = ""] = process.argv;
  t.teardown(() => {
    process.argv[1] = before;
  });
  process.argv[1] = "/home/ann/kb/dist/cli/main.js";
  const at = new Date(2026, 10, 15, 14, 10, 57);
  const entry = {
    ...{
      level: "warn",
      time: at.toISOString(),
      msg: "look → keybearer mirror; then keybearer mirror ack main",
    },
    ...{ first_at: at.getTime(), until: at.getTime(), wait_ms: 1204 },
  };
  const command = "node /home/ann/kb/dist/cli/main.js mirror";
  t.equal(
    readableLine(JSON.stringify(entry)),
    `14:10:57 warn: look → ${command}; then ${command} ack main  first_at=2026-11-15 14:10:57 until=2026-11-15 14:10:57 wait=1.2 s\n`,
  );
});
