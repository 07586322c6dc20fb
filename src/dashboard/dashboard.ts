import type { Dashboard as Settings } from "../config/schema.ts";
import type { DashboardStatus } from "../control/status.ts";
import { background } from "../core/background.ts";
import { errorMessage, HttpError } from "../core/errors.ts";
import { type Access, createAccess } from "./access.ts";
import { type Door, type DoorDeps, openDoor } from "./door.ts";
import { REDIRECT_MS, removeRedirects } from "./redirect-file.ts";
import type { SessionFile } from "./session-file.ts";

export interface DashboardDeps extends DoorDeps {
  readonly settings: () => Settings;
  /** After so long without use the port closes, unless it is to be open always. Default 15 minutes. */
  readonly quietMs?: number;
  /** Between two tries at a port that is taken, where it is to be open always. Default 10 s. */
  readonly retryMs?: number;
  /** null: sessions end with the daemon. */
  readonly kept: SessionFile | null;
  /** The folder in which `keybearer open` may leave a page that leads here. */
  readonly run: string;
}

export interface Opened {
  readonly url: string;
  /** Belongs behind the address: #code=… */
  readonly code: string;
  /** Whole seconds. */
  readonly expires_in: number;
}

const QUIET_MS = 15 * 60_000;
const RETRY_MS = 10_000;
/** So much of their last use sessions may lose when the daemon is killed. */
const SAVE_MS = 60_000;

/** When the dashboard's port is open, and for whom. */
export class Dashboard {
  readonly #deps: DashboardDeps;
  readonly #access: Access;
  #door: Door | null = null;
  /** What the door was opened with. */
  #listen = "";
  #usedAt = 0;
  #timer: NodeJS.Timeout | null = null;
  #saver: NodeJS.Timeout | null = null;
  #retry: NodeJS.Timeout | null = null;
  /** Why it is not open though it is to be. */
  #why: string | null = null;
  #looked = false;
  #stopped = false;
  #queue: Promise<unknown> = Promise.resolve();

  constructor(deps: DashboardDeps) {
    this.#deps = deps;
    const access = createAccess(deps.clock);
    const admits = (token: string) => {
      const admitted = access.admits(token);
      if (admitted) this.#used();
      return admitted;
    };
    const hold = (token: string) => {
      const leave = access.hold(token);
      return () => {
        leave();
        this.#used();
      };
    };
    const trade = (code: string) => {
      const traded = access.trade(code);
      if (traded.ok) this.#inBackground("keeping a dashboard session", () => this.#save());
      return traded;
    };
    this.#access = { ...access, admits, hold, trade };
  }

