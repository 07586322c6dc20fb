import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, realpathSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import t, { type Test } from "tap";
import { systemClock } from "../../src/core/clock.ts";
import { Call } from "../../src/proxy/call.ts";
import { lookUpProject } from "../../src/proxy/identify.ts";
import { RequestHead } from "../../src/proxy/request-head.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { canaryKey, type DaemonUnderTest, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { movableClock } from "../doubles/movable-clock.ts";
import { asOtherUser, cannotBeOtherUser } from "../doubles/other-user.ts";
import { snapshotOf } from "../doubles/parsed-config.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

const notHere = process.platform === "linux" ? false : "the lookup has been run on Linux only";

interface Running extends DaemonUnderTest {
  readonly token: string;
  readonly clock: ReturnType<typeof movableClock>;
  /** The configuration with this `usage.project`. */
  with(project: string): string;
}

async function start(t: Test, project: string): Promise<Running> {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const { token, hash } = freshToken();
  const key = canaryKey();
  const lines = (value: string) =>
    `gateway: ${gateway.origin}/v1\nusage: { project: ${value} }\ntools: { codex: { key: ${key}, token: "${hash}" } }\n`;
  const clock = movableClock();
  return { ...(await startUnderTest(t, lines(project), { clock })), token, clock, with: lines };
}

/** Sends a request over its one connection for each line it reads, and prints the status. */
const CLIENT = `
  import { Agent, get } from "node:http";
  import { createInterface } from "node:readline";
  const [url, headers] = process.argv.slice(1);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  for await (const line of createInterface({ input: process.stdin })) {
    await new Promise((done) =>
      get(url + "/v1/models", { agent, headers: JSON.parse(headers) }, (answer) =>
        answer.resume().on("end", () => (console.log(answer.statusCode), done()))));
  }`;

class Client {
  readonly child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #name: string;
  readonly #under: Running;

  constructor(
    t: Test,
    under: Running,
    name: string,
    cwd: string,
    headers: Readonly<Record<string, string>> = {},
  ) {
    const sent = { authorization: `Bearer ${under.token}`, "user-agent": name, ...headers };
    const args = ["--input-type=module", "-e", CLIENT, under.url, JSON.stringify(sent)];
    this.child = spawn(process.execPath, args, { cwd, env: {}, stdio: ["pipe", "pipe", "inherit"] });
    t.teardown(() => this.child.kill("SIGKILL"));
    if (this.child.stdout === null) throw new Error("it has no output");
    this.#lines = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
    this.#name = name;
    this.#under = under;
  }

  /** The record of one request. */
  async send(): Promise<UsageRecord> {
    const before = this.#records().length;
    this.child.stdin?.write("\n");
    await this.#lines.next();
    await until("the record is written", () => this.#records().length > before);
    const last = this.#records().at(-1);
    if (last === undefined) throw new Error("there is no record");
    return last;
  }

  /** The record of the first request that has this. Earlier ones may have ended before the lookup. */
  async sendUntil(holds: (record: UsageRecord) => boolean): Promise<UsageRecord> {
    let record = await this.send();
    await until("a record has what was looked up", async () => {
      if (!holds(record)) record = await this.send();
      return holds(record);
    });
    return record;
  }

  #records(): UsageRecord[] {
    const own = this.#under.ended().filter(({ user_agent }) => user_agent === this.#name);
    return own.sort((one, other) => (one.id < other.id ? -1 : 1));
  }
}

const hasProject = ({ project }: UsageRecord) => project !== null;

