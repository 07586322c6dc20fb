import { type ScheduledTask, schedule } from "node-cron";
import type { Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { advice } from "../core/advice.ts";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import { errorMessage } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import type { Secret } from "../core/secret.ts";
import { DAY_MS, MINUTE_MS } from "../core/units.ts";
import type { Alarm, KeyReport } from "../mirror/report/shape.ts";
import type { IntentFile, Reason } from "./intents.ts";
import type { KeyLifecycle } from "./lifecycle.ts";
import type { Consoles, LifecycleDeps } from "./steps.ts";

interface AutomaticDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly snapshot: () => Snapshot;
  readonly consoles: Pick<Consoles, "listKeys" | "now">;
  readonly intents: Pick<IntentFile, "lastReplaced" | "noteReplaced">;
  readonly lifecycle: Pick<KeyLifecycle, "rotate" | "replace">;
  /** The keys that other machines rotated and deleted, by their signed message. */
  readonly rotatedElsewhere: () => readonly RotatedElsewhere[];
  readonly probe: LifecycleDeps["probe"];
  /** Called after each rotation, with a sentence for `status`. */
  readonly onRotated: (what: string) => void;
}

interface RotatedElsewhere {
  readonly machine: string;
  /** Fingerprint of the key that was deleted. */
  readonly key: string;
  /** How the console names the new one. */
  readonly successor: string;
}

/** A thief spends: after a failure the next attempt comes soon. */
const RETRY_LEAK_MS = 10 * MINUTE_MS;

/**
 * Rotates keys without a person: when they are old (`rotate_every`), when they leaked (`on_leak: rotate`), and when another
 * machine did that with a key which this one uses, too.
 */
export class AutomaticRotation {
  readonly #deps: AutomaticDeps;
  #task: ScheduledTask | null = null;
  /** Tools whose key is being rotated now. */
  readonly #busy = new Set<string>();
  /** When a rotation last failed, by tool. */
  readonly #failed = new Map<string, number>();
  /** When a key was last rotated because of its age, by tool. */
  readonly #rotated = new Map<string, number>();
  /** Tools and keys that the gateway accepts, although another machine says that it deleted such a key. */
  readonly #accepted = new Set<string>();

  constructor(deps: AutomaticDeps) {
    this.#deps = deps;
  }

  /** Checks the ages of keys now, and every hour from now on: at the minute of the start. */
  start(): void {
    const { clock, log } = this.#deps;
    const check = () => background(this.checkAges(), log, "checking the age of keys");
    const hourly = `${new Date(clock.now()).getMinutes()} * * * *`;
    this.#task = schedule(hourly, check, { unref: true, suppressMissedWarning: true });
    // The machine slept.
    this.#task.on("execution:missed", check);
    check();
  }

  async stop(): Promise<void> {
    await this.#task?.destroy();
  }

