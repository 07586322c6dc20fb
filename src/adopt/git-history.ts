import { spawn } from "node:child_process";
import { once } from "node:events";
import { isAbsolute } from "node:path";
import { errorCode, hasCode } from "../core/errors.ts";
import type { Secret } from "../core/secret.ts";
import { StreamSearch } from "./stream-search.ts";

/*
 * A repository is untrusted input: a clone, or a folder from an archive. Its config can name programs for nearly
 * everything that git does, so all of them are switched off here, one by one.
 */

const ARGUMENTS = [
  "--no-pager",
  "--no-optional-locks",
  ...["-c", "core.fsmonitor=false"],
  ...["-c", "core.hooksPath=/dev/null"],
  ...["-c", "safe.bareRepository=explicit"],
  "log",
  // Also what no branch has any more: the stash, and commits that were amended.
  "--all",
  "--reflog",
  "--patch",
  // Also what only a merge has changed. A stash is one.
  "--cc",
  // Only the lines that were added or removed. Looking for renames takes long.
  "--unified=0",
  "--no-renames",
  "--format=%B",
  "--no-ext-diff",
  "--no-textconv",
  // It starts gpg.program.
  "--no-show-signature",
  // Else a diff of a submodule starts git there, with that repository's config.
  "--submodule=short",
  "--ignore-submodules=all",
  "--no-color",
  "--no-notes",
  "--no-decorate",
  "--no-mailmap",
];

function environment(env: NodeJS.ProcessEnv, home: string): NodeJS.ProcessEnv {
  // git runs in the repository, where a relative entry would lead into it.
  const path = (env.PATH ?? "").split(":").filter(isAbsolute).join(":");
  const config = env.XDG_CONFIG_HOME;
  return {
    PATH: path,
    // The user's own config says which folders of others are safe (safe.directory).
    HOME: home,
    ...(config === undefined ? {} : { XDG_CONFIG_HOME: config }),
    LC_ALL: "C",
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_ATTR_NOSYSTEM: "1",
    GIT_TERMINAL_PROMPT: "0",
    // A partial clone would fetch what it lacks, with programs and addresses from its config.
    GIT_NO_LAZY_FETCH: "1",
    GIT_ALLOW_PROTOCOL: "none",
    // A replacement would hide the original.
    GIT_NO_REPLACE_OBJECTS: "1",
  };
}

export interface GitLimits {
  readonly ms: number;
  readonly bytes: number;
}

export interface GitSearch {
  readonly found: readonly Secret[];
  /** Why it was not searched to its end; null: it was. */
  readonly problem: string | null;
}

/** Searches all that was ever committed in a repository. Never throws. */
export async function searchGitHistory(
  root: string,
  keys: readonly Secret[],
  { env, home }: { readonly env: NodeJS.ProcessEnv; readonly home: string },
  limits: GitLimits,
): Promise<GitSearch> {
  const search = new StreamSearch(keys);
  let problem: string | null = null;
  try {
    const child = spawn("git", ARGUMENTS, {
      cwd: root,
      env: environment(env, home),
      // Its own process group, so that whatever it starts ends with it.
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
    });
    await once(child, "spawn");
    const ended = once(child, "close");
    const stop = () => killGroup(child.pid);
    const timer = setTimeout(() => {
      problem = "the search took too long";
      stop();
    }, limits.ms);
    let errors = "";
    child.stderr.setEncoding("latin1").on("data", (text: string) => {
      errors = (errors + text).slice(0, MAX_ERRORS);
    });
    try {
      let bytes = 0;
      for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
        search.add(chunk);
        bytes += chunk.length;
        if (bytes > limits.bytes) problem ??= "too large";
        if (search.isComplete || problem !== null) break;
      }
      if (search.isComplete || problem !== null) stop();
      const [code] = await ended;
      if (code !== 0 && !search.isComplete) problem ??= gitProblem(errors);
    } finally {
      clearTimeout(timer);
      stop();
    }
  } catch (error) {
    problem ??= hasCode(error, "ENOENT") ? "git is not installed" : `git did not run (${errorCode(error)})`;
  }
  return { found: search.found, problem: search.isComplete ? null : problem };
}

const MAX_ERRORS = 4096;

/** What git prints may hold anything, so it is never shown. */
function gitProblem(errors: string): string | null {
  if (errors.includes("dubious ownership")) return "another user's";
  return errors.includes("does not have any commits") ? null : "git could not read it";
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // It has ended already.
  }
}
