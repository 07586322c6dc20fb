import t from "tap";
import type { Context, OurRequest, TheirRow } from "../../src/mirror/reconcile/context.ts";
import { learnStartFit } from "../../src/mirror/reconcile/fit.ts";
import { reconcile, unansweredIn } from "../../src/mirror/reconcile/reconcile.ts";
import { longTest } from "../doubles/effort.ts";
import {
  HOUR,
  left,
  MINUTE,
  matchContext,
  NOW,
  request,
  row,
  SECOND,
  START,
  THEN,
  TOKENS,
  verdicts,
} from "./reconcile-samples.ts";

interface Case {
  readonly name: string;
  readonly ours?: readonly OurRequest[];
  readonly theirs?: readonly TheirRow[];
  readonly context?: Partial<Context>;
  readonly verdicts: Readonly<Record<string, string>>;
}

const a = request("a", { ids: ["x"] });
const NO_IDS = { hands_out_ids: false };
const other = { model: "claude", model_answered: null };

/** Of a row that began when a request did which lasted two seconds, or so much later. */
const began = (later = 0) => ({ request_id: "y", began: THEN - 2 * SECOND + later });

const lists = (kinds: Readonly<Record<string, boolean>>) => ({
  lists_unanswered: new Map(Object.entries(kinds)),
});

/** It brought its id, and the gateway refused it before it read that. */
const refused = (id: string, given: Partial<OurRequest> = {}) =>
  request(id, {
    ...{ ids: [`${id}-brought`], status: 403, tokens: null, exact: false, expected: false },
    ...{ refusable: true, stream: false, ...given },
  });
const refusal = (id: string, later = 0) =>
  row(id, {
    kind: "error",
    stream: null,
    request_id: `its-${id}`,
    began: THEN - 2 * SECOND + later,
    billed_microdollars: 0,
  });

const REFUSED: readonly Case[] = [
  {
    name: "a refusal under another id than the request brought is its own",
    ours: [refused("a")],
    theirs: [refusal("1", 900)],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "so is that of a request whose client left",
    ours: [left("a", { ids: ["x"], refusable: true })],
    theirs: [refusal("1")],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "as many refusals as requests are counted",
    ours: [refused("a"), refused("b")],
    theirs: [refusal("1"), refusal("2", 10)],
    verdicts: { a: "matched sum", b: "matched sum", "1": "matched sum", "2": "matched sum" },
  },
  {
    name: "one more refusal than requests is only suspected",
    ours: [refused("a")],
    theirs: [refusal("1"), refusal("2", 10)],
    verdicts: { "1": "foreign", "2": "foreign" },
  },
  {
    name: "an id that a request brought is decisive against a row that cost something",
    ours: [refused("a"), left("b", { ids: ["y"], refusable: true })],
    theirs: [row("1", { request_id: "z", began: THEN - 2 * SECOND })],
    verdicts: { "1": "foreign certain" },
  },
  {
    name: "a refusal while no request was in flight is foreign",
    ours: [refused("a")],
    theirs: [refusal("1", 30 * MINUTE)],
    verdicts: { "1": "foreign certain" },
  },
];

/** It brought its id, which every caller can send. */
const brought = (id: string, given: Partial<OurRequest> = {}) =>
  request(id, { ids: [`${id}-id`], brought_id: `${id}-id`, ...given });
/** @param later after that request was sent */
const withId = (id: string, of: string, later = 0, given: Partial<TheirRow> = {}) =>
  row(id, { request_id: `${of}-id`, began: THEN - 2 * SECOND + later, at: THEN + later, ...given });

const REPEATED: readonly Case[] = [
  {
    name: "all rows with a brought id that began while the request was in flight are its own",
    ours: [brought("a")],
    theirs: [withId("1", "a"), withId("2", "a", 1500, { billed_microdollars: 1 })],
    verdicts: { a: "matched id →1", "1": "matched id →a", "2": "companion id →a" },
  },
  {
    name: "one that began after the answer had ended is another caller's",
    ours: [brought("a")],
    theirs: [withId("1", "a"), withId("2", "a", 6 * SECOND), withId("3", "a", 2 * HOUR)],
    verdicts: { a: "matched id →1", "1": "matched id →a", "2": "foreign certain", "3": "foreign certain" },
  },
  {
    name: "one that began just after it is suspected: rows of one request begin no further apart than it lasted",
    ours: [brought("a")],
    theirs: [withId("1", "a"), withId("2", "a", 3 * SECOND)],
    verdicts: { a: "matched id →1", "1": "matched id →a", "2": "foreign" },
  },
  {
    name: "one that began before the request was sent is another caller's",
    ours: [brought("a")],
    theirs: [withId("1", "a"), withId("2", "a", -4 * SECOND)],
    verdicts: { a: "matched id →1", "1": "matched id →a", "2": "foreign certain" },
  },
  {
    name: "so is one with another key",
    ours: [brought("a")],
    theirs: [withId("1", "a", 0, { key: "…c3d4" })],
    verdicts: { a: "missing", "1": "foreign certain" },
  },
  {
    name: "without a row of the request itself, a clock may be wrong",
    ours: [brought("a")],
    theirs: [withId("1", "a", HOUR)],
    verdicts: { a: "missing", "1": "foreign" },
  },
  {
    name: "the gateway may continue a request whose client left",
    ours: [left("a", { ids: ["a-id"], brought_id: "a-id" })],
    theirs: [withId("1", "a"), withId("2", "a", MINUTE)],
    verdicts: { a: "matched id →1", "1": "matched id →a", "2": "foreign" },
  },
  {
    name: "an overloaded gateway begins late what its client no longer waits for",
    ours: [left("a", { ids: ["a-id"], brought_id: "a-id" })],
    theirs: [
      withId("1", "a", MINUTE),
      withId("2", "a", MINUTE, { kind: "error", billed_microdollars: 0 }),
      withId("3", "a", MINUTE + SECOND),
      withId("4", "a", 10 * MINUTE),
    ],
    verdicts: {
      a: "matched id →1",
      "1": "matched id →a",
      "2": "companion id →a",
      "3": "foreign",
      "4": "foreign",
    },
  },
  {
    name: "it has no later row than two minutes after the client left",
    ours: [left("a", { ids: ["a-id"], brought_id: "a-id" })],
    theirs: [withId("1", "a", 10 * MINUTE)],
    verdicts: { "1": "foreign" },
  },
  {
    name: "a slow gateway begins its requests late, and nothing is concluded from those of others",
    ours: [brought("a", { started_at: THEN - MINUTE }), brought("b")],
    theirs: [withId("1", "a", -2 * SECOND), withId("2", "b", -2 * SECOND)],
    verdicts: { a: "matched id →1", b: "matched id →2", "1": "matched id →a", "2": "matched id →b" },
    context: { start: { later: 53_000, within: 3000, close: 3000, latest: 10_000 } },
  },
  {
    name: "a request that still runs may have begun it",
    ours: [left("a", { ids: ["a-id"], brought_id: "a-id", ended_at: null, running: true })],
    theirs: [withId("1", "a", HOUR)],
    verdicts: { "1": "pending →a" },
  },
  {
    name: "a failure is no refusal of another request if it has the id of one",
    ours: [brought("a"), refused("b", { started_at: THEN + HOUR, ended_at: THEN + HOUR + SECOND })],
    theirs: [withId("1", "a"), withId("2", "a", HOUR + 2 * SECOND, { kind: "error", stream: null })],
    verdicts: { a: "matched id →1", "1": "matched id →a", "2": "foreign certain" },
  },
];

