import { existsSync, readdirSync, readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { join } from "node:path";
import t, { type Test } from "tap";
import { command, startServing } from "../doubles/command.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";
import { LONG, longTest } from "../doubles/effort.ts";
import { liveKeys, prepareHome, ROTATE, readConfig } from "../doubles/key-journey.ts";
import { hello, post, TestGateway } from "../doubles/sandbox.ts";
import { scan } from "../doubles/secret-scan.ts";
import { until } from "../doubles/until.ts";

// lifecycle/crash.test.ts ends a change at each of its effects, in one process. Here a process is killed.

/** When the daemon is killed. */
interface Kill {
  /** At this call to the console, counted from the start of the change, or at the first with this method. */
  readonly call: number | "POST" | "DELETE";
  /** The call is answered before. */
  readonly isAnswered: boolean;
}

/** A gateway whose console kills the daemon. */
class DeadlyGateway extends TestGateway {
  #kill: Kill | null = null;
  #calls = 0;
  #onKill = (): void => {};
  /** The call that killed, such as `POST /api/v1/keys`; null: none did. */
  killedAt: string | null = null;

  killAt(kill: Kill, onKill: () => void): void {
    this.#kill = kill;
    this.#onKill = onKill;
  }

  spare(): void {
    this.#kill = null;
  }

  protected override async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const isKeyCall = /^\/api\/v1\/keys/.test(request.url ?? "") || request.url === "/v1/models";
    if (this.#kill === null || !isKeyCall) return super.serve(request, response);
    this.#calls += 1;
    const { call, isAnswered } = this.#kill;
    if (call !== this.#calls && call !== request.method) return super.serve(request, response);
    this.#kill = null;
    this.killedAt = `${request.method} ${request.url}`;
    if (isAnswered) {
      const served = super.serve(request, response);
      await new Promise((resolve) => response.once("finish", resolve));
      this.#onKill();
      return served;
    }
    this.#onKill();
    response.destroy();
  }
}

async function startDeadly(t: Test): Promise<DeadlyGateway> {
  const gateway = new DeadlyGateway({}, (error) => t.fail(String(error)));
  await gateway.start();
  t.teardown(() => gateway.stop());
  return gateway;
}

function everyCall(calls: number, answered: readonly boolean[]): Kill[] {
  return answered.flatMap((isAnswered) =>
    Array.from({ length: calls }, (_, at) => ({ call: at + 1, isAnswered })),
  );
}

const ROTATIONS: readonly Kill[] = LONG
  ? everyCall(12, [false, true])
  : [
      { call: "POST", isAnswered: true },
      { call: "DELETE", isAnswered: false },
    ];

t.test("a daemon that is killed during a rotation finishes it at its next start", async (t) => {
  let kills = 0;
  for (const kill of ROTATIONS) {
    const gateway = await startDeadly(t);
    const { home, token, first } = await prepareHome(t, gateway);
    const daemon = await startServing(t, home);
    await until("the console was read", () =>
      gateway.requests().some(({ path }) => path.startsWith("/api/v1/usage")),
    );
    gateway.killAt(kill, () => daemon.child.kill("SIGKILL"));
    await command(t, home, ROTATE);
    gateway.spare();
    if (gateway.killedAt !== null) kills += 1;
    daemon.child.kill("SIGKILL");
    await daemon.ended;
    const again = await serveIn(t, home);
    await finished(home);
    const what = `killed at ${gateway.killedAt}${kill.isAnswered ? ", after its answer" : ""}`;
    const live = liveKeys(gateway);
    t.equal(live.length, 1, `${what}: the console has one key (${live.join(", ")})`);
    const answer = await post(`${again.url}/v1/chat/completions`, token, hello());
    t.equal(answer.status, 200, `${what}: it works`);
    if (!readConfig(home).includes(first)) {
      const key = storedKey(home);
      t.strictSame(readdirSync(join(home, "keys")).length, 1, `${what}: one key is stored`);
      t.strictSame(
        scan({ intents: intentsOf(home) }, { key, first }),
        [],
        `${what}: no key is in the intents`,
      );
      const old = await post(`${gateway.baseUrl}/chat/completions`, first, hello());
      t.equal(old.status, 401, `${what}: the old key is dead`);
    }
    await again.daemon.stop(0);
  }
  t.ok(kills >= ROTATIONS.length / 2, `the daemon was killed ${kills} times`);
});

const CREATIONS: readonly Kill[] = LONG ? everyCall(8, [true]) : [{ call: "POST", isAnswered: true }];

longTest(
  t,
  "a daemon that is killed while it makes a tool's first key finishes it at its next start",
  async (t) => {
    let made = 0;
    for (const kill of CREATIONS) {
      const gateway = await startDeadly(t);
      const { home } = await prepareHome(t, gateway);
      const daemon = await startServing(t, home);
      gateway.killAt(kill, () => daemon.child.kill("SIGKILL"));
      const added = await command(t, home, [
        ...["tools", "add", "zed", "--create", "--group", "default", "--store", "file", "--yes"],
      ]);
      gateway.spare();
      daemon.child.kill("SIGKILL");
      await daemon.ended;
      const again = await serveIn(t, home);
      await finished(home);
      const what = `killed at ${gateway.killedAt}`;
      const isAdded = /^ {2}zed:/m.test(readConfig(home));
      const isMade = liveKeys(gateway).some((name) => name.startsWith("zed-"));
      t.ok(isAdded || !isMade, `${what}: no key is without its tool`);
      if (isMade) {
        made += 1;
        const { status } = await post(`${again.url}/v1/chat/completions`, added.stdout.trim(), hello());
        t.equal(status, 200, `${what}: the tool works with the token that was printed`);
      }
      await again.daemon.stop(0);
    }
    t.ok(made > 0, `${made} keys were made`);
  },
);

function storedKey(home: string): string {
  const [, path = ""] = /^ {4}key: file:(.*)$/m.exec(readConfig(home)) ?? [];
  return readFileSync(path.replace(/^~/, home), "utf8").trim();
}

/** Waits until no change of a key is unfinished. */
async function finished(home: string): Promise<void> {
  await until("the change is finished", () => !intentsOf(home).includes('"step"'));
}

function intentsOf(home: string): string {
  const file = join(home, "state", "key-changes.json");
  return existsSync(file) ? readFileSync(file, "utf8") : "";
}
