import { constants, type Dirent, type Stats } from "node:fs";
import { type FileHandle, lstat, open, readdir, realpath } from "node:fs/promises";
import { dirname, join, sep } from "node:path";
import type { Clock } from "../core/clock.ts";
import { escapeControlChars } from "../core/display.ts";
import { errorCode, hasCode } from "../core/errors.ts";
import { Secret, type SecretSet } from "../core/secret.ts";
import { withTimeout } from "../core/timeout.ts";
import { isInside } from "../keys/sources.ts";
import { searchGitHistory } from "./git-history.ts";
import { StreamSearch } from "./stream-search.ts";
import { dotfileFolders, type Group, type Place, type TraceKind, tracePlaces } from "./trace-places.ts";

/*
 * Where keys were left behind that nothing can take back: histories, session logs, backups, commits. The values that were
 * found are searched for, so there are no false alarms, and nothing of them is ever part of a result.
 */

export interface TraceDeps {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly cwd: string;
  readonly platform: NodeJS.Platform;
  /** The settings files in which the keys were found. They are not traces themselves, but files beside them may be. */
  readonly files: readonly string[];
  readonly clock: Clock;
  readonly limits?: Partial<TraceLimits>;
}

export interface TraceLimits {
  readonly ms: number;
  /** Of all files together. */
  readonly bytes: number;
  readonly files: number;
  /** Of one repository. */
  readonly gitMs: number;
  readonly gitBytes: number;
}

const LIMITS: TraceLimits = {
  ms: 30_000,
  bytes: 4 * 1024 ** 3,
  files: 20_000,
  gitMs: 10_000,
  gitBytes: 1024 ** 3,
};

export interface Trace {
  /** "~/.bash_history", "2 session logs of Claude Code", "the git history of ~/code/app" */
  readonly where: string;
  readonly kind: TraceKind;
  /** The fingerprints of the keys that are there. */
  readonly keys: readonly string[];
  /** How many files; 1 for a repository. */
  readonly count: number;
}

export interface Unsearched {
  /** As in Trace. */
  readonly where: string;
  /** A few words: "another user's", "the search took too long" */
  readonly problem: string;
}

export interface TraceReport {
  readonly traces: readonly Trace[];
  /** What could hold the keys, too, and was not searched. */
  readonly unsearched: readonly Unsearched[];
}

/** Searches every place that is known for copies of these keys. Changes nothing, and never rejects. */
export async function findTraces(keys: readonly Secret[], deps: TraceDeps): Promise<TraceReport> {
  const different = keys.filter((key, at) => keys.findIndex((other) => other.equals(key)) === at);
  if (different.length === 0) return { traces: [], unsearched: [] };
  const limits = { ...LIMITS, ...deps.limits };
  const search = new TraceSearch(different, deps, limits);
  // A read from a network folder that hangs never ends.
  const isOver = await withTimeout(
    search.run().then(() => true),
    limits.ms + HANGING_MS,
    false,
  );
  if (!isOver) search.stop();
  return search.report();
}

/** A search that is over by its own limit ends within this. */
const HANGING_MS = 2000;
const CHUNK = 1024 * 1024;
const MAX_DEPTH = 12;

const TOO_LONG = "the search took too long";

/** A file to search. */
interface Candidate {
  /** As a person knows it; `real` may be elsewhere. */
  readonly path: string;
  readonly real: string;
  readonly place: Place;
  readonly size: number;
  readonly modified: number;
}

type Found =
  | { readonly ok: true; readonly real: string; readonly stats: Stats }
  | { readonly ok: false; readonly problem: string };

/** What is reported together: a file, a group of files or a repository. */
interface Entry {
  readonly kind: TraceKind;
  readonly name: string;
  readonly group: Group | null;
  readonly keys: Set<Secret>;
  count: number;
  /** How many files were not searched, by the problem. */
  readonly problems: Map<string, number>;
}

class TraceSearch {
  readonly #keys: readonly Secret[];
  readonly #keySet: SecretSet;
  readonly #deps: TraceDeps;
  readonly #limits: TraceLimits;
  readonly #end: number;
  readonly #entries = new Map<string, Entry>();
  /** Real paths: a history file may have two names. */
  readonly #seen = new Set<string>();
  readonly #buffer = Buffer.allocUnsafe(CHUNK);
  #bytes = 0;
  #realHome = "";
  #isStopped = false;
  /** What run() does at the moment, for the report of a search that hangs. */
  #current: Entry | null = null;

  constructor(keys: readonly Secret[], deps: TraceDeps, limits: TraceLimits) {
    this.#keys = keys;
    this.#keySet = Secret.together(keys);
    this.#deps = deps;
    this.#limits = limits;
    this.#end = deps.clock.elapsed() + limits.ms;
  }