const BY_ID: readonly Case[] = [
  {
    name: "an id on two records belongs to the one that ended",
    ours: [request("a", { ids: ["x"], ended_at: null, running: true }), request("b", { ids: ["x"] })],
    theirs: [row("1", { request_id: "x" })],
    verdicts: { b: "matched id →1", "1": "matched id →b" },
  },
  {
    name: "the same id is a match, whatever the key and the time",
    ours: [a],
    theirs: [row("1", { request_id: "x", key: null, at: THEN + 2 * HOUR })],
    verdicts: { a: "matched id →1", "1": "matched id →a" },
  },
  {
    name: "an id of the gateway behind is as good",
    ours: [a],
    theirs: [row("1", { request_id: "own", upstream_id: "x" })],
    verdicts: { a: "matched id →1", "1": "matched id →a" },
  },
  {
    name: "several error rows and one use belong to one request",
    ours: [a],
    theirs: [
      row("1", { request_id: "x", kind: "error", billed_microdollars: null }),
      row("2", { request_id: "x", kind: "error", billed_microdollars: null, at: THEN - SECOND }),
      row("3", { request_id: "x", at: THEN + SECOND }),
    ],
    verdicts: { a: "matched id →3", "1": "companion id →a", "2": "companion id →a", "3": "matched id →a" },
  },
  {
    name: "the most expensive use has the tokens, its equal is a duplicate, another use and a refund are companions",
    ours: [a],
    theirs: [
      row("1", { request_id: "x", billed_microdollars: 1, list_microdollars: 1 }),
      row("2", { request_id: "x" }),
      row("3", { request_id: "x" }),
      row("4", { request_id: "x", kind: "refund" }),
    ],
    verdicts: {
      a: "matched id →2",
      "1": "companion id →a",
      "2": "matched id →a",
      "3": "duplicate id →a",
      "4": "companion id →a",
    },
  },
  {
    name: "of errors alone the first is the match",
    ours: [request("a", { ids: ["x"], status: 502, tokens: null, exact: false, expected: false })],
    theirs: [
      row("1", { request_id: "x", kind: "error", at: THEN + SECOND }),
      row("2", { request_id: "x", kind: "error", at: THEN }),
    ],
    verdicts: { a: "matched id →2", "1": "companion id →a", "2": "matched id →a" },
  },
  {
    name: "an id that two records have belongs to the one that ended first",
    ours: [request("a", { ids: ["x"], ended_at: THEN + 1 }), request("b", { ids: ["x"] })],
    theirs: [row("1", { request_id: "x" })],
    verdicts: { a: "missing", b: "matched id →1", "1": "matched id →b" },
  },
  {
    name: "a row of a request that still runs waits for it",
    ours: [request("a", { ids: ["x"], running: true, ended_at: null })],
    theirs: [row("1", { request_id: "x" })],
    verdicts: { "1": "pending →a" },
  },
  {
    name: "other tokens with the same id differ",
    ours: [a],
    theirs: [row("1", { request_id: "x", output_tokens: 343 })],
    verdicts: { a: "differs id →1", "1": "differs id →a" },
  },
  {
    name: "where the console does not separate cached tokens, the sum is compared",
    ours: [a],
    theirs: [
      row("1", { request_id: "x", input_tokens: 2000, cache_read_tokens: null, cache_write_tokens: null }),
    ],
    verdicts: { a: "matched id →1", "1": "matched id →a" },
  },
  {
    name: "a sum with cache that is not ours differs",
    ours: [a],
    theirs: [row("1", { request_id: "x", cache_read_tokens: null, cache_write_tokens: null })],
    verdicts: { a: "differs id →1", "1": "differs id →a" },
  },
  {
    name: "a charge that is not list price times multiplier differs",
    ours: [a],
    theirs: [row("1", { request_id: "x", billed_microdollars: 8140 })],
    verdicts: { a: "differs id →1", "1": "differs id →a" },
  },
  {
    name: "what rounding explains does not differ",
    ours: [a],
    theirs: [row("1", { request_id: "x", billed_microdollars: 8137 })],
    verdicts: { a: "matched id →1", "1": "matched id →a" },
  },
  {
    name: "an estimate differs from nothing",
    ours: [request("a", { ids: ["x"], exact: false })],
    theirs: [row("1", { request_id: "x", output_tokens: 9 })],
    verdicts: { a: "matched id →1", "1": "matched id →a" },
  },
];

