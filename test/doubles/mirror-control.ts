// For commands of the mirror: a control socket with given answers, and reports to answer with.
import { mkdir } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import type { Test } from "tap";
import type { Alarm, ComparedRow, MirrorReport, VerdictCounts } from "../../src/mirror/report/shape.ts";
import { newHome } from "./command.ts";
import { consoleRow } from "./console-row.ts";

interface Question {
  /** POST /login/main */
  readonly route: string;
  readonly body: unknown;
}

/** The answer to each route, or a promise of it, by the body it received. An Error becomes status 400. */
export type Said = Readonly<Record<string, (body: unknown) => unknown>>;

/** A control socket in a home of its own that gives these answers, and keeps what it was asked. */
export async function startMirrorControl(t: Test, said: Said) {
  const home = await newHome(t);
  await mkdir(join(home, "run"), { mode: 0o700 });
  const asked: Question[] = [];
  const server = createServer(async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req as AsyncIterable<Buffer>) chunks.push(chunk);
    const route = `${req.method} ${req.url}`;
    const body = chunks.length === 0 ? null : JSON.parse(Buffer.concat(chunks).toString("utf8"));
    asked.push({ route, body });
    const answer = (await said[route]?.(body)) ?? new Error("no such control");
    const failed = answer instanceof Error;
    res.writeHead(failed ? 400 : 200, { "content-type": "application/json" });
    res.end(JSON.stringify(failed ? { error: answer.message } : answer));
  });
  await new Promise<void>((resolve) => server.listen(join(home, "run", "control.sock"), resolve));
  t.teardown(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return { home, asked };
}

export const NO_ROWS: VerdictCounts = {
  total: 0,
  by_id: 0,
  by_pair: 0,
  by_sum: 0,
  presumed: 0,
  differs: 0,
  pending: 0,
  foreign_certain: 0,
  foreign_suspected: 0,
  elsewhere: 0,
  before: 0,
  unwatched: 0,
  companion: 0,
  duplicate: 0,
};

/** A console where all is well, except for what is given. Rows that are not given are 0. */
export function mirrorReport(
  now: number,
  more: Partial<Omit<MirrorReport, "rows">> & { readonly rows?: Partial<MirrorReport["rows"]> } = {},
): MirrorReport {
  return {
    gateway: "main",
    kind: "sub2api",
    detected: true,
    url: "https://gateway.example.com",
    state: "ok",
    why: null,
    next: null,
    last_sync: now - 12_000,
    next_sync: now + 288_000,
    progress: null,
    skew: 200,
    alarms: [],
    watched_since: now - 12 * 86_400_000,
    account: null,
    records: { matched: 0, differs: 0, pending: 0, missing: 0 },
    newest_row: now - 40_000,
    tools: [],
    models: [],
    elsewhere: [],
    unseen_machines: [],
    blind: [],
    ...more,
    rows: { ...NO_ROWS, ...more.rows },
  };
}

export function alarm(now: number, more: Partial<Alarm> = {}): Alarm {
  return {
    gateway: "main",
    key: "…a1b2",
    certain: true,
    reason: "no request that passed here has this id",
    tools: ["codex"],
    count: 3,
    models: ["gpt-5.1"],
    billed_microdollars: 420_000,
    first_at: now - 600_000,
    last_at: now - 180_000,
    ips: ["203.0.113.7"],
    replaced: false,
    ...more,
  };
}

/** A row and a record of one request, whose output differs. */
export function comparedRow(now: number): ComparedRow & {
  readonly row: NonNullable<ComparedRow["row"]>;
  readonly record: NonNullable<ComparedRow["record"]>;
} {
  return {
    gateway: "main",
    verdict: "differs",
    reason: "output tokens: 342 here, 400 there",
    row: {
      ...consoleRow({
        identity: "id:901",
        created_at: now - 59_000,
        key_ref: "id:12",
        request_id: "client:5f0c",
        output_tokens: 400,
        duration_ms: 2300,
        ip: "198.51.100.4",
      }),
      at: now - 60_000,
      began: now - 62_290,
      verdict: "differs",
      how: "id",
      certain: false,
      key: "…a1b2",
      reason: "output tokens: 342 here, 400 there",
    },
    record: {
      id: "01JCABCD",
      started_at: now - 62_300,
      sent_at: now - 62_300,
      ended_at: now - 60_000,
      tool: "codex",
      key: "…a1b2",
      model: "gpt-5.1",
      stream: true,
      end: "complete",
      status: 200,
      input_tokens: 1200,
      cache_read_tokens: 800,
      cache_write_tokens: 0,
      output_tokens: 342,
      tokens_from: "reported",
      list_microdollars: 5420,
      cost_microdollars: 8130,
      billed_microdollars: 9000,
      gateway_ids: { "x-client-request-id": "5f0c" },
      machine: null,
      user_agent: null,
    },
  };
}
