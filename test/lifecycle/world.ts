// For tests of key changes: a console, a config.yaml and stored keys in memory, and daemons that end after so many effects.
import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeSource, type Tool } from "../../src/config/schema.ts";
import { type KeyState, Snapshot } from "../../src/config/snapshot.ts";
import { systemClock } from "../../src/core/clock.ts";
import { Secret } from "../../src/core/secret.ts";
import type { KeyPlace } from "../../src/keys/stored-keys.ts";
import { type Intent, IntentFile } from "../../src/lifecycle/intents.ts";
import { KeyLifecycle } from "../../src/lifecycle/lifecycle.ts";
import type { Probed } from "../../src/lifecycle/steps.ts";
import type { KeyStorage } from "../../src/lifecycle/storage.ts";
import { ConsoleError, type KeyActions, type KeyPlan } from "../../src/mirror/consoles/console.ts";
import type { KeyReport } from "../../src/mirror/report/shape.ts";
import { configOf } from "../doubles/parsed-config.ts";
import { quietLog } from "../doubles/quiet-log.ts";

/** The process that dies at its n-th effect, either just before it happens or just after. */
class Fuse {
  left: number;
  isBurnt = false;

  constructor(left: number) {
    this.left = left;
  }

  async around<Done>(effect: () => Done | Promise<Done>): Promise<Done> {
    this.#burn();
    const done = await effect();
    this.#burn();
    return done;
  }

  #burn(): void {
    this.left -= 1;
    if (this.left < 0) this.isBurnt = true;
    if (this.isBurnt) throw new Error("killed");
  }
}

interface LiveKey {
  readonly ref: string;
  readonly name: string;
  readonly key: Secret;
}

/** Everything that outlives a killed daemon: the console, the stored keys, config.yaml and the intents. */
export class World {
  readonly folder = mkdtempSync(join(tmpdir(), "keybearer-lifecycle-"));
  readonly live: LiveKey[] = [];
  readonly stored = new Map<string, Secret>();
  readonly takesOwnKeys: boolean;
  /** The path of each tool's key in config.yaml. */
  readonly named = new Map([["codex", "/keys/codex"]]);
  #refs = 0;
  #snapshots = 0;
  /** What the console answers instead of creating a key. */
  refusal: ConsoleError | null = null;
  /** The console refuses to delete keys. */
  keepsKeys = false;
  /** What the console lists of its keys, beside the usual. */
  facts: Partial<KeyReport> = {};
  /** The settings of the keys that it was asked for. */
  readonly asked: KeyPlan["settings"][] = [];
  /** What the gateway says about a key that exists. */
  verdict: Probed = { state: "accepted" };
  /** The other machines that use the tool's key. */
  users: string[] = [];
  /** What they were notified of. */
  readonly notified: { readonly key: string; readonly successor: string }[] = [];
  /** Happens during the next pause. */
  onPause: () => void = () => {};

  /** @param hasKey false: the tool waits for its first key */
  constructor(takesOwnKeys: boolean, hasKey: boolean) {
    this.takesOwnKeys = takesOwnKeys;
    if (hasKey) this.stored.set("/keys/codex", this.addKey("first").key);
  }

  addKey(name: string, key = new Secret(`sk-${randomBytes(24).toString("hex")}`)): LiveKey {
    this.#refs += 1;
    const made = { ref: `id:${this.#refs}`, name, key };
    this.live.push(made);
    return made;
  }

  /** How many keys there ever were. */
  get made(): number {
    return this.#refs;
  }

  clean(): void {
    rmSync(this.folder, { recursive: true });
  }

  get intentFile(): string {
    return join(this.folder, "key-changes.json");
  }

  intentText(): string {
    return readFileSync(this.intentFile, "utf8");
  }

  /** A daemon. @param effects it is killed at this one */
  async start(effects = Number.POSITIVE_INFINITY): Promise<Daemon> {
    const fuse = new Fuse(effects);
    const intents = new FusedIntents(this.intentFile, fuse);
    intents.load(0);
    const lifecycle = new KeyLifecycle({
      clock: systemClock,
      log: quietLog([]),
      intents,
      snapshot: () => this.#snapshot(),
      storage: () => this.#storage(fuse),
      trust: () => ({
        digestOf: (key) => key.digest("salt"),
        isKnown: () => false,
        isPinned: () => true,
        claim: async () => {},
        admit: async () => null,
      }),
      consoles: {
        keyActions: async () => this.#actions(fuse),
        now: () => systemClock.now(),
        listKeys: async () => this.live.map((key) => this.report(key)),
        noteDeleted: () => {},
        startSync: () => {},
      },
      siblings: {
        findUsers: () => this.users,
        noteRotated: async ({ key, successor }) => void this.notified.push({ key, successor }),
      },
      report: () => {},
      probe: async (_gateway, key) => {
        const isLive = this.live.some((one) => one.key.equals(key));
        return fuse.around(() =>
          isLive ? this.verdict : { state: "refused", problem: "unknown key", next: "" },
        );
      },
      whenUnused: () => fuse.around(() => {}),
      pause: () => fuse.around(() => this.onPause()),
    });
    return { lifecycle, intents, fuse };
  }