  async run(): Promise<void> {
    const { home, files } = this.#deps;
    this.#realHome = await realpath(home).catch(() => home);
    for (const path of files) this.#seen.add(await realpath(path).catch(() => path));
    const places = tracePlaces(this.#deps);
    const isLate = (place: Place) => place.kind === "session";
    for (const place of places.filter((place) => !isLate(place))) await this.#searchPlace(place);
    await this.#searchRepositories();
    for (const place of places.filter(isLate)) await this.#searchPlace(place);
    this.#current = null;
  }

  /** Nothing more is searched or reported. */
  stop(): void {
    this.#isStopped = true;
    if (this.#current !== null) this.#skip(this.#current, TOO_LONG);
    this.#skip(this.#entry({ kind: "session", name: "the places after it", group: null }), TOO_LONG);
  }

  report(): TraceReport {
    const traces: Trace[] = [];
    const unsearched: Unsearched[] = [];
    for (const entry of this.#entries.values()) {
      const keys = this.#keys.filter((key) => entry.keys.has(key)).map((key) => key.fingerprint);
      if (keys.length > 0)
        traces.push({ where: whereOf(entry, entry.count), kind: entry.kind, keys, count: entry.count });
      for (const [problem, count] of entry.problems)
        unsearched.push({ where: whereOf(entry, count), problem });
    }
    return { traces, unsearched };
  }

  get #isOver(): boolean {
    return this.#isStopped || this.#deps.clock.elapsed() >= this.#end;
  }

  async #searchPlace(place: Place): Promise<void> {
    this.#current = this.#placeEntry(place);
    const candidates = await this.#candidatesOf(place);
    // The newest first: with a limit, the rest matters least.
    candidates.sort((a, b) => b.modified - a.modified);
    for (const candidate of candidates) {
      const entry = this.#entryOf(place, candidate.path);
      this.#current = entry;
      const problem = this.#isOver ? TOO_LONG : await this.#searchFile(candidate, entry);
      if (problem !== null) this.#skip(entry, problem);
    }
  }

  /** The regular files of a place that belong to this user. */
  async #candidatesOf(place: Place): Promise<Candidate[]> {
    const candidates: Candidate[] = [];
    const visit = async (path: string, depth: number): Promise<void> => {
      if (this.#isStopped) return;
      const found = await this.#look(path);
      if (found === null) return;
      if (!found.ok) {
        const entry = depth === 0 ? this.#placeEntry(place) : this.#entryOf(place, path);
        return this.#skip(entry, found.problem);
      }
      const { real, stats } = found;
      if (this.#seen.has(real)) return;
      // The number of files is not known then, so the place is named.
      const limit = this.#listingLimit;
      if (limit !== null) return this.#skip(this.#placeEntry(place), limit);
      if (!stats.isDirectory()) {
        this.#seen.add(real);
        candidates.push({ path, real, place, size: stats.size, modified: stats.mtimeMs });
        return;
      }
      if (depth > MAX_DEPTH) return this.#skip(this.#placeEntry(place), "too deep");
      if (depth > 0 && !place.isDeep) return;
      // The folder of a place may be that of several, with other names.
      if (depth > 0) this.#seen.add(real);
      for (const entry of await this.#entriesIn(real, place)) {
        const isWanted = entry.isDirectory() ? place.isDeep : (place.names?.test(entry.name) ?? true);
        if (isWanted) await visit(join(real, entry.name), depth + 1);
      }
    };
    await visit(place.path, 0);
    return candidates;
  }

  get #listingLimit(): string | null {
    if (this.#isOver) return TOO_LONG;
    return this.#seen.size > this.#limits.files ? "too many files" : null;
  }

  async #entriesIn(path: string, { kind }: Place): Promise<Dirent[]> {
    try {
      return await readdir(path, { withFileTypes: true });
    } catch (error) {
      if (!hasCode(error, "ENOENT")) this.#skip(this.#pathEntry(kind, path), readProblem(error));
      return [];
    }
  }