const BY_PAIR: readonly Case[] = [
  {
    name: "one row and one record with everything in common are a pair",
    ours: [request("a")],
    theirs: [row("1", { model: "GPT-5.1-2026-08", at: THEN + 30 * SECOND })],
    context: NO_IDS,
    verdicts: { a: "matched pair →1", "1": "matched pair →a" },
  },
  {
    name: "a pair whose charge is wrong differs",
    ours: [request("a")],
    theirs: [row("1", { billed_microdollars: 9000 })],
    context: NO_IDS,
    verdicts: { a: "differs pair →1", "1": "differs pair →a" },
  },
  ...(
    [
      ["key", row("1", { key: "…c3d4" })],
      ["model", row("1", { model: "claude" })],
      ["input", row("1", { input_tokens: 1 })],
      ["cache", row("1", { input_tokens: 1201, cache_read_tokens: 799 })],
      ["output", row("1", { output_tokens: 1 })],
    ] as const
  ).map(
    ([name, theirs]): Case => ({
      name: `another ${name} is no pair`,
      // With an id on our side only, so that nothing is presumed.
      ours: [a],
      theirs: [theirs],
      context: NO_IDS,
      verdicts: { a: "missing", "1": "foreign" },
    }),
  ),
  {
    name: "ids that are both the gateway's own contradict a pair",
    ours: [a],
    theirs: [row("1", { request_id: "y" })],
    verdicts: { a: "missing", "1": "foreign certain" },
  },
  {
    name: "where they began together as well, the gateway may have changed its ids: it is a suspicion",
    ours: [a],
    theirs: [row("1", { request_id: "y", began: THEN - 2 * SECOND })],
    verdicts: { a: "missing", "1": "foreign" },
  },
  {
    name: "ids that may be another gateway's do not contradict a pair",
    ours: [request("a", { ids: ["x"], own_id: false })],
    theirs: [row("1", { request_id: "y" })],
    verdicts: { a: "matched pair →1", "1": "matched pair →a" },
  },
  {
    name: "where ids may be another gateway's, and one token differs, a row is only suspected",
    ours: [request("a", { ids: ["x"], own_id: false })],
    theirs: [row("1", { request_id: "y", input_tokens: TOKENS.input + 1 })],
    verdicts: { a: "missing", "1": "foreign" },
  },
  {
    name: "if several are alike, only their number is compared",
    ours: [request("a"), request("b", { ended_at: THEN + SECOND })],
    theirs: [row("1"), row("2", { at: THEN + 2 * SECOND })],
    context: NO_IDS,
    verdicts: { a: "matched sum", b: "matched sum", "1": "matched sum", "2": "matched sum" },
  },
  {
    name: "one row too many among those alike stays over",
    ours: [request("a")],
    theirs: [row("1"), row("2", { at: THEN + 20 * SECOND })],
    context: NO_IDS,
    verdicts: { a: "matched sum", "1": "matched sum", "2": "foreign" },
  },
  {
    name: "more rows than requests that are alike: any of them may not be ours, so that none is taken",
    ours: [request("a")],
    theirs: [row("1"), row("2", { at: THEN + 600 })],
    context: NO_IDS,
    verdicts: { a: "missing", "1": "foreign", "2": "foreign" },
  },
  {
    name: "none is taken either where they began together",
    ours: [request("a"), request("b", { ended_at: THEN + 20 })],
    theirs: [5, 25, 40].map((later) => row(`w${later}`, { ...began(later), request_id: null })),
    context: NO_IDS,
    verdicts: { a: "missing", b: "missing", w5: "foreign", w25: "foreign", w40: "foreign" },
  },
  {
    name: "where their beginnings are apart, the nearest is taken",
    ours: [request("a")],
    theirs: [0, 2000].map((later) => row(`w${later}`, { ...began(later), request_id: null })),
    context: NO_IDS,
    verdicts: { a: "matched sum", w0: "matched sum", w2000: "foreign" },
  },
  {
    name: "fewer rows than requests that are alike: one was dropped, and the others are listed",
    ours: [0, 200, 400].map((later) => request(`r${later}`, { ended_at: THEN + later })),
    theirs: [row("1"), row("2", { at: THEN + 700 })],
    context: NO_IDS,
    verdicts: {
      r0: "matched sum",
      r200: "matched sum",
      r400: "missing",
      "1": "matched sum",
      "2": "matched sum",
    },
  },
  {
    name: "one that is missing does not shift those that follow it",
    ours: [0, 20, 40].map((s) => request(`r${s}`, { ended_at: THEN + s * SECOND })),
    theirs: [0, 40].map((s) => row(`w${s}`, { at: THEN + s * SECOND + 300 })),
    context: NO_IDS,
    verdicts: {
      r0: "matched sum",
      r20: "missing",
      r40: "matched sum",
      w0: "matched sum",
      w40: "matched sum",
    },
  },
  {
    name: "an hour with the same number and the same tokens in all agrees as a sum",
    ours: [
      request("a", { ids: ["x"], tokens: { input: 10, cache_read: 1, cache_write: 2, output: 5 } }),
      request("b", { ids: ["y"], tokens: { input: 20, cache_read: 3, cache_write: 4, output: 6 } }),
    ],
    theirs: [
      row("1", {
        input_tokens: 15,
        cache_read_tokens: 2,
        cache_write_tokens: 3,
        output_tokens: 4,
        at: THEN + MINUTE,
      }),
      row("2", {
        input_tokens: 15,
        cache_read_tokens: 2,
        cache_write_tokens: 3,
        output_tokens: 7,
        at: THEN + MINUTE,
      }),
    ],
    context: NO_IDS,
    verdicts: { a: "matched sum", b: "matched sum", "1": "matched sum", "2": "matched sum" },
  },
  {
    name: "one streamed and one not are no pair, but a sum of their hour",
    ours: [a],
    theirs: [row("1", { stream: false })],
    context: NO_IDS,
    verdicts: { a: "matched sum", "1": "matched sum" },
  },
  {
    name: "an hour whose ids contradict is no sum",
    ours: [a],
    theirs: [row("1", { request_id: "y", at: THEN + 2 * MINUTE })],
    context: NO_IDS,
    verdicts: { a: "missing", "1": "foreign" },
  },
];