  /** For whoever asked over the control socket. Throws an HttpError where it cannot be opened. */
  open(peer: string): Promise<Opened> {
    return this.#inTurn(async () => {
      const { settings, log } = this.#deps;
      if (this.#stopped) throw new HttpError(503, "keybearer is stopping");
      await this.#restore();
      if (settings().when === "never")
        throw new HttpError(
          400,
          "the dashboard is switched off in config.yaml → write dashboard: { when: asked }, then keybearer open",
        );
      const { url } = await this.#unlock().catch((error) => {
        throw new HttpError(503, errorMessage(error));
      });
      this.#used();
      const { code, expiresIn } = this.#access.issue();
      log.info({ peer }, "a code for the dashboard was given out");
      this.#sweepLater();
      return { url, code, expires_in: expiresIn };
    });
  }

  /** Opens or closes the port as the configuration in force says. Tools are served whether or not that works. */
  follow(): Promise<void> {
    return this.#inTurn(async () => {
      const { settings } = this.#deps;
      if (this.#stopped) return;
      await this.#restore();
      const { when, listen } = settings();
      if (when === "never" || this.#listen !== JSON.stringify(listen)) await this.#end("config.yaml says so");
      if (when !== "always") this.#why = null;
      else await this.#unlock().catch((error) => this.#tryLater(errorMessage(error)));
    });
  }

  status(): DashboardStatus {
    return { mode: this.#deps.settings().when, address: this.#door?.url ?? null, why: this.#why };
  }

  /** Sessions stay in their file: a page goes on by itself when the daemon is back soon. */
  stop(): Promise<void> {
    this.#stopped = true;
    return this.#inTurn(async () => {
      await this.#save();
      await this.#lock("keybearer stops");
      await this.#removeRedirects();
    });
  }

  /** The first thing of all: what a daemon before this one left. Whoever looked a moment ago goes on looking. */
  async #restore(): Promise<void> {
    if (this.#looked) return;
    this.#looked = true;
    const { settings, clock, log, kept, quietMs = QUIET_MS } = this.#deps;
    await this.#removeRedirects();
    if (kept === null) return;
    const { when, listen } = settings();
    const age = ({ used_at }: { readonly used_at: number }) => clock.now() - used_at;
    const good = (await kept.read(listen)).filter((one) => age(one) >= 0 && age(one) < quietMs);
    if (when === "never" || good.length === 0) return this.#removeSessions();
    this.#access.restore(good);
    try {
      await this.#unlock();
      this.#usedAt = clock.elapsed() - Math.min(...good.map(age));
    } catch (error) {
      await this.#end("its port is taken");
      if (when === "asked") log.error(`the dashboard could not be opened again: ${errorMessage(error)}`);
    }
  }

  #tryLater(why: string): void {
    const { log, retryMs = RETRY_MS } = this.#deps;
    if (why !== this.#why) log.error(`the dashboard could not be opened: ${why}`);
    this.#why = why;
    if (this.#retry !== null) clearTimeout(this.#retry);
    this.#retry = setTimeout(() => background(this.follow(), log, "opening the dashboard"), retryMs);
    this.#retry.unref();
  }

  async #unlock(): Promise<Door> {
    if (this.#door !== null) return this.#door;
    const settings = this.#deps.settings();
    const door = await openDoor(this.#deps, settings, this.#access);
    this.#door = door;
    this.#listen = JSON.stringify(settings.listen);
    this.#why = null;
    this.#used();
    this.#watchUse(door);
    this.#saver = setInterval(
      () => this.#inBackground("keeping the dashboard's sessions", () => this.#save()),
      SAVE_MS,
    );
    this.#saver.unref();
    this.#deps.log.info(`the dashboard is open on ${door.addresses.join(" and ")}`);
    return door;
  }

  /** Sessions do not outlive a port that is given up: nobody who gets it next is shown a token that is still good. */
  async #end(why: string): Promise<void> {
    await this.#lock(why);
    await this.#removeSessions();
  }

  async #removeSessions(): Promise<void> {
    const { kept, log } = this.#deps;
    await kept
      ?.remove()
      .catch((error) => log.warn(`the dashboard's sessions could not be removed: ${errorMessage(error)}`));
  }

  async #lock(why: string): Promise<void> {
    const door = this.#door;
    this.#door = null;
    for (const timer of [this.#timer, this.#saver, this.#retry]) if (timer !== null) clearTimeout(timer);
    this.#access.forget();
    if (door === null) return;
    await door.close();
    this.#deps.log.info(`the dashboard is closed: ${why}`);
  }

  #used(): void {
    this.#usedAt = this.#deps.clock.elapsed();
  }

  /** An open page that shows what happens is use as well: one that nobody sees ends its stream by itself. */
  #watchUse(door: Door): void {
    const { clock, settings, quietMs = QUIET_MS } = this.#deps;
    const left = this.#usedAt + quietMs - clock.elapsed();
    this.#timer = setTimeout(
      () => {
        if (door.followers() > 0 || settings().when === "always") this.#used();
        const quiet = clock.elapsed() - this.#usedAt >= quietMs;
        if (quiet)
          this.#inBackground("closing the dashboard", () => this.#end("it was not used for a while"));
        else this.#watchUse(door);
      },
      Math.max(1, left),
    );
    this.#timer.unref();
  }

  async #save(): Promise<void> {
    const { kept, settings, log } = this.#deps;
    const sessions = this.#access.sessions();
    const { listen } = settings();
    if (kept === null || this.#door === null || this.#listen !== JSON.stringify(listen)) return;
    // A port that is another one next time is not found by any page.
    if (sessions.length === 0 || listen.port === 0) return;
    await kept
      .write(listen, sessions)
      .catch((error) => log.warn(`the dashboard's sessions could not be kept: ${errorMessage(error)}`));
  }

  /** A page that `keybearer open` left for the browser holds a code. */
  #sweepLater(): void {
    const { clock } = this.#deps;
    const sweep = () =>
      this.#inBackground("removing redirect pages", () => this.#removeRedirects(clock.now()));
    // A moment later than the code: it was written a moment after the code was made.
    setTimeout(sweep, REDIRECT_MS + 5000).unref();
  }

  /** Those that are no longer good at the time `now`; all of them without one. */
  async #removeRedirects(now?: number): Promise<void> {
    const { run, log } = this.#deps;
    await removeRedirects(run, now).catch((error) =>
      log.warn(`a page that leads to the dashboard could not be removed: ${errorMessage(error)}`),
    );
  }

  #inBackground(what: string, work: () => Promise<void>): void {
    background(this.#inTurn(work), this.#deps.log, what);
  }

  /** One opening or closing at a time. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#queue.then(work);
    this.#queue = mine.catch(() => {});
    return mine;
  }
}
