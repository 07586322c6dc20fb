import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Test } from "tap";
import { type Clock, systemClock } from "../../src/clock.ts";
import { type Daemon, startDaemon } from "../../src/daemon.ts";
import { hashToken, makeToken } from "../../src/identity/token.ts";
import { findPlaces, type Places } from "../../src/places.ts";

/** A whole daemon on a free port in a folder of its own, stopped and removed when the test ends. */
export interface DaemonUnderTest {
  readonly daemon: Daemon;
  readonly places: Places;
  readonly home: string;
  /** http://127.0.0.1:port */
  readonly url: string;
  /** Every log line so far, parsed. */
  log(): Record<string, unknown>[];
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
  // Short, because a unix socket lies below it.
  const home = options.home ?? (await mkdtemp(join(tmpdir(), "kb-")));
  const places = findPlaces({ env: { KEYBEARER_HOME: home }, home });
  const lines: string[] = [];
  const save = async (text: string) => {
    await writeFile(places.config, withListen(text), { mode: 0o600 });
    await chmod(places.config, 0o600);
  };
  if (config !== null) await save(config);
  const daemon = await startDaemon({
    places,
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
    places,
    home,
    url: `http://127.0.0.1:${daemon.port}`,
    log: () => lines.map((line) => JSON.parse(line)),
    logText: () => lines.join(""),
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
