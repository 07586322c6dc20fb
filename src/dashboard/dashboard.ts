import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { OpenAnswer } from "../control/routes.ts";
import type { DashboardStatus } from "../control/status.ts";
import { advice } from "../core/advice.ts";
import { background } from "../core/background.ts";
import { errorMessage, HttpError } from "../core/errors.ts";
import { Semaphore } from "../core/semaphore.ts";
import { MINUTE_MS } from "../core/units.ts";
import { SidePortRetry } from "../proxy/server.ts";
import { WaitingActions } from "./actions/waiting.ts";
import { Bookmarks, bookmarkProblem } from "./bookmarks/bookmarks.ts";
import type { DashboardDeps } from "./deps.ts";
import { removeRedirects } from "./redirect-file.ts";
import { Api } from "./routes.ts";
import { type OpenServer, openServer, type PageFiles, readPageFiles } from "./server.ts";
import { readSessions, Sessions, writeSessions } from "./sessions.ts";

const TIMING = {
  /** After this time without use the port closes, unless it is open always. */
  closeAfterMs: 15 * MINUTE_MS,
  /** Between two attempts at a taken port, if it is open always. */
  retryMs: 10_000,
  /** How often an open one is looked after. A daemon that is killed loses this much of the sessions' last use. */
  upkeepMs: MINUTE_MS,
};

/** Opens and closes the dashboard's port, and keeps its sessions over a restart of the daemon. */
export class Dashboard {
  readonly #deps: DashboardDeps;
  readonly #timing: typeof TIMING;
  readonly #sessions: Sessions;
  /** What pages asked for, and a person has to confirm. */
  readonly confirmations: WaitingActions;
  readonly bookmarks: Bookmarks;
  readonly #api: Api;
  readonly #files: PageFiles | null;
  /** null: sessions end with the daemon. */
  readonly #sessionFile: string | null;
  readonly #upkeepTimer: NodeJS.Timeout;
  #server: OpenServer | null = null;
  readonly #retry: SidePortRetry;
  #restored = false;
  #stopped = false;
  /** Opening and closing must not overlap. */
  readonly #turn = new Semaphore(1);

  constructor(deps: DashboardDeps, timing = TIMING) {
    this.#deps = deps;
    this.#timing = timing;
    this.#sessions = new Sessions(deps.clock, () =>
      this.#inBackground("saving a dashboard session", () => this.#saveSessions()),
    );
    this.confirmations = new WaitingActions(deps.clock);
    this.bookmarks = new Bookmarks({
      file: deps.paths.browsers,
      clock: deps.clock,
      log: deps.log,
      sessions: this.#sessions,
      problem: () => bookmarkProblem(this.#settings().when, deps.peers.supported),
    });
    this.#api = new Api(deps, this.#sessions, this.confirmations, this.bookmarks);
    this.#files = readPageFiles();
    this.#retry = new SidePortRetry("the dashboard", deps.log, () => this.applyConfig(), timing.retryMs);
    // While the daemon restarts, another user could take the port and receive a page's token. Where the user of a
    // connection is unknown, tokens must not be valid after that.
    this.#sessionFile = deps.peers.supported ? join(deps.paths.run, "dashboard-sessions.json") : null;
    const upkeep = () => this.#inBackground("looking after the dashboard", () => this.#upkeep());
    this.#upkeepTimer = setInterval(upkeep, timing.upkeepMs).unref();
  }

