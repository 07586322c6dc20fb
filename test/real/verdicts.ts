import type { GatewayRow } from "./gateway.ts";
import type { ExportedRecord, JudgedRow } from "./keybearer.ts";
import { APART, type Kind, PAIRED, type TestRequest } from "./traffic.ts";

/**
 * A person who compares both logs by hand knows when a request began: keybearer's record says it, and the console's row
 * says it to the millisecond (new-api in its request id, sub2api by its duration). Two starts that differ by more than this
 * are not the same. On two busy cores 1,707 requests reached new-api after 2 to 188 ms.
 */
const SAME_START_MS = 500;
/** The mirror takes a row without an id only as close as nearly all others are, and not if another is nearly as close. */
const OWN_START_MS = 50;
const RIVAL_MS = 150;
/** On two busy cores 99 of 100 requests began within 47 to 86 ms of the others. A foreign row this close may be matched. */
const HOLE_MS = 90;

/**
 * What was sent may arrive after its client left or the daemon was killed. On two overloaded cores a request reached new-api
 * 1.5 seconds after its end.
 */
const LATE_MS = 2000;

const COLUMNS = [
  "right record",
  "right, differs",
  "counted",
  "wrong record",
  "foreign certain",
  "foreign suspected",
  "pending",
  "other",
] as const;
type Column = (typeof COLUMNS)[number];

const TRUTHS = [
  "ours, with an id",
  "ours, without one",
  "ours, ambiguous",
  "foreign, clear",
  "foreign, ambiguous",
] as const;
type Truth = (typeof TRUTHS)[number];

export interface Comparison {
  readonly requests: readonly TestRequest[];
  readonly records: readonly ExportedRecord[];
  readonly rows: readonly JudgedRow[];
  readonly gatewayRows: readonly GatewayRow[];
  /** The markers of requests that reached the provider. */
  readonly seen: Pick<ReadonlySet<string>, "has">;
  /** Requests that the alarms count. */
  readonly alarmed: number;
  /** When the daemon that was started after the `kill -9` served. */
  readonly restartedAt: number;
}

export interface Result {
  readonly table: Readonly<Record<Truth, Readonly<Record<Column, number>>>>;
  readonly figures: Readonly<Record<string, number>>;
  readonly pairs: readonly Paired[];
  /** What misses the goal, each in words; none: it is reached. */
  readonly failures: readonly string[];
}

/** A row of a pair: the foreign one, or ours where our abort was billed. */
export interface Paired {
  readonly foreign: boolean;
  /** What the pair is beside. */
  readonly near: Kind;
  readonly apart: number;
  readonly column: Column;
}

/** A row of the mirror with what really happened. */
interface Known {
  readonly row: JudgedRow;
  readonly gatewayRow: GatewayRow;
  readonly request: TestRequest;
  /** Of our request; null for a foreign one. */
  readonly record: ExportedRecord | null;
}