const PRESUMED: readonly Case[] = [
  {
    name: "a request that was left before the answer takes the row that began with it",
    ours: [left("a")],
    theirs: [row("1", began()), row("2", { ...began(MINUTE), request_id: "z", at: THEN + MINUTE })],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a", "2": "foreign certain" },
  },
  {
    name: "a request that was left takes that row however long the gateway goes on",
    ours: [left("a")],
    theirs: [row("1", { ...began(), at: THEN + 90 * MINUTE })],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "a row that ends more than an hour and a half later is foreign",
    ours: [left("a")],
    theirs: [row("1", { ...began(), at: THEN + 90 * MINUTE + 1 })],
    verdicts: { "1": "foreign certain" },
  },
  {
    name: "rows without an id are taken too",
    ours: [left("a")],
    theirs: [row("1", { ...began(), request_id: null })],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "its error rows go along with the use it takes",
    ours: [left("a")],
    theirs: [row("1", { ...began(), kind: "error" }), row("2", { ...began(), at: THEN + MINUTE })],
    verdicts: { a: "matched presumed →2", "1": "companion presumed →a", "2": "matched presumed →a" },
  },
  {
    name: "a use is taken before an error, and an error before nothing",
    ours: [left("a"), left("b", { started_at: THEN - 2 * SECOND + 600 })],
    theirs: [row("1", { ...began(), kind: "error" }), row("2", { ...began(600), request_id: "z" })],
    verdicts: {
      a: "matched presumed →1",
      b: "matched presumed →2",
      "1": "matched presumed →a",
      "2": "matched presumed →b",
    },
  },
  ...(
    [
      ["of another key", { key: "…c3d4" }],
      ["of another model", { model: "claude" }],
      ["that began before it", { began: THEN - 4 * SECOND }],
      ["that began after its end", { began: THEN + 2 * SECOND, at: THEN + 3 * SECOND }],
      ["that began eight seconds after its end", { began: THEN + 8 * SECOND, at: THEN + 9 * SECOND }],
    ] as const
  ).map(
    ([name, given]): Case => ({
      name: `a row ${name} is not presumed to be its own`,
      ours: [left("a")],
      theirs: [row("1", { ...began(), ...given })],
      verdicts: { "1": "foreign certain" },
    }),
  ),
  {
    name: "a row that began while it was in flight, but not with it, is suspected",
    ours: [left("a")],
    theirs: [row("1", began(1500))],
    verdicts: { "1": "foreign" },
  },
  {
    name: "two rows that began with one request cannot be distinguished: both are suspected",
    ours: [left("a")],
    theirs: [row("1", began()), row("2", { ...began(40), request_id: "z" })],
    verdicts: { "1": "foreign", "2": "foreign" },
  },
  {
    name: "one of two rows that began with a request is its own, so a third one that began later is foreign",
    ours: [left("a", { ended_at: null })],
    theirs: [
      row("1", began()),
      row("2", { ...began(40), request_id: "z" }),
      row("3", { ...began(3000), request_id: "x" }),
    ],
    verdicts: { "1": "foreign", "2": "foreign", "3": "foreign certain" },
  },
  {
    name: "two rows and two requests that began together are matched by their number",
    ours: [left("a"), left("b", { started_at: THEN - 2 * SECOND + 14 })],
    theirs: [row("1", began(3)), row("2", { ...began(17), request_id: "z" })],
    verdicts: { a: "matched sum", b: "matched sum", "1": "matched sum", "2": "matched sum" },
  },
  {
    name: "two rows and two requests that can be distinguished are both taken, the nearest first",
    ours: [left("a"), left("b", { started_at: THEN - 2 * SECOND + 300 })],
    theirs: [row("1", began(310)), row("2", { ...began(), request_id: "z" })],
    verdicts: {
      a: "matched presumed →2",
      b: "matched presumed →1",
      "1": "matched presumed →b",
      "2": "matched presumed →a",
    },
  },
  {
    name: "of two rows that began with one request, the nearer may be the foreign one: none is taken",
    ours: [left("a")],
    theirs: [row("1", began(12)), row("2", { ...began(70), request_id: "z" })],
    verdicts: { "1": "foreign", "2": "foreign" },
  },
  {
    name: "where the other one is further away than nearly all rows are, the nearer is taken and only the other suspected",
    ours: [left("a")],
    theirs: [row("1", began(12)), row("2", { ...began(150), request_id: "z" })],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a", "2": "foreign" },
  },
  {
    name: "two requests and rows that began together are not counted where a third row is almost as close",
    ours: [left("a"), left("b", { started_at: THEN - 2 * SECOND + 14 })],
    theirs: [3, 17, 90].map((later) => row(`w${later}`, { ...began(later), request_id: `y${later}` })),
    verdicts: { w3: "foreign", w17: "foreign", w90: "foreign" },
  },
  {
    name: "they are counted where it is far away",
    ours: [left("a"), left("b", { started_at: THEN - 2 * SECOND + 14 })],
    theirs: [3, 17, 400].map((later) => row(`w${later}`, { ...began(later), request_id: `y${later}` })),
    verdicts: { a: "matched sum", b: "matched sum", w3: "matched sum", w17: "matched sum", w400: "foreign" },
  },
  {
    name: "a row that began after the request had ended is not its own, however close it is",
    ours: [left("a", { ended_at: THEN - 2 * SECOND + 20, started_at: THEN - 2 * SECOND })],
    theirs: [row("1", began(21))],
    verdicts: { "1": "foreign" },
  },
  {
    name: "one that began just before its end is",
    ours: [left("a", { ended_at: THEN - 2 * SECOND + 20, started_at: THEN - 2 * SECOND })],
    theirs: [row("1", began(20))],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "a row of another program is foreign, however close it is",
    ours: [left("a", { user_agent: "claude-cli/2.0 (external, cli)" })],
    theirs: [row("1", { ...began(), user_agent: "curl/8.5.0" })],
    verdicts: { "1": "foreign certain" },
  },
  {
    name: "also beside a request of ours that was answered without an id",
    ours: [request("a", { user_agent: "claude-cli/2.0", tokens: null, exact: false })],
    theirs: [row("1", { ...began(), user_agent: "curl/8.5.0" })],
    verdicts: { a: "missing", "1": "foreign certain" },
  },
  {
    name: "it does not prevent that a request takes the row of its own program",
    ours: [left("a", { user_agent: "claude-cli/2.0" })],
    theirs: [
      row("1", { ...began(), user_agent: "claude-cli/2.0" }),
      row("2", { ...began(1), request_id: "z", user_agent: "claude-cli/2.0.1" }),
    ],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a", "2": "foreign certain" },
  },
  {
    name: "where only one side knows the program, it decides nothing",
    ours: [left("a", { user_agent: "claude-cli/2.0" }), left("b", { key: "…c3d4" })],
    theirs: [
      row("1", began()),
      row("2", { ...began(), key: "…c3d4", request_id: "z", user_agent: "curl/8" }),
    ],
    verdicts: {
      a: "matched presumed →1",
      b: "matched presumed →2",
      "1": "matched presumed →a",
      "2": "matched presumed →b",
    },
  },
  {
    name: "of a long user agent a record has the first part",
    ours: [left("a", { user_agent: "a".repeat(120) })],
    theirs: [row("1", { ...began(), user_agent: "a".repeat(150) })],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "a row from another address than ours is suspected, and never certain for that",
    ours: [left("a")],
    theirs: [row("1", { ...began(), ip: "203.0.113.9" })],
    context: { own_addresses: new Set(["198.51.100.4"]) },
    verdicts: { "1": "foreign" },
  },
  {
    name: "one from an address of ours, or from none, is taken",
    ours: [left("a"), left("b", { key: "…c3d4" })],
    theirs: [
      row("1", { ...began(), ip: "198.51.100.4" }),
      row("2", { ...began(), key: "…c3d4", request_id: "z" }),
    ],
    context: { own_addresses: new Set(["198.51.100.4"]) },
    verdicts: {
      a: "matched presumed →1",
      b: "matched presumed →2",
      "1": "matched presumed →a",
      "2": "matched presumed →b",
    },
  },
  {
    name: "what waited here for its limits began when it was sent",
    ours: [left("a", { started_at: THEN - MINUTE, sent_at: THEN - 2 * SECOND })],
    theirs: [row("1", began())],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "how much later rows begin is learned",
    ours: [left("a")],
    theirs: [row("1", began(1900))],
    context: { start: { ...START, later: 1900 } },
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "where the console does not list when a request began, its row is suspected",
    ours: [left("a")],
    theirs: [row("1", { request_id: "y", at: THEN })],
    verdicts: { "1": "foreign" },
  },
  {
    name: "without ids everything is a suspicion, and there it takes a row that ends up to 30 s after it",
    ours: [left("a")],
    theirs: [row("1", { request_id: "y", at: THEN + 30 * SECOND })],
    context: NO_IDS,
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "a row that ends later is suspected there",
    ours: [left("a")],
    theirs: [row("1", { request_id: "y", at: THEN + 31 * SECOND })],
    context: NO_IDS,
    verdicts: { "1": "foreign" },
  },
  {
    name: "a request whose model is not known may have asked for any",
    ours: [left("a", { model: null })],
    theirs: [row("1", { ...began(), model: "claude" })],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "after a crash the end is unknown, but the start must fit",
    ours: [left("a", { started_at: THEN, ended_at: null })],
    theirs: [
      row("1", { request_id: "y", began: THEN + 30, at: THEN + 80 * MINUTE }),
      row("2", { request_id: "z", began: THEN + 9 * SECOND, at: THEN + MINUTE }),
      row("3", { request_id: "v", began: THEN + 12 * SECOND, at: THEN + MINUTE }),
    ],
    verdicts: {
      a: "matched presumed →1",
      "1": "matched presumed →a",
      "2": "foreign certain",
      "3": "foreign certain",
    },
  },
  {
    name: "where the console does not list what was left, a row that began with it is suspected",
    ours: [left("a", { stream: true })],
    theirs: [row("1", began())],
    context: lists({ "gpt-5.1|true": false, "gpt-5.1|false": true }),
    verdicts: { "1": "foreign" },
  },
  {
    name: "so it is where too few show whether the console lists it",
    ours: [left("a", { stream: true })],
    theirs: [row("1", began())],
    context: lists({ "gpt-5.1|false": true, "claude|true": true }),
    verdicts: { "1": "foreign" },
  },
  {
    name: "after a crash it is not known whether a stream was asked for, so that both must be listed",
    ours: [left("a", { started_at: THEN - 2 * SECOND, ended_at: null })],
    theirs: [row("1", began())],
    context: lists({ "gpt-5.1|true": true, "gpt-5.1|false": false }),
    verdicts: { "1": "foreign" },
  },
  {
    name: "or the only one that is known",
    ours: [left("a", { started_at: THEN - 2 * SECOND, ended_at: null })],
    theirs: [row("1", began())],
    context: lists({ "gpt-5.1|true": true }),
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "an answer without an id shows that the gateway got it, whatever is listed of others",
    ours: [request("a", { tokens: null, exact: false, expected: false })],
    theirs: [row("1", began())],
    context: lists({}),
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "exact tokens of ours must agree",
    ours: [request("a", { key: "…c3d4" })],
    theirs: [row("1", { ...began(), key: "…c3d4", output_tokens: 9 })],
    context: NO_IDS,
    verdicts: { a: "missing", "1": "foreign" },
  },
  {
    name: "a request that the gateway answered with an error takes no row of a use",
    ours: [left("a", { status: 502 })],
    theirs: [row("1", began())],
    verdicts: { "1": "foreign certain" },
  },
  {
    name: "a request that failed takes a row of a gateway that bills failures",
    ours: [left("a", { status: 502 })],
    theirs: [row("1", began())],
    context: { bills_failures: true },
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "a request that keybearer itself gave up may be billed",
    ours: [left("a", { status: 504, failed: false })],
    theirs: [row("1", began())],
    verdicts: { a: "matched presumed →1", "1": "matched presumed →a" },
  },
  {
    name: "if the console lists no such requests, that one takes nothing either",
    ours: [left("a", { status: 504, failed: false })],
    theirs: [row("1", began())],
    context: lists({}),
    verdicts: { "1": "foreign" },
  },
  {
    name: "one with an id of its own presumes nothing",
    ours: [left("a", { ids: ["x"] })],
    theirs: [row("1", { request_id: "y" })],
    verdicts: { "1": "foreign certain" },
  },
  {
    name: "a request that was refused with 429 presumes nothing",
    ours: [left("a", { status: 429 })],
    theirs: [row("1", { request_id: "y" })],
    verdicts: { "1": "foreign certain" },
  },
  {
    name: "what never reached the gateway presumes nothing",
    ours: [left("a", { billable: false })],
    theirs: [row("1", { request_id: "y" })],
    verdicts: { "1": "foreign certain" },
  },
  {
    name: "a WebSocket takes any number of rows of its key in its time, but none that was answered with an id",
    ours: [left("a", { upgraded: true, status: 101, started_at: THEN - HOUR, ids: ["x"], model: null })],
    theirs: [
      row("1", { at: THEN - HOUR + SECOND }),
      row("2", { at: THEN - MINUTE, model: "claude" }),
      row("3", { at: THEN }),
      row("4", { request_id: "v", at: THEN - 2 * HOUR }),
      row("5", { request_id: "w", at: THEN - MINUTE }),
    ],
    verdicts: {
      a: "matched presumed →1",
      "1": "matched presumed →a",
      "2": "companion presumed →a",
      "3": "companion presumed →a",
      "4": "foreign certain",
      "5": "foreign certain",
    },
  },
];

