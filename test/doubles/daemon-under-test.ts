// A whole daemon in the process of the test, with a home of its own.
import { randomBytes } from "node:crypto";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Test } from "tap";
import { type Clock, systemClock } from "../../src/core/clock.ts";
import { findPaths, type Paths } from "../../src/core/paths.ts";
import { hashToken, makeToken } from "../../src/core/token.ts";
import { type Daemon, startDaemon } from "../../src/daemon/daemon.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { recordsIn } from "./usage-file.ts";

/** A whole daemon on a free port in a folder of its own, stopped and removed when the test ends. */
export interface DaemonUnderTest {
  readonly daemon: Daemon;
  readonly paths: Paths;
  readonly home: string;
  /** http://127.0.0.1:port */
  readonly url: string;
  /** Every log line so far, parsed. */
  log(): Record<string, unknown>[];
  /** The records of the requests that have ended. */
  ended(): UsageRecord[];
  /** Everything written to the log, as text. */
  logText(): string;
  /** Replaces config.yaml in place. */
  save(config: string): Promise<void>;
}

export interface UnderTestOptions {
  readonly env?: NodeJS.ProcessEnv;
  readonly clock?: Clock;
  /** A folder to use instead of a new one, for a second start. */
  readonly home?: string;
}

/** null: no config.yaml, so the sandbox serves. `listen: localhost:0` is put in front unless the text has a listen. */
export async function startUnderTest(
  t: Test,
  config: string | null,
  options: UnderTestOptions = {},
): Promise<DaemonUnderTest> {
  // Short, because it contains a unix socket.
  const home = options.home ?? (await mkdtemp(join(tmpdir(), "kb-")));
  const paths = findPaths({ env: { KEYBEARER_HOME: home }, home });
  const lines: string[] = [];
  // Tests read the log again and again while they wait, so each line is parsed once.
  const parsed: Record<string, unknown>[] = [];
  const log = () => {
    for (const line of lines.slice(parsed.length)) parsed.push(JSON.parse(line));
    return [...parsed];
  };
  const save = async (text: string) => {
    await writeFile(paths.config, withListen(text), { mode: 0o600 });
    await chmod(paths.config, 0o600);
  };
  if (config !== null) await save(config);
  const daemon = await startDaemon({
    paths,
    env: options.env ?? {},
    logTo: { write: (line: string) => void lines.push(line) },
    clock: options.clock ?? systemClock,
    sandboxListen: { host: "localhost", port: 0 },
  });
  t.teardown(async () => {
    await daemon.stop(0);
    if (options.home === undefined) await rm(home, { recursive: true, force: true });
  });
  return {
    daemon,
    paths,
    home,
    url: `http://127.0.0.1:${daemon.port}`,
    log,
    logText: () => lines.join(""),
    ended: () => recordsIn(paths.usage).filter(({ end }) => end !== null),
    save,
  };
}

function withListen(text: string): string {
  return /^listen:/m.test(text) ? text : `listen: localhost:0\n${text}`;
}

/** A token and the line that lets it in. */
export function freshToken(): { readonly token: string; readonly hash: string } {
  const token = makeToken();
  return { token, hash: `sha256:${hashToken(token)}` };
}

/** A daemon in this process on a home that has its config.yaml, for tests of what commands say to one. */
export async function serveIn(
  t: Test,
  home: string,
): Promise<{ readonly daemon: Daemon; readonly url: string; readonly port: number }> {
  const { daemon, url } = await startUnderTest(t, null, { home });
  return { daemon, url, port: daemon.port };
}

/** A key that no other test has, to look for wherever it must not be. */
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

/** It still answers, nothing failed inside it, and no secret is in its log. */
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
