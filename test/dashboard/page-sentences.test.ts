import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { ToolStatus } from "../../src/control/tool-status.ts";
import { createTranslate } from "../../src/dashboard/page/messages/messages.ts";
import {
  blindSpotInWords,
  commandIn,
  eventInWords,
  gatewayProblem,
  reasonInWords,
  subjectInWords,
  toolProblem,
} from "../../src/dashboard/page/sentences.ts";
import { findOccurrences, nameOf, type Observed, otherModelAnswered } from "../../src/events/conditions.ts";
import { type ListedEvent, type Occurrence, SENTENCE_CODES } from "../../src/events/event.ts";
import { Events } from "../../src/events/events.ts";
import { findEndings, findUsedLimits } from "../../src/events/moments.ts";
import { unusualHour } from "../../src/events/spending.ts";
import { BLIND_SPOTS } from "../../src/mirror/report/notable.ts";
import type { Alarm } from "../../src/mirror/report/shape.ts";
import { REASONS, reasonWith } from "../../src/mirror/verdict.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { quietLog } from "../doubles/quiet-log.ts";

const NOW = 1_800_000_000_000;
const HOUR = 3_600_000;
const en = createTranslate("en");
const zh = createTranslate("zh-CN");

const ALARM: Alarm = {
  gateway: "main",
  key: "…a1b2",
  certain: true,
  reason: null,
  tools: ["codex"],
  count: 3,
  models: [],
  billed_microdollars: 1,
  first_at: NOW,
  last_at: NOW,
  ips: [],
  replaced: false,
};

/** Everything that can last does. */
const TROUBLED: Observed = {
  now: NOW,
  tools: [
    { name: "codex", key: "held", refused: null },
    {
      name: "chat",
      key: "refused",
      refused: {
        problem: "deleted key",
        cause: "key-deleted",
        next: "make a new one; then: keybearer tools rotate chat",
      },
    },
  ],
  gateways: [
    { name: "main", state: "failing", failedForMs: HOUR, problem: "nothing listens there (ECONNREFUSED)" },
    { name: "spare", state: "failing", failedForMs: HOUR, problem: "the answer was cut" },
    { name: "removed", state: "failing", failedForMs: HOUR, problem: null },
  ],
  logProblem: "ENOSPC",
  rejected: { count: 2, line: 7, check: "keybearer check" },
  consoles: [
    {
      gateway: "main",
      state: "blind",
      blindSince: NOW - HOUR,
      why: "the console is down",
      next: null,
      alarms: [
        ALARM,
        { ...ALARM, key: "…c3d4", tools: [] },
        { ...ALARM, key: "…e5f6", certain: false },
        { ...ALARM, key: "…0718", certain: false, tools: [] },
      ],
    },
  ],
};

const SOUND: Observed = {
  now: NOW,
  tools: [
    { name: "codex", key: "accepted", refused: null },
    { name: "chat", key: "accepted", refused: null },
  ],
  gateways: [
    { name: "main", state: "reachable", failedForMs: 0, problem: null },
    { name: "spare", state: "unknown", failedForMs: 0, problem: null },
  ],
  logProblem: null,
  rejected: null,
  consoles: [{ gateway: "main", state: "read", blindSince: null, why: null, next: null, alarms: [] }],
};

function happening(): Occurrence[] {
  const level = { grant: null, estimated: 0, held: 0, extra: 0, used: 4_000_000, max: 5_000_000 };
  const session = {
    ...{ id: "3f2a91c0", requests: 9, tokens: 0, spend: 0, begun: NOW, last: NOW, inFlight: 0 },
    ...{ extra: { requests: 0, tokens: 0, spend: 0 }, isStopped: false, isFull: false },
  };
  const used = findUsedLimits(
    [
      {
        tool: "codex",
        levels: [
          { ...level, limit: { kind: "spend", per: "day" }, window: { start: NOW - HOUR, end: NOW + HOUR } },
          { ...level, limit: { kind: "quota" }, window: null },
        ],
        sessions: [{ session, limits: [{ kind: "requests", used: 9, held: 0, max: 10, extra: 0 }] }],
      },
    ],
    NOW,
    () => false,
  );
  const endings = (["tool-expires", "key-expires", "login-expires"] as const).flatMap((code) =>
    findEndings(
      [
        {
          subject: "tool codex",
          what: code,
          at: NOW + HOUR,
          next: null,
          said: { code, values: { name: "codex", ends_at: NOW + HOUR } },
        },
      ],
      NOW,
    ),
  );
  const spending = unusualHour("codex", 9_000_000, 1_000_000, NOW);
  const other = otherModelAnswered({ tool: "codex", asked: "gpt-5.1", answered: "gpt-4.1" });
  return [...used, ...endings, ...(spending === null ? [] : [spending]), other];
}

