import type { Test } from "tap";
import type { Tokens } from "../../src/metering/usage.ts";
import { MODELS } from "../../src/sandbox/models.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import {
  type DaemonUnderTest,
  freshToken,
  startUnderTest,
  type UnderTestOptions,
} from "./daemon-under-test.ts";
import { startSandbox, type TestGateway, type TestGatewayOptions } from "./sandbox.ts";
import { finished, finishedWhere } from "./usage-file.ts";

/** The record of an answer, or of a request with this id, once it is finished. */
export function recordFor(under: DaemonUnderTest, answer: Response | string): Promise<UsageRecord> {
  const id = typeof answer === "string" ? answer : answer.headers.get("x-keybearer-request-id");
  return finished(under.paths.usage, id);
}

/** The one record that matches, once it is finished. */
export function recordWhere(
  under: DaemonUnderTest,
  what: string,
  holds: (record: UsageRecord) => boolean,
): Promise<UsageRecord> {
  return finishedWhere(under.paths.usage, what, holds);
}

/** A record does not say which part of a cache is kept for an hour. */
export type RecordTokens = Omit<Tokens, "cacheWriteHour">;

/** The tokens of a record, as one thing to compare; null: it has none. */
export function tokensIn(record: UsageRecord): RecordTokens | null {
  const { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens } = record;
  const counts = [input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens];
  if (counts.every((count) => count === null)) return null;
  const [input, cacheRead, cacheWrite, output, reasoning] = counts.map((count) => count ?? Number.NaN);
  return { input, cacheRead, cacheWrite, output, reasoning } as RecordTokens;
}

/** What the sandbox's console asks for its models, as config.yaml says it. */
export function sandboxPrices(): string {
  const lines = MODELS.map(
    ({ id, price }) =>
      `  ${id}: { input: ${price.input}, output: ${price.output}, cache_read: ${price.cacheRead}, cache_write: ${price.cacheWrite} }`,
  );
  return `prices:\n${lines.join("\n")}\n`;
}

export interface Bench extends DaemonUnderTest {
  readonly sandbox: TestGateway;
  /** Of the tool with these settings. */
  token(tool: string): string;
  /** Of the sandbox. */
  keyId(tool: string): number;
  fetchAs(tool: string, path: string, init?: RequestInit): Promise<Response>;
}

export const MULTIPLIER = 1.35;

/** A sandbox with a group more, and a daemon with a tool for each line of settings. */
export async function startOnSandbox(
  t: Test,
  tools: Readonly<Record<string, string>>,
  options: {
    readonly sandbox?: TestGatewayOptions;
    readonly daemon?: UnderTestOptions;
    /** In config.yaml; default the sandbox's. */
    readonly prices?: string;
  } = {},
): Promise<Bench> {
  const sandbox = await startSandbox(t, options.sandbox);
  sandbox.account.groups.push({
    id: sandbox.account.groups.length + 1,
    name: "dear",
    multiplier: MULTIPLIER,
    models: MODELS,
    enabled: true,
  });
  const tokens = new Map<string, string>();
  const ids = new Map<string, number>();
  const lines: string[] = [];
  for (const [name, settings] of Object.entries(tools)) {
    const { id, key } = sandbox.createKey({ name, group: /group: dear/.test(settings) ? "dear" : "default" });
    const { token, hash } = freshToken();
    tokens.set(name, token);
    ids.set(name, id);
    lines.push(
      `  ${name}: { key: ${key.reveal()}, token: "${hash}"${settings === "" ? "" : `, ${settings}`} }`,
    );
  }
  const config = `gateways:
  main: { base_url: ${sandbox.baseUrl}, groups: { dear: { multiplier: ${MULTIPLIER} } } }
tools:
${lines.join("\n")}
${options.prices ?? sandboxPrices()}`;
  const under = await startUnderTest(t, config, options.daemon);
  const token = (tool: string) => tokens.get(tool) ?? "";
  return {
    ...under,
    sandbox,
    token,
    keyId: (tool) => ids.get(tool) ?? 0,
    fetchAs: (tool, path, init = {}) =>
      fetch(`${under.url}${path}`, {
        method: "POST",
        ...init,
        headers: {
          authorization: `Bearer ${token(tool)}`,
          "content-type": "application/json",
          ...init.headers,
        },
      }),
  };
}
