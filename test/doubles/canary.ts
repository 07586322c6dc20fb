import { randomBytes } from "node:crypto";
import type { Test } from "tap";
import {
  type DaemonUnderTest,
  freshToken,
  startUnderTest,
  type UnderTestOptions,
} from "./daemon-under-test.ts";

/** A key that nobody else has, to be looked for wherever it must not be. */
export function canaryKey(): string {
  return `sk-canary-${randomBytes(24).toString("hex")}`;
}

export interface OneTool extends DaemonUnderTest {
  readonly token: string;
  readonly key: string;
  readonly port: number;
  readonly host: string;
}

export interface OneToolOptions extends UnderTestOptions {
  /** Lines below the gateway, such as `websockets: true`. */
  readonly gateway?: readonly string[];
  /** Lines below the tool. */
  readonly tool?: readonly string[];
  /** Default: origin and /v1. */
  readonly baseUrl?: string;
}

/** A daemon with one gateway, `main`, and one tool, `codex`. */
export async function startWithOneTool(
  t: Test,
  origin: string,
  options: OneToolOptions = {},
): Promise<OneTool> {
  const { token, hash } = freshToken();
  const key = canaryKey();
  const under = await startUnderTest(
    t,
    [
      "gateways:",
      "  main:",
      `    base_url: ${options.baseUrl ?? `${origin}/v1`}`,
      ...(options.gateway ?? []).map((line) => `    ${line}`),
      "tools:",
      "  codex:",
      `    key: ${key}`,
      `    token: ${hash}`,
      ...(options.tool ?? []).map((line) => `    ${line}`),
      "",
    ].join("\n"),
    options,
  );
  return { ...under, token, key, port: under.daemon.port, host: `127.0.0.1:${under.daemon.port}` };
}

/** After whatever happened: it still answers, nothing failed inside it, and no secret is in its log. */
export async function stillHealthy(
  t: Test,
  under: DaemonUnderTest,
  secrets: readonly string[],
): Promise<void> {
  const answer = await fetch(`${under.url}/healthz`);
  t.equal(answer.status, 200, "the daemon is healthy");
  await answer.text();
  t.strictSame(
    under.log().filter((line) => line.level === "error" || line.level === "fatal"),
    [],
    "nothing failed inside",
  );
  for (const secret of secrets) {
    t.notOk(under.logText().includes(secret), "no secret is in the log");
  }
}
