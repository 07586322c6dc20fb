import { execFile } from "node:child_process";
import { existsSync, realpathSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { Connections } from "../../src/core/connections.ts";
import { ProcessLookup } from "../../src/core/process-lookup.ts";
import { newHome, saveConfig, startServing } from "../doubles/command.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { startSandbox } from "../doubles/sandbox.ts";

const CURL = ["/usr/bin/curl", "/bin/curl"].find((path) => existsSync(path));
const missing = CURL === undefined ? "no curl here" : false;

async function start(test: Test, lines: readonly string[]) {
  const sandbox = await startSandbox(test);
  const { key } = sandbox.createKey({ name: "codex", group: "default" });
  const config = [
    `gateway: ${sandbox.baseUrl}`,
    "tools:",
    "  codex:",
    `    key: ${key.reveal()}`,
    ...lines,
    "",
  ];
  return { ...(await startUnderTest(test, config.join("\n"))), sandbox };
}

/** The status that curl gets. */
async function curl(url: string, ...args: string[]): Promise<string> {
  const all = ["-s", "-o", "/dev/null", "-w", "%{http_code}", ...args, `${url}/v1/models`];
  // Without the environment, which may name a proxy.
  return (await promisify(execFile)(CURL ?? "", all, { env: {} })).stdout;
}

t.test(
  "a tool is identified by its program alone, and another program is refused",
  { skip: missing },
  async (t) => {
    const under = await start(t, [`    process: ${CURL}`]);
    t.equal(await curl(under.url), "200");
    t.equal(
      await curl(under.url, "-H", "Authorization: Bearer unused"),
      "200",
      "a placeholder is no credential",
    );
    t.equal(await curl(under.url, "-H", "x-api-key: sk-abcdefghijklmnop1234567890"), "400", "a real key is");
    const reached = under.sandbox.requests().length;
    const other = await fetch(`${under.url}/v1/models`);
    t.equal(other.status, 401);
    t.equal(other.headers.get("x-keybearer-refusal"), "token-missing");
    t.equal(under.sandbox.requests().length, reached, "nothing reached the gateway");
    const sessions = under.ended().map(({ session }) => /^process-\d+-\d+$/.test(session ?? ""));
    t.same(
      sessions,
      [true, true, false, false],
      "its process is the session, and a refused program has none",
    );
    const { tools } = await under.daemon.status();
    t.equal(tools[0]?.state, "active", "it needs no token");
  },
);

t.test("with a token, program and token must match", { skip: missing }, async (t) => {
  const { token, hash } = freshToken();
  const under = await start(t, [`    process: ${CURL}`, `    token: ${hash}`]);
  const authorization = `Authorization: Bearer ${token}`;
  t.equal(await curl(under.url, "-H", authorization), "200");
  t.equal(await curl(under.url), "401", "the program without the token");
  const other = await fetch(`${under.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
  t.equal(other.status, 401, "the token in another program");
  const { error } = (await other.json()) as { error: { message: string } };
  t.match(error.message, realpathSync(process.execPath));
  t.match(error.message, "tools.codex.process");
});

t.test("the program of a connection is looked up once", { skip: missing }, async (t) => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  const accepted = new Promise<Socket>((resolve) => server.once("connection", resolve));
  const address = server.address();
  const client = connect(typeof address === "object" ? (address?.port ?? 0) : 0, "127.0.0.1");
  t.teardown(() => client.destroy());
  const socket = await accepted;
  const processLookup = new ProcessLookup(new Connections(), { error: () => {} });
  const first = processLookup.of(socket);
  t.equal(processLookup.of(socket), first);
  const owner = await first;
  t.match(owner, { pid: process.pid, program: realpathSync(process.execPath) });
  const age = Date.now() / 1000 - process.uptime() - (owner?.startedAt ?? 0);
  t.ok(Math.abs(age) < 3, "and when it started");
  socket.destroy();
});

t.test(
  "the built program identifies programs, too, and prints only its log",
  { skip: missing },
  async (t) => {
    const sandbox = await startSandbox(t);
    const { key } = sandbox.createKey({ name: "codex", group: "default" });
    const home = await newHome(t);
    const tool = `{ key: ${key.reveal()}, process: ${realpathSync(CURL ?? "")} }`;
    await saveConfig(home, `listen: localhost:0\ngateway: ${sandbox.baseUrl}\ntools: { codex: ${tool} }\n`);
    const { url, stderr } = await startServing(t, home);
    t.equal(await curl(url), "200");
    for (const line of stderr().trim().split("\n").filter(Boolean)) t.match(line, /^\{"level"/);
  },
);