const held = (since: number, until: number | null, replaced = false): Partial<Context> => ({
  held: () => ({ since, until, replaced }),
});
const alone = (
  name: string,
  verdict: string,
  given: Partial<TheirRow> = {},
  where: Partial<Context> = {},
): Case => ({
  name,
  theirs: [row("1", { request_id: "y", ...given })],
  context: where,
  verdicts: { "1": verdict },
});
const runs = (given: Partial<OurRequest>) =>
  left("a", { running: true, ended_at: null, started_at: THEN, ...given });
const beside = (name: string, ours: OurRequest, verdict: string): Case => ({
  ...alone(name, verdict),
  ours: [ours],
});

const SOCKET = { upgraded: true, status: 101, model: null };

const OVERLOADED = { later: 53_000, within: 3000, close: 3000, latest: 10_000 };

const LEFT_OVER: readonly Case[] = [
  {
    name: "a row that began when a request without an id was sent is only suspected, also if the gateway is slow at other times",
    ours: [left("a")],
    theirs: [row("1", { request_id: "y", began: THEN - 2 * SECOND })],
    context: { start: OVERLOADED },
    verdicts: { "1": "foreign" },
  },
  alone("a row with an id that no request of ours has is certainly foreign", "foreign certain"),
  alone("without an id it is a suspicion", "foreign", { request_id: null }),
  alone("where no ids are handed out it is a suspicion", "foreign", {}, NO_IDS),
  alone("a refund alone is no use of the key", "companion", { kind: "refund" }),
  alone("a row of an unknown key is unwatched", "unwatched", { key: null }),
  alone("a row of a key that was never held here is unwatched", "unwatched", {}, { held: () => null }),
  alone("a row from before the key was held is before", "before", {}, held(THEN + SECOND, null)),
  alone("one that began before that is too", "before", { duration_ms: 1000 }, held(THEN, null)),
  alone("a row of a key that was given up is unwatched", "unwatched", {}, held(0, THEN)),
  alone("a row of a key that was replaced is foreign", "foreign certain", {}, held(0, THEN, true)),
  alone("a row from while it was held is foreign", "foreign certain", {}, held(0, THEN + MINUTE)),
  alone("a row older than our log is unwatched", "unwatched", {}, { kept_from: THEN + SECOND }),
  alone(
    "a row while nothing was recorded is unwatched",
    "unwatched",
    {},
    { log_gaps: [{ from: THEN, to: THEN + SECOND }] },
  ),
  alone(
    "a row long after that is not",
    "foreign certain",
    {},
    { log_gaps: [{ from: 0, to: THEN - MINUTE }] },
  ),
  alone("a row is pending for thirty seconds", "pending", { at: NOW - 30 * SECOND + 1 }),
  alone("and then foreign", "foreign certain", { at: NOW - 30 * SECOND }),
  alone("a row from the future is pending", "pending", { at: NOW + HOUR }),
  alone("a row from after tomorrow is not waited for", "unwatched", { at: NOW + 25 * HOUR }),
  beside("a request that runs may own it", runs({}), "pending"),
  beside("one of another model may not", runs({ ...other }), "foreign certain"),
  beside("one whose model is not known may", runs({ model: null }), "pending"),
  beside("one that started later may not", runs({ started_at: THEN + MINUTE }), "foreign certain"),
  {
    ...alone("a row that began before it is not its own", "foreign certain", { began: THEN - 2 * SECOND }),
    ours: [runs({})],
  },
  beside("one that has its own id may not", runs({ ids: ["x"] }), "foreign certain"),
  beside("a WebSocket may not: it was answered with an id", runs({ ...SOCKET }), "foreign certain"),
  {
    ...alone("a WebSocket may own what has none", "pending", { request_id: null }),
    ours: [runs({ ...SOCKET })],
  },
  beside("one that costs nothing may not", runs({ billable: false }), "foreign certain"),
  {
    name: "beside a request of ours that was answered without an id it is a suspicion",
    ours: [request("a", { ...other, ended_at: THEN + 10 * MINUTE })],
    theirs: [row("1", { request_id: "y", at: THEN })],
    verdicts: { a: "missing", "1": "foreign" },
  },
  {
    name: "and no longer when that was more than ten minutes away, or with another key",
    ours: [
      request("a", { ...other, ended_at: THEN + 11 * MINUTE }),
      request("b", { ...other, key: "…c3d4", ended_at: THEN }),
    ],
    theirs: [row("1", { request_id: "y", at: THEN })],
    verdicts: { a: "missing", b: "missing", "1": "foreign certain" },
  },
  {
    name: "a foreign request with several rows is foreign once",
    theirs: [row("1", { request_id: "y", kind: "error" }), row("2", { request_id: "y" })],
    verdicts: { "1": "companion", "2": "foreign certain" },
  },
  {
    name: "a record is pending for ten minutes, then missing",
    ours: [request("a", { ended_at: NOW - 10 * MINUTE }), request("b", { ended_at: NOW - 10 * MINUTE - 1 })],
    verdicts: { a: "pending", b: "missing" },
  },
  {
    name: "a record that no console lists, one that runs, and a WebSocket without rows have no verdict",
    ours: [
      request("a", { expected: false }),
      request("b", { running: true, ended_at: null }),
      request("c", { upgraded: true, status: 101 }),
    ],
    verdicts: {},
  },
];