export function compare(comparison: Comparison): Result {
  const failures: string[] = [];
  const { requests, records, rows, gatewayRows } = comparison;
  const recordOf = matchRecords(requests, records, gatewayRows);
  // While the daemon was down a client may have left before it could connect.
  const lost = requests.filter(
    (request) => !request.foreign && comparison.seen.has(request.marker) && !recordOf.has(request),
  );
  for (const { marker, kind } of lost) failures.push(`${marker} (${kind}) has no record`);

  const byMarker = new Map(requests.map((request) => [request.marker, request]));
  // LiteLLM lists what it refuses itself without the trace id. Its 503 has the id of our record.
  const byRecord = new Map([...recordOf].map(([request, { id }]) => [id, request]));
  const byName = new Map(gatewayRows.map((row) => [row.identity ?? `${row.kind} ${row.requestId}`, row]));
  const known: Known[] = [];
  for (const row of rows) {
    const gatewayRow = byName.get(row.identity) ?? byName.get(`${row.kind} ${row.request_id}`);
    const request = byMarker.get(gatewayRow?.marker ?? "") ?? byRecord.get(gatewayRow?.requestId ?? "");
    if (gatewayRow === undefined || request === undefined) {
      failures.push(`console row ${row.identity} is of no request of this test`);
      continue;
    }
    known.push({ row, gatewayRow, request, record: recordOf.get(request) ?? null });
  }
  const mirrored = new Set(known.map(({ gatewayRow }) => gatewayRow));
  const unread = [...byName.values()].filter((row) => !mirrored.has(row));
  for (const { requestId } of unread) failures.push(`the mirror did not read row ${requestId}`);

  const table = emptyTable();
  const pairs: Paired[] = [];
  const isClear = clearness(known, [...recordOf.values()], comparison.restartedAt);
  for (const one of known) {
    const truth = truthOf(one, isClear(one));
    const column = columnOf(one);
    table[truth][column] += 1;
    const { apart, foreign, near, kind } = one.request;
    if (apart !== null) pairs.push({ foreign, near: near ?? kind, apart, column });
    const matched = records.find(({ id }) => id === one.row.record);
    const sentAt = matched === undefined ? Infinity : timeOf(matched.sent_at ?? matched.started_at);
    const isInHole = Math.abs(sentAt - one.gatewayRow.startedAt) <= HOLE_MS;
    const wrong = failureOf(one, truth, column, isInHole);
    if (wrong !== null) failures.push(wrong);
  }
  const certain = rows.filter(({ verdict, certain }) => verdict === "foreign" && certain === 1).length;
  if (comparison.alarmed !== certain)
    failures.push(`the alarms count ${comparison.alarmed} requests, ${certain} rows are certain`);

  const numbers = compareNumbers(known, failures);
  const rowed = new Set(known.map(({ request }) => request));
  const finished = requests.filter(isWhole);
  return {
    table,
    pairs,
    failures,
    figures: {
      "our requests": requests.filter(({ foreign }) => !foreign).length,
      "foreign requests": requests.filter(({ foreign }) => foreign).length,
      "answered 200 to the end": finished.length,
      "of them without a console row": finished.filter((request) => !rowed.has(request)).length,
      "requests without a record": lost.length,
      "console rows": gatewayRows.length,
      "alarms count": comparison.alarmed,
      ...numbers,
    },
  };
}

/** Which record each of our requests has: by the id in the answer or at the gateway, by the size of the body, or by its time. */
function matchRecords(
  requests: readonly TestRequest[],
  records: readonly ExportedRecord[],
  gatewayRows: readonly GatewayRow[],
): Map<TestRequest, ExportedRecord> {
  const byId = new Map(records.map((record) => [record.id, record]));
  const byLength = new Map(records.map((record) => [record.bytes_in, record]));
  // To LiteLLM a request brings the id of its record.
  const broughtIds = new Map(gatewayRows.map(({ marker, requestId }) => [marker, requestId]));
  const found = new Map<TestRequest, ExportedRecord>();
  const ours = requests.filter(({ foreign }) => !foreign);
  for (const request of ours) {
    const record =
      byId.get(request.recordId ?? "") ??
      byId.get(broughtIds.get(request.marker) ?? "") ??
      byLength.get(request.bodyLength);
    if (record !== undefined) found.set(request, record);
  }
  // A killed daemon could not write how much it had sent. The nearest take each other first, because a client may also have
  // left before the daemon knew its tool, and then its request has no record here.
  const taken = new Set(found.values());
  const near = ours
    .filter((request) => !found.has(request))
    .flatMap((request) =>
      records
        .filter((record) => !taken.has(record) && isLike(record, request))
        .map((record) => ({ request, record, apart: Math.abs(startOf(record) - request.sentAt) })),
    )
    .filter(({ apart }) => apart <= 1000)
    .sort((a, b) => a.apart - b.apart);
  for (const { request, record } of near) {
    if (found.has(request) || taken.has(record)) continue;
    found.set(request, record);
    taken.add(record);
  }
  return found;
}