function git(folder: string, ...args: readonly string[]): void {
  const who = ["-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "protocol.file.allow=always"];
  const env = { PATH: process.env.PATH, GIT_CONFIG_GLOBAL: "/dev/null", GIT_CONFIG_NOSYSTEM: "1" };
  execFileSync("git", [...who, ...args], { cwd: folder, env, stdio: "ignore" });
}

function makeRepository(folder: string, branch: string): string {
  mkdirSync(folder, { recursive: true });
  git(folder, "init", "-b", branch);
  git(folder, "commit", "--allow-empty", "-m", "first");
  return folder;
}

t.test(
  "each record has the project and the branch of the process that sent it",
  { skip: notHere },
  async (t) => {
    const under = await start(t, "path");
    const outside = realpathSync(mkdtempSync(join(tmpdir(), "projects-")));
    t.teardown(() => rmSync(outside, { recursive: true, force: true }));
    const app = makeRepository(join(under.home, "code/app"), "main");
    const site = makeRepository(join(outside, "site"), "feature/new-page");
    mkdirSync(join(app, "src/deep"), { recursive: true });
    git(app, "worktree", "add", "-b", "fix", join(outside, "app-fix"));
    git(app, "submodule", "add", site, "vendored");
    const detached = makeRepository(join(outside, "detached"), "main");
    git(detached, "checkout", "--detach");
    const commit = execFileSync("git", ["rev-parse", "HEAD"], { cwd: detached, encoding: "utf8" });
    mkdirSync(join(outside, "plain"));
    const strange = makeRepository(join(outside, "str\u001b[31mange\u0007"), "main");
    const keyed = makeRepository(join(outside, "sk-abcdefghijklmnop0123456789"), "main");
    const long = makeRepository(join(outside, "x".repeat(150), "y".repeat(150)), "b".repeat(230));
    const cases: readonly (readonly [folder: string, project: string, branch: string | null])[] = [
      [app, "~/code/app", "main"],
      [join(app, "src/deep"), "~/code/app", "main"],
      [site, site, "feature/new-page"],
      [join(outside, "app-fix"), join(outside, "app-fix"), "fix"],
      [join(app, "vendored"), "~/code/app/vendored", "feature/new-page"],
      [detached, detached, commit.slice(0, 12)],
      [join(outside, "plain"), join(outside, "plain"), null],
      [strange, join(outside, "str\ufffd[31mange\ufffd"), "main"],
      [keyed, join(outside, "[hidden]"), "main"],
      [long, long.slice(0, 200), "b".repeat(200)],
      [under.home, "~", null],
    ];
    const clients = cases.map(([folder], at) => new Client(t, under, `client-${at}`, folder));
    const records = await Promise.all(clients.map((client) => client.sendUntil(hasProject)));
    for (const [at, [folder, project, branch]] of cases.entries()) {
      t.match(records[at], { project, branch, end: "complete" }, folder);
      const { pid } = clients[at]?.child ?? {};
      const [, shown, started] = /^process-(\d+)-(\d+)$/.exec(records[at]?.session ?? "") ?? [];
      t.equal(shown, String(pid), "the session is the process");
      t.ok(Math.abs(Date.now() / 1000 - Number(started)) < 120, "and when it started");
    }
  },
);

t.test(
  "a client's own session stays, and a change of branch is seen a minute later",
  { skip: notHere },
  async (t) => {
    const under = await start(t, "name");
    const app = makeRepository(join(under.home, "code/app"), "main");
    const client = new Client(t, under, "named", app, { "x-session-id": "ses_1" });
    t.match(await client.sendUntil(hasProject), { project: "app", branch: "main", session: "ses_1" });
    git(app, "checkout", "-b", "next");
    under.clock.pass(30_000);
    await client.send();
    t.match(await client.send(), { branch: "main" });
    under.clock.pass(30_000);
    t.match(await client.sendUntil(({ branch }) => branch !== "main"), { project: "app", branch: "next" });
    renameSync(join(app, ".git/HEAD"), join(app, ".git/HEAD.away"));
    under.clock.pass(60_000);
    t.match(await client.sendUntil(({ branch }) => branch !== "next"), { project: "app", branch: null });
  },
);

t.test("it follows config.yaml", { skip: notHere }, async (t) => {
  const under = await start(t, "off");
  const app = makeRepository(join(under.home, "code/app"), "main");
  const client = new Client(t, under, "followed", app);
  await client.send();
  t.match(await client.send(), { project: null, branch: null, session: null });
  await under.save(under.with("name"));
  t.match(await client.sendUntil(hasProject), { project: "app", branch: "main" });
  await under.save(under.with("path"));
  t.match(await client.sendUntil(({ project }) => project !== "app"), { project: "~/code/app" });
  await under.save(under.with("off"));
  t.match(await client.sendUntil(({ project }) => project === null), { branch: null, session: null });
});

t.test(
  "a process that ends at once, or whose folder is gone, has no project",
  { skip: notHere },
  async (t) => {
    const under = await start(t, "path");
    const folder = makeRepository(join(under.home, "gone"), "main");
    // It makes a connection for each request.
    const client = new Client(t, under, "gone", folder, { connection: "close" });
    await client.send();
    rmSync(folder, { recursive: true });
    t.match(await client.send(), { project: null, branch: null, end: "complete" });
    const head = `GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1:${under.daemon.port}\r\nauthorization: Bearer ${under.token}\r\n\r\n`;
    const code = `require("net").connect(${under.daemon.port}, "127.0.0.1").write(${JSON.stringify(head)}, () => process.exit());`;
    for (let number = 0; number < 5; number += 1)
      await once(
        spawn(process.execPath, ["-e", code], { cwd: under.home, env: {}, stdio: "inherit" }),
        "exit",
      );
    t.match(await new Client(t, under, "later", under.home).sendUntil(hasProject), { project: "~" });
    t.same(
      under.log().filter(({ level }) => level === "error"),
      [],
    );
  },
);

t.test("nothing is looked up for another user", { skip: notHere || cannotBeOtherUser() }, async (t) => {
  const under = await start(t, "path");
  const code = `
    import { get } from "node:http";
    get(process.argv[1] + "/v1/models", { headers: { authorization: "Bearer " + process.argv[2] } }, (answer) =>
      answer.resume().on("end", () => console.log(answer.statusCode)));`;
  t.equal((await asOtherUser(t, code, under.url, under.token)).trim(), "403");
  await until("the refusal is recorded", () => under.ended().length > 0);
  t.match(under.ended(), [{ refusal: "other-user", project: null, branch: null, session: null }]);
});

t.test("off looks nothing up", async (t) => {
  const parts = { method: "POST", url: "/v1/chat/completions", headers: {}, rawHeaders: [] };
  const req = { socket: {} } as Parameters<typeof lookUpProject>[1];
  for (const [project, expected] of [
    ["off", 0],
    ["name", 1],
    ["path", 1],
  ] as const) {
    const text = `gateway: http://127.0.0.1:9/v1\nusage: { project: ${project} }\ntools: { codex: {} }\n`;
    const call = new Call(new RequestHead(parts, snapshotOf(text), []), systemClock);
    let lookups = 0;
    const projects = () => {
      lookups += 1;
      return null;
    };
    lookUpProject(call, req, { projects } as unknown as Parameters<typeof lookUpProject>[2]);
    t.equal(lookups, expected, project);
    t.equal(call.project, null);
  }
});
