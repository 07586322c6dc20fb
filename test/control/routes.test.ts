import { randomBytes } from "node:crypto";
import { statSync } from "node:fs";
import { request } from "node:http";
import { connect } from "node:net";
import { dirname } from "node:path";
import t, { type Test } from "tap";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";

const key = `sk-canary-${randomBytes(12).toString("hex")}`;
const { token, hash } = freshToken();

function start(t: Test) {
  return startUnderTest(
    t,
    `gateway: http://127.0.0.1:9/v1\ntools: { codex: { key: ${key}, token: "${hash}" } }\n`,
  );
}

interface Said {
  readonly status: number;
  readonly text: string;
}

function say(
  socketPath: string,
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body?: string,
): Promise<Said> {
  return new Promise((resolve, reject) => {
    const asking = request({ socketPath, method, path, headers }, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (part) => {
        text += part;
      });
      answer.on("error", reject);
      answer.on("end", () => resolve({ status: answer.statusCode ?? 0, text }));
    });
    asking.on("error", reject);
    asking.end(body);
  });
}

t.test("the socket and trust.json are 0600, in folders that are 0700", async (t) => {
  const { paths } = await start(t);
  t.equal(statSync(paths.socket).mode & 0o777, 0o600);
  t.equal(statSync(dirname(paths.socket)).mode & 0o777, 0o700);
  t.equal(statSync(paths.state).mode & 0o777, 0o700);
  t.equal(statSync(paths.trust).mode & 0o777, 0o600);
});

t.test("a request that looks like a browser's is refused", async (t) => {
  const { paths } = await start(t);
  const browsers: Record<string, string>[] = [
    { origin: "http://localhost:5397" },
    { origin: "null" },
    { referer: "http://evil.example/" },
  ];
  for (const headers of browsers) {
    t.equal((await say(paths.socket, "GET", "/status", headers)).status, 403, JSON.stringify(headers));
  }
  t.equal((await say(paths.socket, "GET", "/status")).status, 200);
});

t.test("unknown controls are 404, and no answer holds a key, a token or its hash", async (t) => {
  const { paths, daemon } = await start(t);
  const answers = [
    await say(paths.socket, "GET", "/status"),
    await say(paths.socket, "GET", "/held/codex"),
    await say(paths.socket, "GET", "/held/main"),
  ];
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200],
  );
  const unknown: [string, string][] = [
    ["GET", "/"],
    ["GET", "/status/codex"],
    ["GET", "/status?x=1"],
    ["POST", "/status"],
    ["GET", "/trust/codex"],
    ["DELETE", "/held/codex"],
    ["PUT", "/held"],
    ["GET", "/held/nobody"],
    ["GET", "/held/__proto__"],
    ["GET", "/constructor"],
    ["GET", "/held/a/b"],
    ["GET", `/${"a".repeat(5000)}`],
  ];
  for (const [method, path] of unknown) {
    const answer = await say(paths.socket, method, path);
    t.equal(answer.status, 404, `${method} ${path.slice(0, 40)}`);
    t.equal(typeof JSON.parse(answer.text).error, "string");
    answers.push(answer);
  }
  for (const { text } of answers) {
    t.notOk(text.includes(key) || text.includes(token) || text.includes(hash.slice(7)));
  }
  t.ok(JSON.stringify(await daemon.status()).includes(key.slice(-4)), "only the fingerprint is shown");
});

t.test("a body that is too large or has the wrong shape is refused", async (t) => {
  const { paths } = await start(t);
  const bodies = ["", "{", "null", "{}", "[null]", "[1]", '[{"tool":"codex"}]', '"yes"'];
  for (const body of bodies) {
    const answer = await say(paths.socket, "POST", "/trust/codex", {}, body);
    t.equal(answer.status, 400, body.slice(0, 20));
    t.notMatch(answer.text, /is not a function|undefined|Cannot/, "a sentence, not a programming error");
  }
  const large = `[${" ".repeat(70_000)}]`;
  t.equal((await say(paths.socket, "POST", "/trust/codex", {}, large)).status, 413);
  t.equal((await say(paths.socket, "GET", "/held/%E0%A4%A")).status, 400, "a name cut in the middle");
  await say(paths.socket, "POST", "/trust/codex", {}, "x".repeat(8_000_000)).catch(() => {});
  t.equal((await say(paths.socket, "GET", "/status")).status, 200, "it goes on answering");
});

t.test("trusting a key that is not held grants nothing", async (t) => {
  const { paths } = await start(t);
  const made = [{ tool: "codex", what: "the key", from: "here", to: "there" }];
  const answer = await say(paths.socket, "POST", "/trust/codex", {}, JSON.stringify(made));
  t.equal(answer.status, 200);
  t.same(JSON.parse(answer.text), { granted: [], problems: [] });
});

t.test("garbage bytes end that connection and nothing else", async (t) => {
  const { paths } = await start(t);
  const garbage = [randomBytes(4096), Buffer.from("\0\0\0\0\r\n\r\n"), Buffer.from("GET / HTTP/9.9\r\n\r\n")];
  for (const bytes of garbage) {
    await new Promise<void>((resolve) => {
      const socket = connect(paths.socket, () => socket.write(bytes));
      socket.on("error", () => {});
      socket.on("close", () => resolve());
      socket.resume();
    });
  }
  t.equal((await say(paths.socket, "GET", "/status")).status, 200);
});
