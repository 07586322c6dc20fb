import { readFile, rm } from "node:fs/promises";
import type { Listen } from "../config/schema.ts";
import { writePrivateFile } from "../core/private-file.ts";
import { MOST_SESSIONS } from "./access.ts";

/** What is left of a session when the daemon restarts. From a hash, nobody makes the token. */
export interface KeptSession {
  /** SHA-256 of the token, in hex. */
  readonly hash: string;
  /** Milliseconds UTC. */
  readonly used_at: number;
}

/** Where sessions wait for the daemon to come back. */
export interface SessionFile {
  /** Those of the same address; none where the file is not there, or is not what was written. */
  read(listen: Listen): Promise<readonly KeptSession[]>;
  /** Whole or not at all. Throws. */
  write(listen: Listen, sessions: readonly KeptSession[]): Promise<void>;
  remove(): Promise<void>;
}

export function createSessionFile(file: string): SessionFile {
  return {
    async read(listen) {
      const text = await readFile(file, "utf8").catch(() => "");
      try {
        const kept: unknown = JSON.parse(text);
        if (!isObject(kept) || kept.listen !== inWords(listen) || !Array.isArray(kept.sessions)) return [];
        const sessions: unknown[] = kept.sessions;
        return sessions.filter(isKept).slice(-MOST_SESSIONS);
      } catch {
        return [];
      }
    },
    async write(listen, sessions) {
      await writePrivateFile(file, `${JSON.stringify({ listen: inWords(listen), sessions })}\n`);
    },
    remove: () => rm(file, { force: true }),
  };
}

function inWords({ host, port }: Listen): string {
  return `${host}:${port}`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function isKept(value: unknown): value is KeptSession {
  if (!isObject(value)) return false;
  const { hash, used_at } = value;
  return typeof hash === "string" && /^[\da-f]{64}$/.test(hash) && Number.isSafeInteger(used_at);
}
