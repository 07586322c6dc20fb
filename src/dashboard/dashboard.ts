import type { Dashboard as Settings } from "../config/shape.ts";
import { reason } from "../reason.ts";
import { type Access, createAccess } from "./access.ts";
import { type Door, type DoorMeans, openDoor } from "./door.ts";

export interface DashboardMeans extends DoorMeans {
  readonly settings: () => Settings;
  /** After so long without use the port closes, unless it is to be open always. Default 15 minutes. */
  readonly quietMs?: number;
}

export interface Opened {
  readonly url: string;
  /** Belongs behind the address: #code=… */
  readonly code: string;
  /** Whole seconds. */
  readonly expires_in: number;
}

const QUIET_MS = 15 * 60_000;

/** When the dashboard's port is open, and for whom. */
export class Dashboard {
  readonly #means: DashboardMeans;
  readonly #access: Access;
  #door: Door | null = null;
  /** What the door was opened with. */
  #listen = "";
  #usedAt = 0;
  #timer: NodeJS.Timeout | null = null;
  #stopped = false;
  #queue: Promise<unknown> = Promise.resolve();

  constructor(means: DashboardMeans) {
    this.#means = means;
    const access = createAccess(means.clock);
    const admits = (token: string) => {
      const admitted = access.admits(token);
      if (admitted) this.#used();
      return admitted;
    };
    this.#access = { ...access, admits };
  }

  /** For whoever asked over the control socket. Throws, in words, where it cannot be. */
  open(peer: string): Promise<Opened> {
    return this.#inTurn(async () => {
      const { settings, log } = this.#means;
      if (this.#stopped) throw new Error("keybearer is stopping");
      if (settings().when === "never")
        throw new Error(
          "the dashboard is switched off in config.yaml → write dashboard: { when: asked }, then keybearer open",
        );
      const { url } = await this.#unlock();
      this.#used();
      const { code, expiresIn } = this.#access.issue();
      log.info({ peer }, "a code for the dashboard was given out");
      return { url, code, expires_in: expiresIn };
    });
  }

  /** The configuration in force may say something else about it. */
  follow(): Promise<void> {
    return this.#inTurn(async () => {
      const { settings, log } = this.#means;
      if (this.#stopped) return;
      const { when, listen } = settings();
      if (when === "never" || this.#listen !== JSON.stringify(listen))
        await this.#lock("config.yaml says so");
      if (when !== "always") return;
      // Tools go on being served: the dashboard is only for looking.
      await this.#unlock().catch((error) => log.error(`the dashboard could not be opened: ${reason(error)}`));
    });
  }

  stop(): Promise<void> {
    this.#stopped = true;
    return this.#inTurn(() => this.#lock("keybearer stops"));
  }

  async #unlock(): Promise<Door> {
    if (this.#door !== null) return this.#door;
    const settings = this.#means.settings();
    const door = await openDoor(this.#means, settings, this.#access);
    this.#door = door;
    this.#listen = JSON.stringify(settings.listen);
    this.#used();
    this.#watchUse(door);
    this.#means.log.info(`the dashboard is open on ${door.addresses.join(" and ")}`);
    return door;
  }

  /** Sessions do not outlive the port: whoever gets it next must not be shown a token that is still good. */
  async #lock(why: string): Promise<void> {
    const door = this.#door;
    this.#door = null;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#access.forget();
    if (door === null) return;
    await door.close();
    this.#means.log.info(`the dashboard is closed: ${why}`);
  }

  #used(): void {
    this.#usedAt = this.#means.clock.elapsed();
  }

  /** An open page that shows what happens is use as well: one that nobody sees ends its stream by itself. */
  #watchUse(door: Door): void {
    const { clock, settings, quietMs = QUIET_MS } = this.#means;
    const left = this.#usedAt + quietMs - clock.elapsed();
    this.#timer = setTimeout(
      () => {
        if (door.followers() > 0 || settings().when === "always") this.#used();
        const quiet = clock.elapsed() - this.#usedAt >= quietMs;
        if (quiet) void this.#inTurn(() => this.#lock("nobody used it for a while"));
        else this.#watchUse(door);
      },
      Math.max(1, left),
    );
    this.#timer.unref();
  }

  /** One opening or closing at a time. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#queue.then(work);
    this.#queue = mine.catch(() => {});
    return mine;
  }
}
