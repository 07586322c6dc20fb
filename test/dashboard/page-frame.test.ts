import type { Command } from "commander";
import t from "tap";
import { createProgram } from "../../src/cli/program.ts";
import { REFUSALS } from "../../src/core/refusal.ts";
import type { ShownRecord } from "../../src/dashboard/api.ts";
import { spanInWords, whenInWords } from "../../src/dashboard/page/format.ts";
import { limitName, shareOf } from "../../src/dashboard/page/limits.ts";
import { type Client, Failed } from "../../src/dashboard/page/live/client.ts";
import { Live } from "../../src/dashboard/page/live/live.ts";
import { EN } from "../../src/dashboard/page/messages/en.ts";
import {
  chooseLanguage,
  createTranslate,
  filled,
  type MessageId,
} from "../../src/dashboard/page/messages/messages.ts";
import { ZH } from "../../src/dashboard/page/messages/zh.ts";
import { refusalAdvice, refusedGroups } from "../../src/dashboard/page/refusals.ts";
import { codeOf, hrefOf, routeOf } from "../../src/dashboard/page/route.ts";
import { type Store, stored } from "../../src/dashboard/page/stored.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

const IDS = Object.keys(EN) as MessageId[];
const en = createTranslate("en");
const zh = createTranslate("zh-CN");

t.test("both languages have the same messages", (t) => {
  t.same(Object.keys(ZH).sort(), [...IDS].sort());
  const names = (text: string) => [...new Set(text.match(/\{\w+\}/g) ?? [])].sort();
  const typed = (text: string) => [...new Set(text.match(/`[^`]*`/g) ?? [])].sort();
  for (const id of IDS) {
    t.same(names(ZH[id]), names(EN[id]), `${id} has the same values`);
    t.same(typed(ZH[id]), typed(EN[id]), `${id} has the same to type`);
    t.equal((EN[id].match(/`/g) ?? []).length % 2, 0, `${id} closes what it opens`);
    t.notMatch(ZH[id], /\|/, `${id} has one form in Chinese`);
    t.ok(EN[id].split("|").length <= 2, `${id} has two forms at most`);
  }
  t.end();
});

