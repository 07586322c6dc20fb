import { advice } from "../core/advice.ts";
import type { Secret } from "../core/secret.ts";
import { type Problem, warning } from "./problems.ts";
import type { Config, Tool } from "./schema.ts";

/**
 * What works, and is still worth changing: for `check` and `doctor`, which somebody reads. The log of every reload would
 * repeat it.
 * @param keyOf null: the key is not known
 */
export function configCautions(config: Config, keyOf: (tool: Tool) => Secret | null): Problem[] {
  const tools = Object.values(config.tools);
  return [...writtenKeys(tools), ...sharedKeys(tools, keyOf), ...unlimitedTools(tools)];
}

/** Copies of config.yaml, such as backups and pasted questions, take the key with them. */
function writtenKeys(tools: readonly Tool[]): Problem[] {
  const names = tools.filter(({ key }) => key.kind === "literal").map(({ name }) => name);
  const [first] = names;
  if (first === undefined) return [];
  const keys = names.length === 1 ? `the key of ${first} is` : `the keys of ${names.join(", ")} are`;
  const message = `${keys} written into config.yaml, and every copy of the file has them`;
  // It stores the new key in the keychain or in a file, never in config.yaml.
  return [warning("tools", message, advice.rotate(first))];
}

/** Two sources can hold the same key. The parser reports two tools with the same source. */
function sharedKeys(tools: readonly Tool[], keyOf: (tool: Tool) => Secret | null): Problem[] {
  const found: Problem[] = [];
  const owners = new Map<string, Tool>();
  for (const tool of tools) {
    const key = keyOf(tool);
    if (key === null) continue;
    const digest = key.digest("shared key");
    const owner = owners.get(digest);
    const isReported = owner !== undefined && (isLiteral(tool, owner) || isSameSource(tool, owner));
    if (owner !== undefined && !isReported) {
      const message = `tools ${owner.name} and ${tool.name} share one key, ${key.fingerprint}`;
      const hint = "create a separate key for each in the gateway's console";
      found.push(warning(`tools.${tool.name}.key`, message, hint));
    }
    owners.set(digest, owner ?? tool);
  }
  return found;
}

function isLiteral(...tools: readonly Tool[]): boolean {
  return tools.every(({ key }) => key.kind === "literal");
}

function isSameSource(one: Tool, other: Tool): boolean {
  return JSON.stringify(one.key) === JSON.stringify(other.key);
}

/** A tool whose requests do not pass here cannot be limited here. */
function unlimitedTools(tools: readonly Tool[]): Problem[] {
  const names = tools
    .filter(({ enabled, watchOnly, quota }) => enabled && !watchOnly && quota === null)
    .filter(({ limits: { requests, tokens, spend, concurrent } }) => {
      return requests.length + tokens.length + spend.length === 0 && concurrent === null;
    })
    .map(({ name }) => name);
  const [first] = names;
  if (first === undefined) return [];
  const message = `no limit for ${names.join(", ")}: a program in a loop can spend the whole balance`;
  // With a limit on money, a model whose price is not known is refused.
  const hint = `${advice.limitSpend(first)}; or for models without a known price: limits.requests=1000/day`;
  return [warning("tools", message, hint)];
}
