import t, { type Test } from "tap";
import { followTail } from "../../src/control/client.ts";
import { command } from "../doubles/command.ts";
import { freshToken } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { heldWall, type Journey, startLimited } from "../doubles/limited-journey.ts";
import { until } from "../doubles/until.ts";
import { faultsIn, indexFaults, recordsIn } from "../doubles/usage-file.ts";

/** A program that is refused in a loop fills neither log nor disk, and hides nothing. */

const FLOOD = 130;
/** A record and a log line of their own. */
const OWN = 20;

/** Sends it so often, one after the other. Returns the ids that the answers named. */
async function flood({ call }: Journey, token?: string, times = FLOOD): Promise<string[]> {
  const ids: string[] = [];
  for (let n = 0; n < times; n += 1) {
    const { headers } = await call(token === undefined ? {} : { token });
    ids.push(headers.get("x-keybearer-request-id") ?? "");
  }
  return ids;
}

async function totals(
  t: Test,
  home: string,
): Promise<{ requests: number; refused: number; client_left: number }> {
  const { code, stdout, stderr } = await command(t, home, ["usage", "--json"]);
  t.equal(code, 0, stderr);
  return JSON.parse(stdout).total;
}

longTest(t, "twenty refusals of a kind in a minute have their own lines, and all are counted", async (t) => {
  const clock = heldWall();
  const it = await startLimited(t, "limits: { requests: 30/day }, quota: $1", { clock });
  const sent = await flood(it, undefined, 30);
  await flood(it);
  const strangers = await flood(it, freshToken().token);
  await it.quiet();
  const records = () => recordsIn(it.paths.usage);
  const own = (refusal: string | null) =>
    records().filter((record) => record.refusal === refusal && record.last_id === null).length;
  const logged = (refusal: string) =>
    it.log().filter((line) => line.refusal === refusal && "id" in line).length;
  await until("their records are there", () => own("rate-limited") + own("token-unknown") === 2 * OWN);
  t.equal(own(null), 30, "what reached the gateway is never merged");
  t.equal(logged("rate-limited"), OWN);
  t.equal(logged("token-unknown"), OWN);

  t.match(await totals(t, it.home), { requests: 30 + 2 * FLOOD, refused: 2 * FLOOD });
  const show = (id: string | undefined, ...more: string[]) =>
    command(t, it.home, ["usage", "show", id ?? "", ...more]);
  t.match(JSON.parse((await show(strangers[0], "--json")).stdout), {
    id: strangers[0],
    requests: 1,
    last_id: null,
  });
  const first = await show(strangers[OWN]);
  t.match(first, { code: 0, stderr: "" });
  t.match(
    first.stdout,
    new RegExp(`record +${strangers[OWN]}\nlast id +${strangers.at(-1)}\nrequests +110\n`),
  );
  t.match(first.stdout, /the first 20 of this kind in the minute have their own records/);
  t.match(await show(strangers.at(-1)), { code: 0, stdout: first.stdout, stderr: "" });
  const between = await show(strangers[OWN + 30]);
  t.equal(between.code, 1, "all were in the same minute");
  t.match(
    between.stderr,
    /it has no record of its own:\n.* 110 more requests +refused: .*\n.* 110 more requests/,
  );
  t.match((await show(sent[29], "--json")).stdout, /"end": "complete"/);
  t.match(await show("01ARZ3NDEKTSV4RRFFQ69G5FAV"), {
    code: 1,
    stderr: /refused beyond the first 20 of a kind in a minute share a record/,
  });

  const live = followTail(it.paths.socket);
  t.match((await live.next()).value, { following: true });
  clock.pass(60_000);
  await until("the log says how many more", () => it.logText().includes("110 more requests were refused"));
  const ended = it.log().filter(({ msg }) => String(msg).includes("110 more requests were refused"));
  t.strictSame(
    ended.map(({ tool, refusal }) => [tool, refusal]),
    [
      ["codex", "rate-limited"],
      [null, "token-unknown"],
    ],
  );
  t.match((await live.next()).value, { record: { tool: "codex", requests: 110 } }, "for usage tail, too");
  t.match((await live.next()).value, { record: { tool: null, id: strangers[OWN], requests: 110 } });
  const later = await flood(it, freshToken().token, OWN + 1);
  const alone = await show(later[OWN]);
  t.match(alone, { code: 0, stdout: /requests +1\n/ });

  // Exact after a restart, whatever the refusals left behind.
  const used = await it.level("requests", "day");
  await it.daemon.stop(0);
  const again = await startLimited(t, "limits: { requests: 30/day }, quota: $1", {
    clock,
    home: it.home,
    gateway: it.gateway,
    credentials: it,
  });
  t.strictSame(await again.level("requests", "day"), used);
  t.equal((await again.call()).refusal, "rate-limited");
  t.equal(again.gateway.arrivals.length, 30);
  const all = { requests: 30 + 2 * FLOOD + OWN + 2, refused: 2 * FLOOD + OWN + 2 };
  t.match(await totals(t, it.home), all);
  t.equal((await command(t, it.home, ["usage", "rebuild"])).code, 0);
  t.match(await totals(t, it.home), all);
  const { stdout } = await command(t, it.home, ["usage", "export", "--json"]);
  const exported: { requests: number }[] = JSON.parse(stdout);
  t.equal(
    exported.reduce((sum, { requests }) => sum + requests, 0),
    all.requests,
  );
  t.strictSame(faultsIn(it.paths.usage), []);
  t.strictSame(indexFaults(it.paths.index), []);
});

t.test("clients that leave while they wait for a limit do not fill the disk either", async (t) => {
  const it = await startLimited(t, "limits: { concurrent: 1, wait: 1m }", { clock: heldWall() });
  const held = it.call({ play: "hang" });
  await until("one is there", () => it.gateway.running() === 1);
  const leave = new AbortController();
  const waiting = Array.from({ length: OWN + 9 }, () =>
    it.call({ signal: leave.signal }).catch(() => "left"),
  );
  await until("the others wait", async () => (await it.codex()).waiting === waiting.length);
  leave.abort();
  t.strictSame(await Promise.all(waiting), Array(waiting.length).fill("left"));
  await until("they are gone", async () => (await it.codex()).waiting === 0);
  it.gateway.release();
  t.equal((await held).status, 200);
  t.equal(
    recordsIn(it.paths.usage).filter(({ end, last_id }) => end === "client-left" && last_id === null).length,
    OWN,
  );
  t.match(await totals(t, it.home), { requests: OWN + 10, client_left: OWN + 9, refused: 0 });
  t.strictSame(indexFaults(it.paths.index), []);
});