function isLike(record: ExportedRecord, request: TestRequest): boolean {
  const sameKind = record.stream === null || record.stream === request.stream;
  return sameKind && record.tool === request.tool.tool && record.model === request.model;
}

function startOf({ started_at }: ExportedRecord): number {
  return timeOf(started_at);
}

function timeOf(time: string | number): number {
  return typeof time === "number" ? time : Date.parse(time);
}

function hasId({ gateway_ids }: ExportedRecord): boolean {
  return Object.keys(gateway_ids ?? {}).length > 0;
}

/**
 * Whether a person could say whose a row is. Of a row whose id we have: always. Of others: if no record without an id was
 * in flight when it began, with its key and model, it is foreign; if only one began with it, and no other such row is
 * there, it is ours.
 */
function clearness(
  known: readonly Known[],
  records: readonly ExportedRecord[],
  restartedAt: number,
): (one: Known) => boolean {
  // A failure has no id on old versions of sub2api, but it has a status, and a failure has no row.
  const nameless = records.filter((record) => !hasId(record) && record.status === null);
  const unclaimed = known.filter(({ record }) => record === null || !hasId(record));
  const beganWithin = (record: ExportedRecord, row: GatewayRow, within: number) =>
    Math.abs(startOf(record) - row.startedAt) <= within;
  // Its answer never began, so the log does not show when it reached the gateway: it may have waited for its connection
  // until it ended. Of a killed daemon the log shows only that the next one served later.
  const mayHaveBegun = (record: ExportedRecord, row: GatewayRow) => {
    const end = record.ended_at === null ? restartedAt : timeOf(record.ended_at);
    return row.startedAt >= startOf(record) - SAME_START_MS && row.startedAt <= end + LATE_MS;
  };
  return ({ gatewayRow, request, record, row }) => {
    if (record === null)
      return !nameless.some((other) => isLike(other, request) && mayHaveBegun(other, gatewayRow));
    if (hasId(record)) return true;
    const candidates = nameless.filter(
      (other) => isLike(other, request) && beganWithin(other, gatewayRow, RIVAL_MS),
    );
    const rivals = unclaimed.filter(
      (other) =>
        other.row !== row && isLike(record, other.request) && beganWithin(record, other.gatewayRow, RIVAL_MS),
    );
    return beganWithin(record, gatewayRow, OWN_START_MS) && candidates.length === 1 && rivals.length === 0;
  };
}

function truthOf({ record, request }: Known, clear: boolean): Truth {
  if (request.foreign) return clear ? "foreign, clear" : "foreign, ambiguous";
  if (record !== null && hasId(record)) return "ours, with an id";
  return clear ? "ours, without one" : "ours, ambiguous";
}

function columnOf({ row, record }: Known): Column {
  switch (row.verdict) {
    case "matched":
    case "differs":
      // Several requests of ours that began together, and as many rows: which is which cannot be told.
      if (row.how === "sum" && record !== null) return "counted";
      if (row.record !== record?.id) return "wrong record";
      return row.verdict === "matched" ? "right record" : "right, differs";
    case "foreign":
      return row.certain === 1 ? "foreign certain" : "foreign suspected";
    case "pending":
      return "pending";
    default:
      return "other";
  }
}

function failureOf(
  { row, request, record }: Known,
  truth: Truth,
  column: Column,
  isInHole: boolean,
): string | null {
  const near = request.near === null ? request.kind : `next to: ${request.near}`;
  const said = `${request.marker} (${near}): ${row.verdict} ${row.how ?? ""}: ${row.reason}`;
  // docs/mirror.md names this hole.
  if (column === "wrong record" && request.foreign && isInHole) return null;
  if (column === "wrong record") {
    const is = record === null ? "is foreign" : `belongs to ${record.id}`;
    return `${said}; matched with ${row.record}, ${is}`;
  }
  if (!request.foreign && column === "foreign certain") return `false alarm: ${said}`;
  if (truth === "foreign, clear" && column !== "foreign certain") return `no alarm: ${said}`;
  const isRight = column === "right record" || column === "right, differs" || column === "counted";
  // An error row of a request that also has a use row is a companion of it.
  const isSettled = isRight || (row.kind === "error" && column === "other");
  if ((truth === "ours, with an id" || truth === "ours, without one") && !isSettled)
    return `not matched: ${said}`;
  return null;
}