  /** What is at a path, without opening it. null: nothing. */
  async #look(path: string): Promise<Found | null> {
    try {
      const real = await realpath(path);
      if (!(await this.#isOwnWay(path, real))) return { ok: false, problem: "a link out of the home folder" };
      const stats = await lstat(real);
      if (!stats.isFile() && !stats.isDirectory()) return { ok: false, problem: "not a regular file" };
      // Listing another user's folder does no harm, and there may be files of this user in it.
      if (stats.isFile() && !isOwn(stats)) return { ok: false, problem: "another user's" };
      return { ok: true, real, stats };
    } catch (error) {
      return hasCode(error, "ENOENT", "ENOTDIR") ? null : { ok: false, problem: readProblem(error) };
    }
  }

  /** Inside the home folder a link may lead anywhere in it. Outside, as in a project elsewhere, a file may not be one. */
  async #isOwnWay(path: string, real: string): Promise<boolean> {
    const homes = [this.#deps.home, this.#realHome];
    if (homes.includes(real) || isInside(real, homes)) return true;
    return !isInside(path, homes) && !(await lstat(path)).isSymbolicLink();
  }

  /** Returns why it was not searched to its end; null: it was. */
  async #searchFile({ real, size }: Candidate, entry: Entry): Promise<string | null> {
    if (this.#bytes + size > this.#limits.bytes) return "too large";
    const search = new StreamSearch(this.#keys);
    let problem: string | null;
    try {
      const { O_RDONLY, O_NONBLOCK, O_NOFOLLOW } = constants;
      const handle = await open(real, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
      try {
        problem = await this.#readInto(search, handle);
      } finally {
        await handle.close();
      }
    } catch (error) {
      problem = hasCode(error, "ENOENT") ? null : readProblem(error);
    }
    if (!this.#isStopped) this.#add(entry, search.found);
    return search.isComplete ? null : problem;
  }

  async #readInto(search: StreamSearch, handle: FileHandle): Promise<string | null> {
    const stats = await handle.stat();
    if (!stats.isFile() || !isOwn(stats)) return "replaced while it was read";
    // No further than it was long: a session may be writing to it.
    let left = stats.size;
    while (left > 0 && !search.isComplete) {
      if (this.#isOver) return TOO_LONG;
      const { bytesRead } = await handle.read(this.#buffer, 0, Math.min(left, CHUNK), null);
      if (bytesRead === 0) break;
      search.add(this.#buffer.subarray(0, bytesRead));
      this.#bytes += bytesRead;
      left -= bytesRead;
    }
    return null;
  }

  async #searchRepositories(): Promise<void> {
    const { files, cwd, env, home } = this.#deps;
    const starts = new Set([cwd, ...dotfileFolders(this.#deps)]);
    for (const path of files) {
      starts.add(dirname(path));
      starts.add(dirname(await realpath(path).catch(() => path)));
    }
    const roots = new Set<string>();
    for (const start of starts) {
      const root = await repositoryAround(start);
      if (root !== null) roots.add(root);
    }
    for (const root of roots) {
      const name = `the git history of ${this.#shown(root)}`;
      const entry = this.#entry({ kind: "git", name, group: null });
      this.#current = entry;
      const ms = Math.min(this.#limits.gitMs, this.#end - this.#deps.clock.elapsed());
      if (this.#isOver) {
        this.#skip(entry, TOO_LONG);
        continue;
      }
      const limits = { ms, bytes: this.#limits.gitBytes };
      const { found, problem } = await searchGitHistory(root, this.#keys, { env, home }, limits);
      if (this.#isStopped) return;
      this.#add(entry, found);
      if (problem !== null) this.#skip(entry, problem);
    }
  }

  #add(entry: Entry, found: readonly Secret[]): void {
    if (found.length === 0) return;
    entry.count += 1;
    for (const key of found) entry.keys.add(key);
  }

  #skip(entry: Entry, problem: string): void {
    entry.problems.set(problem, (entry.problems.get(problem) ?? 0) + 1);
  }

  #entryOf({ kind, group }: Place, path: string): Entry {
    return group === null ? this.#pathEntry(kind, path) : this.#entry({ kind, name: group.many, group });
  }

  /** A place as a whole, when its files are not known. */
  #placeEntry({ kind, path, copiesOf }: Place): Entry {
    if (copiesOf === null) return this.#pathEntry(kind, path);
    return this.#entry({ kind, name: `copies of ${this.#shown(copiesOf)}`, group: null });
  }

  #pathEntry(kind: TraceKind, path: string): Entry {
    return this.#entry({ kind, name: this.#shown(path), group: null });
  }

  #entry(about: Pick<Entry, "kind" | "name" | "group">): Entry {
    let entry = this.#entries.get(about.name);
    if (entry === undefined) {
      entry = { ...about, keys: new Set(), count: 0, problems: new Map() };
      this.#entries.set(about.name, entry);
    }
    return entry;
  }

  /** A path for people. Its names may hold anything, also a key. */
  #shown(path: string): string {
    const { home } = this.#deps;
    const base = [home, this.#realHome].find((folder) => path.startsWith(folder + sep));
    const short = base === undefined ? path : `~${path.slice(base.length)}`;
    return escapeControlChars(this.#keySet.redactFrom(short));
  }
}

function whereOf({ name, group }: Entry, count: number): string {
  if (group === null) return name;
  return `${count} ${count === 1 ? group.one : group.many}`;
}

function isOwn({ uid }: Stats): boolean {
  return uid === (process.getuid?.() ?? uid);
}

function readProblem(error: unknown): string {
  return hasCode(error, "EACCES", "EPERM") ? "not readable" : `not readable (${errorCode(error)})`;
}

/** The folder of the repository that a folder is in; null: it is in none. */
async function repositoryAround(start: string): Promise<string | null> {
  let folder = await realpath(start).catch(() => null);
  while (folder !== null) {
    const found = await lstat(join(folder, ".git")).catch(() => null);
    if (found !== null) return folder;
    const above = dirname(folder);
    folder = above === folder ? null : above;
  }
  return null;
}