const TABLES: Readonly<Record<string, readonly Case[]>> = {
  "rows and requests with the same id match": BY_ID,
  "a gateway lists what it refuses under an id of its own": REFUSED,
  "an id that a request brought can be sent again": REPEATED,
  "rows and requests without a common id match in pairs or by their number": BY_PAIR,
  "a row is presumed to belong to a request that was answered without an id": PRESUMED,
  "rows and requests without a match are foreign, pending, missing or not watched": LEFT_OVER,
};

for (const [title, cases] of Object.entries(TABLES)) {
  t.test(title, (t) => {
    for (const { name, ours = [], theirs = [], context: given = {}, verdicts: wanted } of cases) {
      t.same(verdicts(ours, theirs, given), wanted, name);
    }
    t.end();
  });
}

t.test("a request without an answer is listed if a row that it could take began with it", (t) => {
  const listed = (given: Partial<OurRequest>, theirs: Partial<TheirRow>) =>
    unansweredIn([left("a", given)], [row("1", { ...began(), ...theirs })], matchContext());
  t.match(listed({}, {}), [{ kind: "gpt-5.1|null", isListed: true }]);
  t.match(listed({ model: "GPT-5.1", stream: false }, { stream: false }), [
    { kind: "gpt-5.1|false", isListed: true },
  ]);
  t.match(listed({}, began(51)), [{ isListed: false }], "too far away");
  t.match(listed({}, { kind: "error" }), [{ isListed: false }], "an error is no bill");
  t.match(listed({ status: 504, failed: false }, {}), [{ isListed: true }], "keybearer gave up");
  t.same(listed({ status: 200 }, {}), [], "it was answered");
  t.same(listed({ status: 502 }, {}), [], "the gateway answered with an error");
  t.same(listed({ clock_error: 5000 }, {}), [], "another machine's clock is less exact");
  t.same(listed({ billable: false }, {}), [], "it never arrived");
  t.end();
});