  /** Rotates every key that is older than its tool allows, one after the other. */
  async checkAges(): Promise<void> {
    const { snapshot } = this.#deps;
    const tools = Object.values(snapshot().config.tools).filter(
      ({ rotateEvery, enabled }) => rotateEvery !== null && enabled,
    );
    const lists = new Map<string, readonly KeyReport[]>();
    for (const tool of tools) {
      const { name } = tool;
      // A console that lists a wrong age for its newest key must not make us rotate it every hour.
      const isRecent = this.#isWithin(this.#rotated, name, DAY_MS);
      if (isRecent || this.#isWithin(this.#failed, name, DAY_MS) || !(await this.#isOld(tool, lists)))
        continue;
      if (await this.#rotate(name, "age")) this.#rotated.set(name, this.#deps.clock.now());
    }
  }

  /** The open alarms of one gateway. */
  onAlarms(alarms: readonly Alarm[]): void {
    const { snapshot, log } = this.#deps;
    const current = snapshot();
    for (const { certain, key, tools } of alarms) {
      if (!certain) continue;
      for (const name of tools) {
        const tool = current.config.tools[name];
        if (tool === undefined || tool.onLeak !== "rotate") continue;
        const state = current.keyOf(tool);
        // An alarm stays open after the key was rotated.
        if (state.state !== "ready" || state.key.fingerprint !== key) continue;
        background(this.#rotateLeaked(name), log, `rotating the key of ${name}`);
      }
    }
  }

  async #rotateLeaked(tool: string): Promise<void> {
    const { intents, clock } = this.#deps;
    const now = clock.now();
    if (!this.#mayReplace(tool)) return;
    this.#busy.add(tool);
    try {
      if (await this.#rotate(tool, "leak")) await intents.noteReplaced(tool, now);
    } finally {
      this.#busy.delete(tool);
    }
  }

  /** Replaces the keys that other machines rotated and deleted, one after the other. Called every few seconds. */
  async checkSiblings(): Promise<void> {
    for (const rotated of this.#deps.rotatedElsewhere()) {
      const snapshot = this.#deps.snapshot();
      for (const tool of Object.values(snapshot.config.tools)) {
        const state = snapshot.keyOf(tool);
        if (!tool.enabled || tool.watchOnly) continue;
        if (state.state !== "ready" || state.key.fingerprint !== rotated.key) continue;
        if (this.#mayReplace(tool.name) && !this.#accepted.has(nameOf(tool, rotated)))
          await this.#replace(tool, state.key, rotated);
      }
    }
  }

  /** A signed message is not enough: it may be old, and fingerprints are short. Only a key that the gateway refuses is replaced. */
  async #replace(tool: Tool, key: Secret, rotated: RotatedElsewhere): Promise<void> {
    const { lifecycle, intents, probe, snapshot, log, clock, onRotated } = this.#deps;
    const { name } = tool;
    this.#busy.add(name);
    try {
      const probed = await probe(snapshot().gatewayOf(tool), key, true);
      if (probed.state === "accepted") this.#accepted.add(nameOf(tool, rotated));
      if (probed.state === "unclear") this.#failed.set(name, clock.now());
      if (probed.state !== "refused") return;
      const change = await lifecycle.replace(name, rotated.successor);
      await intents.noteReplaced(name, clock.now());
      const what = `gave ${name} a key of its own, because machine ${rotated.machine} deleted the one that both used`;
      log.warn({ tool: name, old: change.old, new: change.new }, what);
      onRotated(what);
    } catch (error) {
      this.#failed.set(name, clock.now());
      log.error(
        { tool: name },
        `machine ${rotated.machine} deleted the key, and ${name} got no key of its own: ${errorMessage(error)} → ${advice.rotate(name)}`,
      );
    } finally {
      this.#busy.delete(name);
    }
  }

  /** At most once a day: a thief who can read one key here can read the next one. */
  #mayReplace(tool: string): boolean {
    const { intents, clock } = this.#deps;
    const last = intents.lastReplaced(tool);
    const isTooSoon = last !== null && Math.abs(clock.now() - last) < DAY_MS;
    return !isTooSoon && !this.#busy.has(tool) && !this.#isWithin(this.#failed, tool, RETRY_LEAK_MS);
  }

  /** @param lists the keys of the gateways that this check has asked already */
  async #isOld(
    { name, gateway, rotateEvery }: Tool,
    lists: Map<string, readonly KeyReport[]>,
  ): Promise<boolean> {
    const { consoles, log } = this.#deps;
    try {
      const keys = lists.get(gateway) ?? (await consoles.listKeys(gateway));
      lists.set(gateway, keys);
      // The successor of a disabled key would be active.
      const key = keys.find(({ tools, state }) => tools.includes(name) && state !== "disabled");
      const created = key?.created_at ?? null;
      // By the console's clock: with ours far ahead, every start would rotate the newest key.
      return rotateEvery !== null && created !== null && consoles.now(gateway) - created >= rotateEvery;
    } catch (error) {
      // The mirror reports a console that cannot be read.
      log.debug({ tool: name }, `the age of the key is not known: ${errorMessage(error)}`);
      return false;
    }
  }

  #isWithin(times: ReadonlyMap<string, number>, tool: string, milliseconds: number): boolean {
    const time = times.get(tool);
    return time !== undefined && Math.abs(this.#deps.clock.now() - time) < milliseconds;
  }

  /** False: it failed, and that was logged. */
  async #rotate(tool: string, reason: Reason): Promise<boolean> {
    const { lifecycle, log, clock, onRotated } = this.#deps;
    const because = reason === "leak" ? "because it leaked" : "because of its age";
    try {
      const change = await lifecycle.rotate(tool, { reason, store: null, force: false, renew: false });
      this.#failed.delete(tool);
      log[reason === "leak" ? "warn" : "info"](
        { tool, old: change.old, new: change.new },
        `the key was rotated ${because}`,
      );
      onRotated(`rotated the key of ${tool} ${because}`);
      return true;
    } catch (error) {
      this.#failed.set(tool, clock.now());
      log.error(
        { tool },
        `the key could not be rotated ${because}: ${errorMessage(error)} → ${advice.rotate(tool)}`,
      );
      return false;
    }
  }
}

function nameOf({ name }: Tool, { key, successor }: RotatedElsewhere): string {
  return `${name} ${key} ${successor}`;
}
