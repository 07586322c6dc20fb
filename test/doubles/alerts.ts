import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import type { Test } from "tap";
import type { KeyState } from "../../src/config/snapshot.ts";
import { NOTIFY_COMMAND, Snapshot, webhookSecretName, webhookSources } from "../../src/config/snapshot.ts";
import { type Clock, systemClock } from "../../src/core/clock.ts";
import { requestId } from "../../src/core/ids.ts";
import { Secret } from "../../src/core/secret.ts";
import type { Ticker } from "../../src/core/ticker.ts";
import type { Event } from "../../src/events/event.ts";
import type { Desktop } from "../../src/notify/desktop.ts";
import { Notifier } from "../../src/notify/notifier.ts";
import type { Certificate } from "./certificates.ts";
import { listen } from "./listen.ts";
import { configOf } from "./parsed-config.ts";
import { quietLog } from "./quiet-log.ts";

/* What the tests of alerts share: events, receivers, and a notifier whose time the test moves. */

export function eventOf(given: Partial<Event> = {}): Event {
  return {
    id: requestId(Date.now()),
    at: Date.now(),
    kind: "leak",
    severity: "critical",
    subject: "tool codex",
    message: "its key was used by somebody else",
    next: "keybearer mirror",
    state: "begun",
    ...given,
  };
}

export interface Received {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface Receiver {
  /** http://127.0.0.1:port */
  readonly origin: string;
  readonly received: Received[];
  /** What it does with a request. */
  answer: (res: ServerResponse) => void;
}

/** A server that a webhook could call. At first it answers 200 with this body. */
export async function startReceiver(t: Test, body = "ok", secure?: Certificate): Promise<Receiver> {
  const received: Received[] = [];
  const serve = async (
    req: Parameters<Parameters<typeof createServer>[1] & object>[0],
    res: ServerResponse,
  ) => {
    received.push({ path: req.url ?? "", headers: req.headers, body: await text(req) });
    receiver.answer(res);
  };
  const server = secure === undefined ? createServer(serve) : createSecureServer(secure, serve);
  const { origin } = await listen(t, server);
  const receiver: Receiver = {
    origin: secure === undefined ? origin : origin.replace("http:", "https:"),
    received,
    answer: (res) => void res.end(body),
  };
  return receiver;
}

/** A machine without a desktop. */
export const NO_DESKTOP: Desktop = {
  platform: "linux",
  env: { XDG_RUNTIME_DIR: "/nowhere" },
  uid: 0,
  folders: [],
};

/** With every secret that is written in it, as if a person had confirmed everything. */
export function trustedSnapshot(notify: string): Snapshot {
  const config = configOf(
    `gateway: https://gateway.example.com/v1\ntools: { codex: {} }\nnotify: ${notify}\n`,
  );
  const states = new Map<string, KeyState>();
  for (const webhook of Object.values(config.notify.webhooks))
    for (const { secret, source } of webhookSources(webhook))
      if (source.kind === "literal")
        states.set(webhookSecretName(webhook.name, secret), { state: "ready", key: source.secret });
  states.set(NOTIFY_COMMAND, { state: "ready", key: new Secret("") });
  return new Snapshot(1, config, states, []);
}

/** A second passes only when the test says so. */
export class HeldTicker implements Ticker {
  readonly #checks = new Set<() => void>();

  every(_ticks: number, check: () => void): () => void {
    this.#checks.add(check);
    return () => void this.#checks.delete(check);
  }

  get isNeeded(): boolean {
    return this.#checks.size > 0;
  }

  tick(times = 1): void {
    for (let left = times; left > 0; left -= 1) for (const check of this.#checks) check();
  }
}

export interface UnderTest {
  readonly notifier: Notifier;
  readonly ticker: HeldTicker;
  readonly log: string[];
  readonly file: string;
}

interface NotifierOptions {
  readonly file?: string;
  readonly clock?: Clock;
  readonly desktop?: Desktop;
  readonly env?: NodeJS.ProcessEnv;
  readonly timeoutMs?: number;
  readonly isSandbox?: () => boolean;
}

function newFolder(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), "kb-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Its queue is in a folder of its own unless a file is given. */
export function startNotifier(t: Test, notify: string, options: NotifierOptions = {}): UnderTest {
  const log: string[] = [];
  const ticker = new HeldTicker();
  const file = options.file ?? join(newFolder(t), "notify-queue.jsonl");
  const notifier = new Notifier(
    {
      file,
      clock: options.clock ?? systemClock,
      ticker,
      log: quietLog(log),
      env: options.env ?? {},
      desktop: options.desktop ?? NO_DESKTOP,
      isSandbox: options.isSandbox ?? (() => false),
      ...(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }),
    },
    trustedSnapshot(notify),
  );
  t.teardown(() => notifier.stop());
  return { notifier, ticker, log, file };
}