t.test("every command on the page exists", (t) => {
  const program = createProgram();
  const find = (among: readonly Command[], name: string | undefined) =>
    among.find((command) => command.name() === name || command.aliases().includes(name ?? ""));
  for (const id of IDS) {
    for (const [, line = ""] of EN[id].matchAll(/`keybearer ([^`]+)`/g)) {
      const [verb, second, ...rest] = line.split(" ");
      // Its words are held by the tests of the service.
      if (verb === "service") continue;
      const top = find(program.commands, verb);
      t.ok(top, `${id}: ${verb} is a command`);
      const below = top === undefined ? undefined : find(top.commands, second);
      const command = below ?? top;
      if (top !== undefined && top.commands.length > 0 && second !== undefined && !second.startsWith("-"))
        t.ok(below, `${id}: ${verb} ${second} is a command`);
      for (const option of [second, ...rest].filter((word) => word?.startsWith("--")))
        t.ok(
          command?.options.some(({ long }) => long === option),
          `${id}: ${verb} has ${option}`,
        );
    }
  }
  t.end();
});

t.test("the page uses the browser's first known language", (t) => {
  t.equal(chooseLanguage(["zh-CN", "en"]), "zh-CN");
  t.equal(chooseLanguage(["zh-Hant-TW"]), "zh-CN");
  t.equal(chooseLanguage(["de", "en-GB", "zh"]), "en");
  t.equal(chooseLanguage(["de-AT", "zh"]), "zh-CN");
  t.equal(chooseLanguage([]), "en");
  t.end();
});

t.test("a message is filled once, with the form for its number", (t) => {
  t.equal(en("card.config.warnings", { n: 1 }), "1 warning about config.yaml");
  t.equal(en("card.config.warnings", { n: 2 }), "2 warnings about config.yaml");
  t.equal(zh("card.config.warnings", { n: 2 }), "config.yaml 有 2 条警告");
  t.equal(filled("{a} {b}", { a: "{b}", b: "x" }), "{b} x", "a value's own braces stay");
  t.equal(filled("{constructor}", {}), "{constructor}", "only what was given is filled in");
  t.end();
});

t.test("every refusal has a text, and its next step names the tool", (t) => {
  for (const refusal of Object.keys(REFUSALS)) {
    const advice = refusalAdvice({ refusal, tool: "codex", model: "o3" });
    t.ok(advice, refusal);
    if (advice?.next)
      t.notMatch(en(advice.next, advice.values), /\{/, `${refusal}: nothing is left to fill in`);
  }
  const spend = refusalAdvice({ refusal: "spend-limited", tool: "codex", model: null });
  t.match(spend?.next && en(spend.next, spend.values), "keybearer tools lift codex --spend");
  t.equal(refusalAdvice({ refusal: "from-a-newer-daemon", tool: null, model: null }), null);
  t.equal(refusalAdvice({ refusal: "constructor", tool: null, model: null }), null);
  t.end();
});

t.test("the same refusal is shown once, with how often", (t) => {
  const record = (tool: string, refusal: string, requests = 1) =>
    ({ tool, refusal, model: null, requests }) as ShownRecord;
  const groups = refusedGroups([
    // Many that share a record.
    record("a", "loop", 110),
    record("b", "loop"),
    record("a", "loop"),
    record("a", "overloaded"),
  ]);
  t.same(
    groups.map(({ record: { tool, refusal }, times }) => [tool, refusal, times]),
    [
      ["a", "loop", 111],
      ["b", "loop", 1],
      ["a", "overloaded", 1],
    ],
  );
  t.end();
});

t.test("a limit has a name in each language, and is full with what is reserved", (t) => {
  t.equal(limitName({ limit: "spend", per: "day" }, en), "money / day");
  t.equal(limitName({ limit: "quota", per: null }, zh), "总额度");
  t.equal(shareOf({ used: 80, held: 5, most: 100 }), 0.85, "what is held counts");
  t.equal(shareOf({ used: 90, held: 20, most: 100 }), 1);
  t.end();
});

t.test("times are shown in words", (t) => {
  const now = new Date(2026, 10, 15, 14, 0).getTime();
  const at = (day: number, hour: number) => new Date(2026, 10, day, hour).getTime();
  t.equal(whenInWords(now + 720_000, now, en), "in 12 min");
  t.equal(whenInWords(at(15, 23), now, en), "23:00");
  t.equal(whenInWords(at(16, 0), now, en), "11-16 00:00");
  t.equal(whenInWords(now - 1, now, en), "now");
  t.equal(spanInWords(59_999, en), "59 s");
  t.equal(spanInWords(47 * 3_600_000, zh), "47 小时");
  t.equal(spanInWords(-5, en), "0 s", "a clock that was set back");
  t.end();
});

t.test("the fragment of the address selects the page", (t) => {
  t.equal(routeOf("").page, "overview");
  t.equal(routeOf("#/constructor").page, "overview");
  t.equal(routeOf("#/now").page, "overview", "an old bookmark");
  const route = routeOf("#/usage?by=model&tool=a%26b");
  t.equal(route.page, "usage");
  t.equal(route.query.get("tool"), "a&b");
  t.same(routeOf(hrefOf("usage", route.query)), route, "there and back");
  t.equal(codeOf("#code=abc"), "abc");
  t.equal(codeOf("#/overview"), null);
  t.equal(codeOf("#code="), null);
  t.end();
});

function storage(): Store {
  const held = new Map<string, string>();
  return {
    getItem: (name: string) => held.get(name) ?? null,
    setItem: (name: string, value: string) => void held.set(name, value),
    removeItem: (name: string) => void held.delete(name),
  };
}

/** A daemon's side of the port: what its event streams say, one after the other. */
function portOf(
  streams: ((letGo: AbortSignal) => Promise<ReadableStream<Uint8Array>>)[],
  good = "good",
): Client {
  return {
    open: async ({ code }: { code: string }) => {
      if (code !== good) throw new Failed("session", "used", 401);
      return { token: "fresh", version: "1" };
    },
    events: (letGo: AbortSignal) => streams.shift()?.(letGo) ?? Promise.reject(new Failed("gone", "nobody")),
  } as unknown as Client;
}

const saying = (text: string) => async () => new Blob([text]).stream() as ReadableStream<Uint8Array>;
const NOW_LINE = '{"now":{"at":1}}\n';

t.test("an event that comes in pieces is read whole", async (t) => {
  const session = stored(storage, "session");
  const bytes = new TextEncoder().encode(`${NOW_LINE}{"now":{"at":2,"of":"ré"}}\n{"no`);
  const pieces = async () => ReadableStream.from([...bytes].map((byte) => Uint8Array.of(byte)));
  const live = new Live({ client: portOf([pieces]), session, now: Date.now });
  const states: unknown[] = [];
  live.subscribe(() => states.push(live.state().now));
  await live.open("good");
  await until("the second came", () => states.length > 1);
  t.same(states.slice(0, 2), [{ at: 1 }, { at: 2, of: "ré" }]);
  live.sessionOver();
});

t.test("a browser without storage still holds a session", (t) => {
  const session = stored(() => {
    throw new Error("forbidden");
  }, "session");
  session.write("a");
  t.equal(session.read(), "a");
  session.write(null);
  t.equal(session.read(), null);
  t.end();
});

t.test("without a code and a session, the page sends no request", async (t) => {
  const live = new Live({ client: portOf([]), session: stored(storage, "session"), now: Date.now });
  await live.open(null);
  t.same(live.state().link, { state: "no-session", kind: "never", problem: null });
});

t.test("a used code neither ends nor opens a session", async (t) => {
  const session = stored(storage, "session");
  const live = new Live({ client: portOf([]), session, now: Date.now });
  await live.open("used");
  t.same(live.state().link, { state: "no-session", kind: "code-refused", problem: null });
  session.write("held");
  const other = new Live({ client: portOf([saying(NOW_LINE)]), session, now: Date.now });
  await other.open("used");
  await until("the stream is read", () => other.state().now !== null);
  t.equal(session.read(), "held");
  other.sessionOver();
});

t.test("the page follows again after the daemon was gone, and stops when the session is over", async (t) => {
  const session = stored(storage, "session");
  const client = portOf([
    saying(NOW_LINE),
    () => Promise.reject(new Failed("gone", "refused")),
    saying('{"now":{"at":2}}\n'),
    () => Promise.reject(new Failed("session", "over", 401)),
  ]);
  const live = new Live({ client, session, now: Date.now });
  const states: string[] = [];
  live.subscribe(() => states.push(live.state().link.state));
  await live.open("good");
  await until("the session is over", () => live.state().link.state === "no-session");
  t.same(states, ["live", "gone", "live", "gone", "no-session"]);
  t.same(live.state().link, { state: "no-session", kind: "over", problem: null });
  t.equal(session.read(), null, "a token that is good for nothing is not kept");
  t.match(live.state().now, { at: 2 }, "the last that was heard stays");
});

/** Stays open after what it says, until it is let go of. */
const holding = (text: string) => async (letGo: AbortSignal) =>
  new ReadableStream<Uint8Array>({
    start(held) {
      held.enqueue(new TextEncoder().encode(text));
      letGo.addEventListener("abort", () => held.error(letGo.reason));
    },
  });

t.test("a refusal is shown in the daemon's words, and the request is repeated", async (t) => {
  const session = stored(storage, "session");
  session.write("held");
  const full = "16 others are following already: end one of them, then try again";
  const client = portOf([() => Promise.reject(new Failed("refused", full, 429)), holding(NOW_LINE)]);
  const live = new Live({ client, session, now: Date.now });
  const links: unknown[] = [];
  live.subscribe(() => links.push(live.state().link));
  await live.open(null);
  await until("it is let in", () => live.state().link.state === "live");
  t.same(links, [{ state: "refused", problem: full }, { state: "live" }], "the daemon is not shown as gone");
  live.sessionOver();
});

t.test("a code that is refused for another reason is shown with the reason", async (t) => {
  const problem = "another user of this machine cannot look here";
  const client = { open: () => Promise.reject(new Failed("refused", problem, 403)) } as unknown as Client;
  const live = new Live({ client, session: stored(storage, "session"), now: Date.now });
  await live.open("good");
  t.same(live.state().link, { state: "no-session", kind: "code-refused", problem });
});

t.test("after a gap in the stream, every request is repeated", async (t) => {
  const session = stored(storage, "session");
  session.write("held");
  const client = portOf([saying(NOW_LINE), holding(NOW_LINE)]);
  const live = new Live({ client, session, now: Date.now });
  const told: string[] = [];
  live.subscribe(() => told.push(live.state().link.state));
  const stop = live.onMissed(() => told.push("missed"));
  await live.open(null);
  await until("it is back", () => told.includes("missed"));
  t.same(told, ["live", "gone", "live", "missed"], "once it is back, and not at the first time");
  stop();
  live.sessionOver();
});
