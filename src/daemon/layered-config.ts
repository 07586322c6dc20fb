import { createHash } from "node:crypto";
import { compareConfigs } from "../config/compare.ts";
import { editFile } from "../config/edit-file.ts";
import { readEffective, readText } from "../config/load.ts";
import { forgetOverrides, onlyOverrides } from "../config/overrides.ts";
import { parseConfig } from "../config/parse.ts";
import { describeProblems, redactConfig } from "../config/problems.ts";
import { redactValidConfig } from "../config/redact.ts";
import { saveConfig } from "../config/save.ts";
import { type Config, isSameSource, type Tool } from "../config/schema.ts";
import { NeedsRoot } from "../control/reach.ts";
import type { LayeredConfig } from "../control/routes.ts";
import { failed, withNext } from "../core/display.ts";
import { HttpError } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";

interface LayeredConfigDeps {
  readonly paths: Paths;
  readonly overridden: () => readonly string[];
  readonly refresh: () => Promise<void>;
}

/** What owners read and change of the system service's configuration. */
export function createLayeredConfig({ paths, overridden, refresh }: LayeredConfigDeps): LayeredConfig {
  const requireSystem = () => {
    if (paths.overrides === null) throw new HttpError(409, "this keybearer is yours: edit its config.yaml");
    return paths.overrides;
  };
  const currentText = async () => {
    const read = await readEffective(paths);
    if (read.text === null) throw new HttpError(409, read.problem);
    return read.text;
  };
  return {
    async read() {
      requireSystem();
      // A secret in it is an error, and a text with errors may hold one.
      return { text: shownText(await currentText(), paths.home), overridden: overridden() };
    },
    async save({ before, text }, owner) {
      requireSystem();
      const current = await currentText();
      if (digestOf(shownText(current, paths.home)) !== before)
        throw new HttpError(409, "the configuration was changed meanwhile: run the command again");
      checkChange(current, text, owner, paths.home);
      const saved = await saveConfig(paths, current, text);
      if (!saved.ok) throw saved.isStale ? new HttpError(409, withNext(saved)) : new NeedsRoot(saved.problem);
      await refresh();
    },
    async forget({ tools, before }) {
      const file = requireSystem();
      const read = await readText(file);
      if (read.text === null) return;
      const edited = await editFile(file, (text) => {
        const own = onlyOverrides(text, tools);
        if (typeof own !== "string") return own;
        // An owner has narrowed more since: that counts over what root wrote.
        if (digestOf(own) !== before) return failed("an owner changed the configuration meanwhile");
        const left = forgetOverrides(text, tools);
        return typeof left === "string" ? { ok: true, text: left } : left;
      });
      if (!edited.ok) throw new HttpError(409, withNext(edited));
      await refresh();
    },
  };
}

function shownText(text: string, home: string): string {
  return parseConfig(text, home).config === null ? redactConfig(text) : redactValidConfig(text);
}

function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** An owner may narrow, and may give tokens to tools that are theirs. Throws an HttpError. */
function checkChange(before: string, after: string, owner: string | null, home: string): void {
  const old = parseConfig(before, home).config;
  const { config, problems } = parseConfig(after, home);
  const errors = problems.filter(({ severity }) => severity === "error");
  if (old === null || config === null) throw new HttpError(400, describeProblems(errors));
  for (const tool of Object.values(config.tools)) {
    const known = old.tools[tool.name];
    if (known !== undefined && !isSameSource(known.key, tool.key))
      throw new NeedsRoot("only root may say where a key is");
    if (known !== undefined && owner !== null && isOthers(known, owner) && hasNewToken(known, tool))
      throw new HttpError(403, `tool ${tool.name} is for the user ${known.owner} alone`);
  }
  if (compareConfigs(old, withoutNewTokens(config, old)) === "widens")
    throw new NeedsRoot("that may allow more, so only root may do it");
}

function isOthers({ owner }: Tool, name: string): boolean {
  return owner !== null && owner !== name;
}

function hasNewToken(before: Tool, after: Tool): boolean {
  return after.tokens.some(({ hash }) => !before.tokens.some((token) => token.hash === hash));
}

function withoutNewTokens(config: Config, old: Config): Config {
  const tools: Record<string, Tool> = Object.create(null);
  for (const [name, tool] of Object.entries(config.tools)) {
    const known = old.tools[name]?.tokens ?? [];
    tools[name] = {
      ...tool,
      tokens: tool.tokens.filter(({ hash }) => known.some((token) => token.hash === hash)),
    };
  }
  return { ...config, tools };
}
