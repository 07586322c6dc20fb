import { join } from "node:path";
import type { Test } from "tap";
import type { Tool } from "../../src/config/schema.ts";
import { type KeyState, SHARED_PASSWORD, SHARED_SECRET, Snapshot } from "../../src/config/snapshot.ts";
import { type Clock, systemClock } from "../../src/core/clock.ts";
import { Secret } from "../../src/core/secret.ts";
import { createTicker } from "../../src/core/ticker.ts";
import type { Ask } from "../../src/limits/counters.ts";
import { type Lease, Limiter, type Taken } from "../../src/limits/limiter.ts";
import { systemCalendar } from "../../src/limits/windows.ts";
import { Shared } from "../../src/shared/shared.ts";
import { UsageLog } from "../../src/usage/usage-log.ts";
import { configOf } from "../doubles/parsed-config.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { until } from "../doubles/until.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";
import { newFolder } from "../usage/journal/journal-under-test.ts";
import type { StoreServer } from "./redis.ts";

export const ONE: Ask = { tokens: 0, spend: 0 };

/** What takes a second in a daemon. */
const TICK_MS = 20;

interface MachineOptions {
  /** Of the tool `codex`, as in config.yaml. */
  readonly settings: string;
  readonly clock?: Clock;
  readonly port?: number;
  readonly whenUnreachable?: "grant" | "refuse";
  /** With which it signs. Default none. */
  readonly secret?: string;
  /** Default zoneAtNoon(). null: config.yaml has none. */
  readonly timezone?: string | null;
  /** The state folder. Default a new one. */
  readonly folder?: string;
}

/** The limits of one machine in this process, connected to a real store. */
export class LimiterMachine {
  readonly limiter: Limiter;
  readonly shared: Shared;
  readonly folder: string;
  readonly #snapshotWith: (tool: string, settings: string, machine?: string) => Snapshot;
  readonly #settings: string;
  #snapshot: Snapshot;
  /** The tools whose requests were cut. */
  readonly cut: string[] = [];

  constructor(t: Test, store: StoreServer, name: string, options: MachineOptions) {
    const { settings, clock = systemClock, port = store.port, whenUnreachable = "grant" } = options;
    const { timezone = zoneAtNoon(), folder = newFolder(t), secret } = options;
    this.#snapshotWith = (tool, settings, machine = name) => {
      const config = configOf(
        [
          "gateway: https://gateway.example.com/v1",
          `tools: { ${tool}: { ${settings} } }`,
          "shared:",
          `  store: { url: "redis://127.0.0.1:${port}", username: ${store.username}, password: "${store.password}" }`,
          `  machine: ${machine}`,
          ...(timezone === null ? [] : [`  timezone: ${timezone}`]),
          `  when_unreachable: ${whenUnreachable}`,
          ...(secret === undefined ? [] : [`  secret: ${secret}`]),
        ].join("\n"),
      );
      const password = { state: "ready", key: new Secret(store.password) } as const;
      const keys = new Map<string, KeyState>([[SHARED_PASSWORD, password]]);
      if (secret !== undefined) keys.set(SHARED_SECRET, { state: "ready", key: new Secret(secret) });
      return new Snapshot(1, config, keys, []);
    };
    this.#settings = settings;
    this.#snapshot = this.#snapshotWith("codex", settings);
    const ticker = createTicker(TICK_MS);
    this.folder = folder;
    this.limiter = new Limiter(clock, systemCalendar);
    const usage = new UsageLog({
      folder: join(folder, "usage"),
      index: join(folder, "index.db"),
      clock,
      ticker,
      log: quietLog(),
      sync: "normal",
      keep: () => 400 * 86_400_000,
      limiter: this.limiter,
    });
    t.teardown(() => usage.stop());
    this.shared = new Shared({
      file: join(folder, "shared.json"),
      clock,
      ticker,
      log: quietLog(),
      limiter: this.limiter,
      snapshot: () => this.#snapshot,
      usage: () => usage,
      journalFolder: join(folder, "usage"),
      cut: (tool) => this.cut.push(tool),
    });
    t.teardown(() => this.shared.stop());
  }

  /** The only tool. */
  get tool(): Tool {
    const [tool] = Object.values(this.#snapshot.config.tools);
    if (tool === undefined) throw new Error("there is no tool");
    return tool;
  }

  /** Another config.yaml is saved, with other settings of the tool. */
  configure(settings: string): void {
    this.#apply(this.#snapshotWith(this.tool.name, settings));
  }

  /** Another config.yaml is saved, in which the tool has another name. Unless expected, it is another tool. */
  rename(to: string, settings: string, isExpected = true): void {
    if (isExpected) this.limiter.expectRename({ from: this.tool.name, to });
    this.#apply(this.#snapshotWith(to, settings));
  }

  /** Another config.yaml is saved, in which the machine has another name. */
  callMachine(name: string): void {
    this.#apply(this.#snapshotWith(this.tool.name, this.#settings, name));
  }

  /** Another config.yaml is saved, in which nothing is shared. */
  stopSharing(): void {
    const { config } = this.#snapshot;
    this.#apply(new Snapshot(1, { ...config, shared: null }, new Map(), []));
  }

  #apply(snapshot: Snapshot): void {
    this.#snapshot = snapshot;
    this.shared.change(snapshot);
    this.limiter.change(snapshot.config);
  }

  connected(): Promise<void> {
    return until("it is connected", () => this.shared.status()?.state === "connected");
  }

  async take(ask: Ask = ONE): Promise<Taken> {
    const lease = this.limiter.takeNow(this.tool, ask);
    if (lease !== null) return { ok: true, lease };
    return await this.limiter.take(
      this.tool,
      { ask, model: null, lacksModel: false, mayWait: true },
      () => {},
    );
  }

  /** What became of one request that ends at once. */
  async send(ask: Ask = ONE): Promise<string> {
    const taken = await this.take(ask);
    if (!taken.ok) return taken.refusal?.code ?? "left";
    this.end(taken.lease);
    return "go";
  }

  end(lease: Lease): void {
    this.limiter.settle(lease, { tokens: null, spend: null });
  }
}