/** The provider's numbers reached the client. Of a stream that was cut the gateway counts its own. */
function isWhole({ ended, status, kind }: TestRequest): boolean {
  return ended && status === 200 && kind !== "cut";
}

/**
 * The mirror read what the gateway has. Of complete answers the provider's tokens are in our record and in the row, and our
 * cost, computed from the configured prices, is what was billed.
 */
function compareNumbers(known: readonly Known[], failures: string[]): Record<string, number> {
  let compared = 0;
  let ours = 0;
  let theirs = 0;
  for (const { row, gatewayRow, request, record } of known) {
    const { marker } = request;
    const billed = gatewayRow.billedMicrodollars;
    if (row.billed_microdollars !== billed)
      failures.push(
        `${marker}: the mirror read ${row.billed_microdollars} micro-dollars, the gateway has ${billed}`,
      );
    if (record === null || !isWhole(request) || row.kind !== "use") continue;
    compared += 1;
    ours += record.cost_microdollars ?? 0;
    theirs += billed;
    const { input, cacheRead, output } = request.plan;
    const sent = [input, cacheRead, output].join(" ");
    const here = [record.input_tokens, record.cache_read_tokens, record.output_tokens].join(" ");
    const there = [row.input_tokens, row.cache_read_tokens, row.output_tokens].join(" ");
    if (here !== sent || there !== sent)
      failures.push(`${marker}: tokens are ${sent}, our record has ${here}, the row has ${there}`);
    if (record.cost_microdollars !== billed)
      failures.push(`${marker} costs ${record.cost_microdollars} micro-dollars here, ${billed} were billed`);
  }
  return { "tokens and money compared": compared, "our micro-dollars": ours, "their micro-dollars": theirs };
}

function emptyTable(): Record<Truth, Record<Column, number>> {
  const row = () => Object.fromEntries(COLUMNS.map((column) => [column, 0])) as Record<Column, number>;
  return Object.fromEntries(TRUTHS.map((truth) => [truth, row()])) as Record<Truth, Record<Column, number>>;
}

/** As Markdown, for docs/mirror.md. */
export function tableText(table: Result["table"]): string {
  const lines = [`| truth | ${COLUMNS.join(" | ")} |`, `|---|${COLUMNS.map(() => "---:").join("|")}|`];
  for (const truth of TRUTHS)
    lines.push(`| ${truth} | ${COLUMNS.map((column) => table[truth][column]).join(" | ")} |`);
  return lines.join("\n");
}

/** As Markdown: how many foreign rows of each distance got which verdict, and how many rows of ours beside them. */
export function pairsText(pairs: readonly Paired[]): string {
  const shown: readonly (readonly [string, (one: Paired) => boolean])[] = [
    ...PAIRED.map(
      (near) => [`foreign, beside: ${near}`, (one: Paired) => one.foreign && one.near === near] as const,
    ),
    ["ours, beside a foreign one", (one) => !one.foreign],
  ];
  const lines: string[] = [];
  for (const [title, isShown] of shown) {
    lines.push(
      "",
      `| ${title}, ms | ${COLUMNS.join(" | ")} |`,
      `|---|${COLUMNS.map(() => "---:").join("|")}|`,
    );
    for (const apart of APART) {
      const rows = pairs.filter((one) => isShown(one) && one.apart === apart);
      const counts = COLUMNS.map((column) => rows.filter((one) => one.column === column).length);
      lines.push(`| ${apart} | ${counts.join(" | ")} |`);
    }
  }
  return lines.join("\n");
}
