import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import t, { type Test } from "tap";
import { askDaemon } from "../../src/control/client.ts";
import type { EventsAnswer } from "../../src/control/routes.ts";
import type { SessionStatus } from "../../src/control/session-status.ts";
import type { ListedEvent } from "../../src/events/event.ts";
import { command, newHome, saveConfig, startServing } from "../doubles/command.ts";
import { canaryKey, type DaemonUnderTest, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { freePort } from "../doubles/listen.ts";
import { movableClock } from "../doubles/movable-clock.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { hello, newKey, post, startSandbox } from "../doubles/sandbox.ts";
import { scan } from "../doubles/secret-scan.ts";
import { mountSmallDisk } from "../doubles/small-disk.ts";
import { until } from "../doubles/until.ts";

async function eventsOf({ paths }: Pick<DaemonUnderTest, "paths">): Promise<readonly ListedEvent[]> {
  const asked = await askDaemon<EventsAnswer>(paths, "GET", "/events");
  if (!asked.ok) throw new Error(asked.problem);
  return asked.value.events;
}

const names = (events: readonly ListedEvent[]) =>
  events.map(({ kind, state, subject }) => `${kind} ${state}: ${subject}`);

/** Waits until these are the events. */
async function reports(t: Test, under: Pick<DaemonUnderTest, "paths">, ...expected: readonly string[]) {
  let found: readonly ListedEvent[] = [];
  await until(`event ${expected.at(-1)}`, async () => {
    found = await eventsOf(under);
    return found.length >= expected.length;
  });
  t.same(names(found), expected);
  return found;
}

async function sessionOf({ paths }: DaemonUnderTest): Promise<string> {
  const asked = await askDaemon<readonly SessionStatus[]>(paths, "GET", "/sessions");
  return asked.ok ? `session ${asked.value[0]?.session}` : asked.problem;
}

// Together, because each waits for looks that come every two seconds.
t.test("what a daemon reports", async (t) => {
  t.jobs = 5;
  t.test(
    "a gateway that is stopped and comes back, and a limit at 80 and 100 %",
    { buffered: true },
    async (t) => {
      const port = await freePort();
      const { token, hash } = freshToken();
      const key = `sk-canary-${hash.slice(-30)}`;
      const clock = movableClock();
      const config = (more: string) => `gateways:
  main: { base_url: http://127.0.0.1:${port}/v1, timeouts: { retry_connect: 0s } }
tools:
  codex: { key: ${key}, token: "${hash}"${more} }
`;
      const under = await startUnderTest(t, config(""), { clock });
      const ask = () => post(`${under.url}/v1/chat/completions`, token, hello());
      t.match((await ask()).text, "nothing listens there");
      clock.pass(61_000);
      t.same(await eventsOf(under), [], "one failure is not an outage");
      t.match((await ask()).text, "nothing listens there");
      const [down] = await reports(t, under, "gateway-down begun: gateway main");
      t.match(down, { severity: "warning", active: true, next: "keybearer doctor" });
      t.match(down?.message, /gateway main has failed for 6\d s: nothing listens there/);
      t.match(
        (await command(t, under.home, ["status"])).stdout,
        /reported, and still so .*\n {2}since .*gateway main has failed/,
      );
      const ended: (() => void)[] = [];
      const answers = await startRawGateway(
        t,
        (call) => {
          call.socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{");
          if (answers.calls.length === 1) ended.push(() => call.socket.write("}"));
          else call.socket.write("}");
        },
        { port },
      );
      const slow = ask();
      const gateway = ["gateway-down begun: gateway main", "gateway-down ended: gateway main"];
      await reports(t, under, ...gateway);
      t.equal(ended.length, 1, "the head of a response is enough");
      for (const end of ended) end();
      t.equal((await slow).status, 200);
      t.same((await under.daemon.status()).events, []);

      await under.save(config(", limits: { requests: 5/day }"));
      // The failed one counts for nothing: it was not sent.
      for (let n = 0; n < 3; n += 1) t.equal((await ask()).status, 200);
      const nearly = await reports(t, under, ...gateway, "limit begun: tool codex");
      t.match(
        nearly[2]?.message,
        "tool codex has used 80 % of its limit requests/day: 4 of 5, resets tomorrow",
      );
      t.equal((await ask()).status, 200);
      const full = await reports(t, under, ...gateway, "limit begun: tool codex", "limit begun: tool codex");
      t.match(full[3], {
        message: /used up its limit requests\/day: 5 of 5/,
        next: "keybearer tools lift codex --requests",
      });

      await under.save(config(", limits: { requests: 10/day }"));
      await under.daemon.reload();
      for (let n = 0; n < 3; n += 1) t.equal((await ask()).status, 200);
      const limits = Array(3).fill("limit begun: tool codex");
      const raised = await reports(t, under, ...gateway, ...limits);
      t.match(raised[4]?.message, "has used 80 % of its limit requests/day: 8 of 10");

      const cli = await command(t, under.home, ["events"]);
      const json = await command(t, under.home, ["events", "--json", "--all"]);
      t.equal(JSON.parse(json.stdout).length, 5);
      t.match(cli.stdout, /warning {3}gateway main .* → keybearer doctor/s);
      t.match(cli.stdout, /ended {5}gateway main {2}gateway main answers again/);
      const places = {
        "events.jsonl": readFileSync(under.paths.events, "utf8"),
        "the log": under.logText(),
        "keybearer events": cli.stdout + json.stdout,
      };
      t.same(scan(places, { key, token }), []);
      t.notMatch(JSON.stringify(places), /127\.0\.0\.1:\d+\/v1/, "no whole address");
    },
  );

  t.test("a gateway that cuts every stream after its head", { buffered: true }, async (t) => {
    let isCutting = true;
    const { baseUrl } = await startRawGateway(t, (call) => {
      call.socket.write(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9\r\n\r\ndata: ",
      );
      if (isCutting) call.socket.destroySoon();
      else call.socket.write("1\n\n");
    });
    const { token, hash } = freshToken();
    const clock = movableClock();
    const under = await startUnderTest(
      t,
      `gateway: ${baseUrl}\ntools: { codex: { key: ${canaryKey()}, token: "${hash}" } }\n`,
      { clock },
    );
    const ask = () => post(`${under.url}/v1/chat/completions`, token, hello());
    await t.rejects(ask());
    await until("it is known to have failed", () => under.ended().length === 1);
    clock.pass(61_000);
    await t.rejects(ask());
    const [down] = await reports(t, under, "gateway-down begun: gateway main");
    t.match(down?.message, /^gateway main has failed for 6\d s: /);
    isCutting = false;
    t.equal((await ask()).status, 200);
    await reports(t, under, "gateway-down begun: gateway main", "gateway-down ended: gateway main");
  });

  t.test("a save that is rejected, and the one that is accepted after it", { buffered: true }, async (t) => {
    const { hash } = freshToken();
    const good = `gateway: http://127.0.0.1:9/v1\ntools: { codex: { key: env:NONE, token: "${hash}" } }\n`;
    const under = await startUnderTest(t, good);
    const secret = "sk-canary-0123456789abcdef0123";
    await under.save(`${good}nonsense: ${secret}\n`);
    const [rejected] = await reports(t, under, "config-rejected begun: config.yaml");
    t.match(rejected, {
      next: "keybearer check",
      message: /not accepted: it has a problem in line 4; the last valid/,
    });
    await under.save(good);
    const both = await reports(
      t,
      under,
      "config-rejected begun: config.yaml",
      "config-rejected ended: config.yaml",
    );
    t.notOk(JSON.stringify(both).includes("canary"));
  });

  t.test(
    "a key that its gateway refuses and accepts again, and the limit of a session",
    { buffered: true },
    async (t) => {
      let status = 401;
      const body = '{"error":{"message":"Invalid token","type":"new_api_error"}}';
      const { baseUrl } = await startRawGateway(t, (call) => {
        const head = `HTTP/1.1 ${status} X\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`;
        call.socket.write(`${head}\r\n\r\n${body}`);
      });
      const { token, hash } = freshToken();
      const key = canaryKey();
      const under = await startUnderTest(
        t,
        `gateway: ${baseUrl}\ntools: { codex: { key: ${key}, token: "${hash}", limits: { session: { requests: 5 } } } }\n`,
      );
      const ask = () => post(`${under.url}/v1/chat/completions`, token, hello());
      await ask();
      const [refused] = await reports(t, under, "key-refused begun: tool codex");
      t.match(refused, { message: /^the gateway refuses the key of tool codex: /, active: true, next: /\S/ });
      status = 200;
      t.equal((await ask()).status, 200);
      const both = ["key-refused begun: tool codex", "key-refused ended: tool codex"];
      await reports(t, under, ...both);
      for (let n = 0; n < 2; n += 1) await ask();
      const nearly = await reports(t, under, ...both, "limit begun: tool codex");
      t.match(
        nearly[2]?.message,
        `${await sessionOf(under)} of tool codex has used 80 % of its limit on requests: 4 of 5`,
      );
      await ask();
      const events = await reports(t, under, ...both, ...Array(2).fill("limit begun: tool codex"));
      t.match(events[3], {
        message: /used up its limit on requests: 5 of 5/,
        next: /^keybearer sessions lift \S+ --tool codex --requests$/,
      });
      t.same(scan({ events: JSON.stringify(events), log: under.logText() }, { key, token }), []);
    },
  );

  t.test(
    "a full disk: the event is sent all the same, and written when there is room",
    { buffered: true },
    async (t) => {
      const home = await newHome(t);
      await mkdir(join(home, "state"), { mode: 0o700 });
      const disk = mountSmallDisk(t, 16, join(home, "state"));
      if (disk === null) return;
      const sandbox = await startSandbox(t);
      const { token, hash } = freshToken();
      const under = await startUnderTest(
        t,
        `gateway: ${sandbox.baseUrl}\ntools: { codex: { key: ${newKey(sandbox).text}, token: "${hash}" } }\n`,
        { home },
      );
      const ask = () => post(`${under.url}/v1/chat/completions`, token, hello());
      t.equal((await ask()).status, 200);
      disk.fill();
      await until("the disk is full for the usage log, too", async () => (await ask()).status === 503);
      const [full] = await reports(t, under, "log-unavailable begun: usage log");
      t.match(full, { message: /requests are refused: /, next: "keybearer status", active: true });
      t.notMatch(readFileSync(under.paths.events, { encoding: "utf8", flag: "a+" }), "\n");
      disk.free();
      const expected = ["log-unavailable begun: usage log", "log-unavailable ended: usage log"];
      await reports(t, under, ...expected);
      await until("both are in the file", () => {
        const lines = readFileSync(under.paths.events, "utf8").split("\n");
        return lines.length === 3 && lines.every((line) => line === "" || line.endsWith("}"));
      });
    },
  );

  t.test(
    "a held tool is known after kill -9, is not reported anew, and ends",
    { buffered: true },
    async (t) => {
      const sandbox = await startSandbox(t);
      const elsewhere = await startSandbox(t);
      const key = newKey(sandbox);
      const { hash } = freshToken();
      const home = await newHome(t);
      const save = (url: string) =>
        saveConfig(
          home,
          `listen: localhost:0\ngateway: ${url}\ntools: { codex: { key: ${key.text}, token: "${hash}" } }\n`,
        );
      await save(sandbox.baseUrl);
      const paths = {
        socket: join(home, "run", "control.sock"),
        config: join(home, "config.yaml"),
        explicit: false,
      };
      const first = await startServing(t, home);
      await save(elsewhere.baseUrl);
      const held = "needs-trust begun: tool codex";
      const [event] = await reports(t, { paths } as DaemonUnderTest, held);
      t.match(event, {
        message: /^the key of tool codex is held/,
        next: "keybearer trust codex",
        active: true,
      });
      first.child.kill("SIGKILL");
      await first.ended;

      const offline = await command(t, home, ["events"]);
      t.match(
        offline.stdout,
        /warning {3}tool codex .*still so.*→ keybearer trust codex/s,
        "without a daemon",
      );
      t.match(
        (await command(t, home, ["events", "mute", "tool", "codex", "--for", "8h"])).stderr,
        "not running",
      );

      const second = await startServing(t, home);
      const follower = command(t, home, ["events", "mute", "tool", "codex", "--for", "8h"]);
      t.match(
        (await follower).stdout,
        /events of tool codex are not sent until .*keybearer events lists them/,
      );
      const muted = await command(t, home, ["events"]);
      t.match(muted.stdout, "keybearer events mute tool codex --off");
      t.match((await command(t, home, ["status"])).stdout, /muted tool codex until/);
      await save(sandbox.baseUrl);
      const events = await reports(t, { paths } as DaemonUnderTest, held, "needs-trust ended: tool codex");
      t.equal(events[1]?.muted, true);
      second.child.kill("SIGTERM");
      await second.ended;
    },
  );
});