/*
 * A client of ours leaves after 200 ms and is never billed, and a foreign call of the same key and model begins this much
 * after it. new-api's ids have the start in milliseconds, one-api's rows and those of old versions of new-api whole seconds.
 */
const APART = [0, 30, 80, 150, 300, 600, 1200, 2500];

t.test(
  "a foreign call beside a request that was never billed is presumed only within what the gateway has shown",
  (t) => {
    const pairs = (context: Partial<Context>) =>
      APART.map((apart) => {
        const ours = left("a", { stream: true, started_at: THEN, ended_at: THEN + 200 });
        const theirs = row("1", { request_id: "y", began: THEN + apart, at: THEN + apart + 900 });
        return verdicts([ours], [theirs], context)["1"];
      });
    const suspected = Array<string>(7).fill("foreign");
    t.same(
      pairs({}),
      ["matched presumed →a", "matched presumed →a", ...suspected.slice(2), "foreign certain"],
      "where such requests are usually listed",
    );
    t.same(pairs(lists({})), [...suspected, "foreign certain"], "where nothing shows that they are");
    t.same(pairs(lists({ "gpt-5.1|true": false })), [...suspected, "foreign certain"], "where they are not");
    t.same(
      pairs({ start: { ...START, close: 90 } }).slice(0, 4),
      ["matched presumed →a", "matched presumed →a", "matched presumed →a", "foreign"],
      "where rows are further from their requests",
    );
    t.same(
      pairs({ start: { ...START, close: 500 } }).slice(3),
      ["matched presumed →a", "foreign", "foreign", "foreign", "foreign certain"],
      "where starts are whole seconds: none that began after ours had ended",
    );
    t.end();
  },
);