  /** The tool's key as a request would use it; null: it has none. */
  usedKey(tool = "codex"): Secret | null {
    return this.stored.get(this.named.get(tool) ?? "") ?? null;
  }

  #snapshot(): Snapshot {
    const tools = [...this.named].map(([tool, path]) => `${tool}: { key: "file:${path}" }`);
    const config = configOf(
      `gateways: { main: { base_url: "https://gateway.example.com/v1" } }\ntools: { ${tools.join(", ")} }\n`,
    );
    const states = new Map<string, KeyState>();
    for (const tool of this.named.keys()) {
      const key = this.usedKey(tool);
      states.set(
        tool,
        key === null ? { state: "unavailable", problem: "none", next: null } : { state: "ready", key },
      );
    }
    this.#snapshots += 1;
    return new Snapshot(this.#snapshots, config, states, []);
  }

  #storage(fuse: Fuse): KeyStorage {
    const pathOf = (place: KeyPlace) => (place.kind === "file" ? place.path : "");
    return {
      placeOf: ({ key }: Tool) => (key.kind === "file" ? key : null),
      isPlaceFor: () => true,
      isOwn: () => true,
      nextPlace: async () => ({ kind: "file", path: `/keys/codex-${randomBytes(4).toString("hex")}` }),
      read: (place) => fuse.around(() => this.stored.get(pathOf(place)) ?? null),
      write: (place, key) => fuse.around(() => void this.stored.set(pathOf(place), key)),
      use: (tool, place, before) =>
        fuse.around(() => {
          const path = this.named.get(tool) ?? "";
          if (pathOf(place) !== path && describeSource({ kind: "file", path }) !== before)
            throw new Error("config.yaml was changed");
          this.named.set(tool, pathOf(place));
        }),
      isNamed: async (place) => [...this.named.values()].includes(pathOf(place)),
      remove: (place) => fuse.around(() => void this.stored.delete(pathOf(place))),
    };
  }

  #actions(fuse: Fuse): KeyActions {
    return {
      takesOwnKeys: this.takesOwnKeys,
      needsGroup: true,
      groups: async () => ["coding"],
      create: (plan: KeyPlan) =>
        fuse.around(() => {
          if (this.refusal !== null) throw this.refusal;
          this.asked.push(plan.settings);
          const known = this.live.find(({ name }) => name === plan.name);
          return known ?? this.addKey(plan.name, plan.key ?? undefined);
        }),
      find: (name) => fuse.around(() => this.live.find((key) => key.name === name)?.ref ?? null),
      setEnabled: async () => {},
      delete: (ref) =>
        fuse.around(() => {
          if (this.keepsKeys) throw new ConsoleError("refused", "does not let users delete keys");
          const at = this.live.findIndex((key) => key.ref === ref);
          if (at !== -1) this.live.splice(at, 1);
        }),
    };
  }

  report({ ref, name, key }: LiveKey): KeyReport {
    const facts = {
      group: "coding",
      multiplier: 1,
      quota: null,
      unlimited: true,
      quota_used: null,
      windows: [],
    };
    const times = { created_at: 0, expires_at: null, last_used_at: null, as_of: 0 };
    const tools = [...this.named.keys()].filter((tool) => this.usedKey(tool)?.equals(key));
    const known = { gateway: "main", ref, name, key: key.fingerprint, tools };
    return { ...known, state: "active", ...facts, ...times, ...this.facts };
  }
}

export interface Daemon {
  readonly lifecycle: KeyLifecycle;
  readonly intents: IntentFile;
  readonly fuse: Fuse;
}

class FusedIntents extends IntentFile {
  readonly #fuse: Fuse;

  constructor(file: string, fuse: Fuse) {
    super(file);
    this.#fuse = fuse;
  }

  override put(intent: Intent): Promise<void> {
    return this.#fuse.around(() => super.put(intent));
  }

  override remove(intent: Intent): Promise<void> {
    return this.#fuse.around(() => super.remove(intent));
  }
}