  /** For a caller at the control socket. Throws an HttpError if it cannot be opened. */
  open(peer: string): Promise<OpenAnswer> {
    return this.#turn.run(async () => {
      if (this.#stopped) throw new HttpError(503, "keybearer is stopping");
      await this.#restoreSessions();
      if (this.#settings().when === "never") {
        const next = `write dashboard: { when: asked }, then ${advice.open()}`;
        throw new HttpError(400, { problem: "the dashboard is switched off in config.yaml", next });
      }
      const { url } = await this.#openPort().catch((error) => {
        throw new HttpError(503, errorMessage(error));
      });
      this.#sessions.touch();
      const { code, expiresInSeconds } = this.#sessions.issueCode();
      this.#deps.log.info({ peer }, "issued a code for the dashboard");
      return { url, code, expires_in: expiresInSeconds };
    });
  }

  /** Opens or closes the port as the configuration says. Tools are served whether or not that works. */
  applyConfig(): Promise<void> {
    return this.#turn.run(async () => {
      if (this.#stopped) return;
      await this.#restoreSessions();
      const { when, listen } = this.#settings();
      if (when === "never" || !this.#server?.isOn(listen))
        await this.#closeAndEndSessions("the configuration changed");
      if (when !== "always") this.#retry.end();
      else await this.#openPort().catch((error) => this.#retry.later(errorMessage(error)));
    });
  }

  status(): DashboardStatus {
    return { mode: this.#settings().when, address: this.#server?.url ?? null, why: this.#retry.problem };
  }

  /** The session file stays, so that open pages continue if the daemon is back soon. */
  stop(): Promise<void> {
    this.#stopped = true;
    this.confirmations.stop();
    this.#retry.end();
    clearInterval(this.#upkeepTimer);
    return this.#turn.run(async () => {
      await this.#saveSessions();
      await this.#close("keybearer is stopping");
    });
  }

  #settings() {
    return this.#deps.reload.snapshot.config.dashboard;
  }

  /** Takes over what the previous daemon left: pages that were open a moment ago continue. */
  async #restoreSessions(): Promise<void> {
    if (this.#restored) return;
    this.#restored = true;
    const { clock, log } = this.#deps;
    await this.#removeRedirects();
    if (this.#sessionFile === null) return;
    const { when, listen } = this.#settings();
    const stored = await readSessions(this.#sessionFile, listen);
    const remembered = this.bookmarks.remembered();
    const valid = stored.filter(({ used_at, browser }) => {
      const age = clock.now() - used_at;
      const isRecent = age >= 0 && age < this.#timing.closeAfterMs;
      return isRecent && (browser === null || remembered.has(browser));
    });
    if (when === "never" || valid.length === 0) return this.#removeSessionFile();
    this.#sessions.restore(valid);
    try {
      await this.#openPort();
      const lastUse = Math.max(...valid.map(({ used_at }) => used_at));
      this.#sessions.touch(clock.now() - lastUse);
    } catch (error) {
      await this.#closeAndEndSessions("its port is taken");
      if (when === "asked") log.error(`could not open the dashboard again: ${errorMessage(error)}`);
    }
  }

  async #openPort(): Promise<OpenServer> {
    if (this.#server !== null) return this.#server;
    if (this.#files === null)
      throw new Error("this keybearer was built without the dashboard → npm run build, then restart it");
    this.#server = await openServer(this.#settings().listen, this.#api, this.#files);
    this.#retry.end();
    this.#sessions.touch();
    return this.#server;
  }

  async #upkeep(): Promise<void> {
    if (this.#server === null) return;
    // A page that follows the events counts as use: hidden pages end their stream themselves.
    if (this.#api.live.followers > 0 || this.#settings().when === "always") this.#sessions.touch();
    if (this.#sessions.unusedForMs() >= this.#timing.closeAfterMs)
      return this.#closeAndEndSessions("it was not used for a while");
    this.bookmarks.endForgotten();
    await this.#saveSessions();
    await this.#removeRedirects(this.#deps.clock.now());
  }

  /** Sessions end with the port: the program that gets the port next must not receive a valid token. */
  async #closeAndEndSessions(reason: string): Promise<void> {
    await this.#close(reason);
    await this.#removeSessionFile();
  }

  async #close(reason: string): Promise<void> {
    const server = this.#server;
    this.#server = null;
    this.#sessions.endAll();
    await this.#removeRedirects();
    if (server === null) return;
    await server.close();
    this.#deps.log.info(`closed the dashboard: ${reason}`);
  }

  async #saveSessions(): Promise<void> {
    const sessions = this.#sessions.toStore();
    const { listen } = this.#settings();
    if (this.#sessionFile === null || !this.#server?.isOn(listen)) return;
    // Port 0 is another port next time, and no page finds it.
    if (listen.port === 0) return;
    // The file may still have one that was revoked.
    if (sessions.length === 0) return this.#removeSessionFile();
    await this.#orWarn("save the dashboard's sessions", writeSessions(this.#sessionFile, listen, sessions));
  }

  async #removeSessionFile(): Promise<void> {
    if (this.#sessionFile !== null)
      await this.#orWarn("remove the dashboard's sessions", rm(this.#sessionFile, { force: true }));
  }

  /** A page that `keybearer open` wrote for the browser contains a code. @param now without it, all are removed */
  #removeRedirects(now?: number): Promise<void> {
    return this.#orWarn("remove a redirect page", removeRedirects(this.#deps.paths.run, now));
  }

  async #orWarn(what: string, work: Promise<void>): Promise<void> {
    await work.catch((error) => this.#deps.log.warn(`could not ${what}: ${errorMessage(error)}`));
  }

  #inBackground(what: string, task: () => Promise<void>): void {
    background(this.#turn.run(task), this.#deps.log, what);
  }
}
