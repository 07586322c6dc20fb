import type { Secret } from "../../core/secret.ts";
import type { Finding } from "../findings.ts";
import { type Around, placesToLook, textOf } from "./files.ts";
import { fieldsOf, variables } from "./names.ts";
import { kindOf, type Setting, settingsIn } from "./settings.ts";
import { type Found, inFindings, type OwnKey } from "./words.ts";

export interface ElsewhereDeps extends Around {
  /** The keys that keybearer holds. */
  readonly keys: () => Iterable<Secret>;
  /** Where it listens. */
  readonly ports: readonly number[];
  /** The names of the tools in config.yaml: what their clients are set to matters most. */
  readonly tools: readonly string[];
  /** Variables that config.yaml takes keys from: there a key is where it belongs. */
  readonly sources: readonly string[];
}

/**
 * Two providers at once: what lies in the environment, in start-up files and in the settings of known clients that would
 * send requests past keybearer or to another account, and keys of ours that lie there bare. Only names and places are
 * ever told. Reads, changes nothing, and never fails: what cannot be read is told, too.
 */
export async function findElsewhere(deps: ElsewhereDeps): Promise<Finding[]> {
  const keys = [...deps.keys()];
  const paths = await placesToLook(deps);
  const found: Found[] = inEnvironment(deps).map((setting) => ({ ...setting, place: null, client: null }));
  const own: OwnKey[] = ownKeysInEnvironment(deps, keys);
  const unread: { path: string; why: string }[] = [];
  let read = 0;
  // One after the other: most are not there, and a slow disk gets no queue.
  for (const { path, client } of paths) {
    const answer = await textOf(path);
    if (answer === null) continue;
    if ("why" in answer) {
      unread.push({ path, why: answer.why });
      continue;
    }
    read += 1;
    const { text } = answer;
    const meanings = client === null ? variables() : fieldsOf(client);
    const settings = settingsIn(text, meanings, deps.ports, client === null);
    const held = ownKeyLines(text, keys);
    own.push(...held.map((line) => ({ name: null, path, line, client })));
    // A key of ours is told as such, which is worse than being somebody's.
    const rest = settings.filter(({ line, meaning }) => meaning.role !== "key" || !held.includes(line ?? 0));
    found.push(...rest.map((setting) => ({ ...setting, place: path, client })));
  }
  return inFindings({ found, own, unread, read, home: deps.home, tools: deps.tools });
}

function inEnvironment({ env, ports, keys }: ElsewhereDeps): Setting[] {
  const held = [...keys()];
  return variables().flatMap((meaning) => {
    const value = env[meaning.name]?.trim() ?? "";
    const kind = value === "" ? "nothing" : kindOf(value, meaning, ports, true);
    const own = meaning.role === "key" && held.some((key) => key.isIn(value));
    return kind === "nothing" || own ? [] : [{ meaning, kind, line: null }];
  });
}

/** Any variable, also one that no client is known to read: every program that is started gets it. */
function ownKeysInEnvironment({ env, sources }: ElsewhereDeps, keys: readonly Secret[]): OwnKey[] {
  const known = variables();
  return Object.entries(env)
    .filter(([name, value = ""]) => {
      const meant = sources.includes(name) && known.every((variable) => variable.name !== name);
      return !meant && keys.some((key) => key.isIn(value));
    })
    .map(([name]) => ({ name, path: null, line: null, client: null }));
}

function ownKeyLines(text: string, keys: readonly Secret[]): number[] {
  const there = keys.filter((key) => key.isIn(text));
  if (there.length === 0) return [];
  return text.split("\n").flatMap((line, at) => (there.some((key) => key.isIn(line)) ? [at + 1] : []));
}
