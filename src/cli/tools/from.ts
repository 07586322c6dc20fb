import { formatScalar } from "../../config/edit-layout.ts";
import { parseConfig } from "../../config/parse.ts";
import type { KeySource } from "../../config/schema.ts";
import type { Paths } from "../../core/paths.ts";
import { isInside, type Reading, readKey } from "../../keys/sources.ts";

export type From = { readonly source: KeySource } | { readonly fault: string };

/** What `--from` means, read as config.yaml would be. It may be a key by mistake, so it is never repeated. */
export function readFrom(text: string, home: string): From {
  if (/^(?:command|op):/.test(text))
    return {
      fault: "a command is written into config.yaml by hand: key: { command: [/absolute/program, argument] }",
    };
  if (!/^(?:env|file|keychain):/.test(text))
    return {
      fault:
        "--from takes env:NAME, file:/PATH or keychain:keybearer/NAME. a key itself is never an argument → --key-stdin",
    };
  const trial = `gateway: https://gateway.example.com/v1\ntools: { x: { key: ${formatScalar(text)} } }\n`;
  const { config, problems } = parseConfig(trial, home);
  const source = config?.tools.x?.key;
  if (source !== undefined) return { source };
  const [problem] = problems;
  return { fault: `--from: ${problem?.message ?? "not understood"} → ${problem?.hint ?? "env:NAME"}` };
}

/** Flags of which one makes no sense beside `--from`; null: all fine. */
export function fromConflict(options: {
  readonly from?: string;
  readonly keyStdin?: boolean;
  readonly store?: string;
}): string | null {
  if (options.from === undefined || (!options.keyStdin && options.store === undefined)) return null;
  return "with --from the key lies where it is: leave --key-stdin and --store out";
}

/**
 * A tool's key where it can be had without running anything, and without opening a file that was not trusted: that is
 * for the daemon, after it has judged. null: not looked.
 */
export async function readOwn(source: KeySource, paths: Paths): Promise<Reading | null> {
  if (source.kind === "command") return null;
  if (source.kind === "file" && !isInside(source.path, paths.own)) return null;
  return readNamed(source, paths);
}

/** The same for one that the person names in this very command. */
export function readNamed(source: KeySource, paths: Paths): Promise<Reading> {
  return readKey(source, { env: process.env, home: paths.own, notKeys: paths.notKeys });
}