t.test(
  "our own row beside a leak within 0.6 s is taken, unless the leak is as close as nearly all rows are",
  (t) => {
    const beside = APART.slice(0, 6).map((apart) => {
      const ours = left("a", { stream: true, started_at: THEN, ended_at: THEN + 200 });
      const own = row("own", { request_id: "x", began: THEN + 2, at: THEN + 900 });
      const leak = row("leak", { request_id: "y", began: THEN + apart, at: THEN + apart + 900 });
      const found = verdicts([ours], [own, leak]);
      return `${found.own}, ${found.leak}`;
    });
    t.same(beside, [
      "foreign, foreign",
      "foreign, foreign",
      ...Array<string>(3).fill("matched presumed →a, foreign"),
      "matched presumed →a, foreign certain",
    ]);
    t.end();
  },
);

t.test("how close rows are is learned from 99 of 100 matches, but not below 50 ms", (t) => {
  const offsets = (late: number) => Array.from({ length: 200 }, (_, n) => (n < 198 ? (n % 7) + 3 : late));
  t.equal(learnStartFit(offsets(40))?.close, 50);
  t.equal(learnStartFit(offsets(3000))?.close, 50, "two of 200 are later");
  const spread = Array.from({ length: 200 }, (_, n) => n);
  t.equal(learnStartFit(spread)?.close, 99);
  const seconds = Array.from({ length: 200 }, (_, n) => n * 50);
  t.equal(learnStartFit(seconds)?.close, 3000, "never more than what began with a request at all");
  t.equal(learnStartFit(offsets(40).slice(0, 19)), null);
  t.end();
});

t.test("a difference is reported with the numbers of both sides", (t) => {
  const { rows } = reconcile(
    [a],
    [row("1", { request_id: "x", output_tokens: 1343, billed_microdollars: 9000 })],
    matchContext(),
  );
  t.equal(
    rows[0]?.reason,
    "the same request id; output tokens are 342 here and 1,343 in the console; list price $0.00542 × 1.5 is $0.00813, and $0.009 was billed",
  );
  t.end();
});

t.test("another model is reported, and is no difference", (t) => {
  const { rows } = reconcile([a], [row("1", { request_id: "x", model: "gpt-6" })], matchContext());
  t.match(rows, [
    {
      verdict: "matched",
      reason: "the same request id; the console lists model gpt-6, asked for was gpt-5.1",
    },
  ]);
  t.end();
});

t.test("a row matched by id has the record's key", (t) => {
  t.equal(reconcile([a], [row("1", { request_id: "x", key: null })], matchContext()).rows[0]?.key, "…a1b2");
  t.end();
});

t.test("a record's numbers are those of all its rows: money summed, refunds taken off", (t) => {
  const rows = [
    row("1", { request_id: "x" }),
    row("2", { request_id: "x", billed_microdollars: 30, list_microdollars: 20, output_tokens: 1 }),
    row("3", { request_id: "x", kind: "refund", billed_microdollars: 100, list_microdollars: null }),
    row("4", { request_id: "x", kind: "error", billed_microdollars: null, list_microdollars: null }),
  ];
  t.same(reconcile([a], rows, matchContext()).records[0]?.theirs, {
    input_tokens: 1200,
    cache_read_tokens: 800,
    cache_write_tokens: 0,
    output_tokens: 342,
    list_microdollars: 5440,
    billed_microdollars: 8060,
    multiplier: 1.5,
    service_tier: null,
  });
  t.end();
});

t.test("a refund of more than the request cost leaves nothing to pay", (t) => {
  const rows = [
    row("1", { request_id: "x" }),
    row("2", { request_id: "x", kind: "refund", billed_microdollars: -3_000_000, list_microdollars: null }),
  ];
  t.match(reconcile([a], rows, matchContext()).records[0]?.theirs, {
    output_tokens: 342,
    billed_microdollars: 0,
  });
  t.end();
});

t.test("a WebSocket's numbers are the sums of all its requests", (t) => {
  const socket = left("a", { upgraded: true, status: 101 });
  const [judged] = reconcile([socket], [row("1"), row("2")], matchContext()).records;
  t.match(judged?.theirs, { output_tokens: 684, billed_microdollars: 16_260 });
  t.end();
});

longTest(t, "thousands of alike requests without ids or starts are counted, with and without tokens", (t) => {
  const size = 4000;
  const time = (at: number) => THEN + at * 10;
  const rows = Array.from({ length: size }, (_, at) => row(`row-${at}`, { at: time(at) + 400 }));
  for (const [what, given] of Object.entries({
    "with tokens": {},
    "without tokens": { tokens: null, exact: false },
  })) {
    const requests = Array.from({ length: size }, (_, at) =>
      request(`r${String(at).padStart(5, "0")}`, { ...given, ended_at: time(at) }),
    );
    const found = reconcile(requests, rows, matchContext({ hands_out_ids: false }));
    t.equal(found.rows.filter(({ how }) => how === "sum").length, size, what);
    t.equal(found.records.filter(({ verdict }) => verdict === "matched").length, size, what);
    const oneMore = [...rows, row("foreign", { at: time(size / 2) + 1 })];
    const doubtful = reconcile(requests, oneMore, matchContext({ hands_out_ids: false }));
    const foreign = doubtful.rows.filter(({ verdict, certain }) => verdict === "foreign" && !certain);
    t.ok(foreign.length > 0, `${what}: one more row than requests is suspected`);
  }
  t.end();
});