/** What the page gets: stored, and read again by another process. */
function listed(t: Test): ListedEvent[] {
  const file = join(mkdtempSync(join(tmpdir(), "kb-events-")), "events.jsonl");
  const deps = { file, clock: heldClock(), log: quietLog() };
  const events = new Events(deps);
  const { begun, holding } = findOccurrences({ lasting: [], seen: new Set() }, TROUBLED);
  for (const one of [...begun, ...happening()]) t.ok(events.report(one), one.message);
  const before = { lasting: events.lasting(), seen: new Set(holding.map(nameOf)) };
  for (const { kind, subject, message, said } of findOccurrences(before, SOUND).ended)
    events.end(kind, subject, message, said);
  return new Events(deps).newest(100);
}

t.test("every event is said in the reader's language, also after a restart", async (t) => {
  const events = listed(t);
  const codes = new Set(events.map(({ said }) => said?.code));
  t.same(
    SENTENCE_CODES.filter((code) => !codes.has(code)),
    [],
  );
  for (const event of events)
    for (const translate of [en, zh]) {
      const { text } = eventInWords(event, NOW, translate);
      t.notMatch(text, /[{}]|undefined|NaN/);
      if (translate === zh) t.match(text, /\p{Script=Han}/u, event.message);
    }
  const words = (code: string) => {
    const event = events.find(({ said }) => said?.code === code);
    return event === undefined ? null : eventInWords(event, NOW, zh);
  };
  t.match(words("key-refused"), { text: /密钥/, next: /: keybearer tools rotate chat$/ });
  t.equal(commandIn("make a new one; then: keybearer tools rotate chat"), "keybearer tools rotate chat");
  t.equal(commandIn("keybearer doctor"), "keybearer doctor");
  t.equal(commandIn("look at keybearer.log"), null);
  t.match(words("gateway-down"), { text: /那里没有程序在监听 \(ECONNREFUSED\)/, next: "keybearer doctor" });
  t.match(words("limit"), { text: /金额\/天.*80%.*\$4\.00.*\$5\.00/ });
});

t.test("an event of another version has the daemon's own sentence", async (t) => {
  const [event] = listed(t);
  if (event === undefined) throw new Error("there is an event");
  const { said: _, ...old } = event;
  t.match(eventInWords(old, NOW, zh), { text: event.message, next: event.next });
  t.equal(subjectInWords("tool codex", zh), "工具 codex");
  t.equal(subjectInWords("config.yaml", zh), "config.yaml");
});

t.test("a reason is said in the reader's language, with the names and numbers in it", async (t) => {
  for (const reason of Object.values(REASONS)) {
    t.equal(reasonInWords(reason, en), reason);
    t.match(reasonInWords(reason, zh), /^\P{Script=Latin}|^keybearer/u, reason);
  }
  const request = reasonWith("other-key", { request: "01JC" });
  t.equal(
    reasonInWords(`${REASONS.rotated}: ${request}; ${REASONS["no-ids"]}`, zh),
    "这个密钥已在这里更换，但仍在被使用: 它的编号属于请求 01JC，而该请求用的是另一个密钥; 没有编号，所以只是怀疑",
  );
  const machine = reasonWith("machine-has-key", { machine: "laptop" });
  t.match(reasonInWords(`${REASONS.unsigned}: ${machine}`, zh), /没有签名.*: laptop 有这个密钥/);
  const billed = reasonWith("billed", { list: "$1.00", multiplier: "1.5", due: "$1.50", billed: "$2.00" });
  t.match(reasonInWords(billed, zh), /\$1\.00 × 1\.5 应为 \$1\.50，实收 \$2\.00/);
  t.match(reasonInWords("laptop slept", zh), "laptop slept");
});

t.test("what the alarm cannot see is said in the reader's language", async (t) => {
  for (const spot of Object.values(BLIND_SPOTS)) {
    t.equal(blindSpotInWords(spot, en), spot);
    t.match(blindSpotInWords(spot, zh), /^\p{Script=Han}/u);
  }
  const taken = BLIND_SPOTS["taken-for-yours"].replace("{ms}", "3,000");
  t.match(blindSpotInWords(taken, zh), /前后 3,000 ms 内开始的调用/);
  t.equal(blindSpotInWords("requests before noon", zh), "requests before noon");
});

t.test("why a tool does not work is said by its state", async (t) => {
  const tool = (more: Partial<ToolStatus>) =>
    toolProblem(
      { why: "as the daemon says", next: "keybearer x", limits: [], ...more } as ToolStatus,
      NOW,
      zh,
    );
  t.match(tool({ state: "disabled" }), { text: /停用/, next: null }, "its page has a button");
  t.match(tool({ state: "group-disabled", group: "coding" }), { text: /分组 coding/ });
  t.match(tool({ state: "key-unavailable" }), { text: "as the daemon says" });
  t.equal(gatewayProblem("the answer was cut", zh), "the answer was cut");
});
