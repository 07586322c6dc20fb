import type { KeySource } from "../../core/key-source.ts";
import { DEFAULT_LIMITS } from "../defaults.ts";
import type { Limits, Tool } from "../shape.ts";
import { asSection, type Read, type Section } from "../text/section.ts";
import type { Entry, Report } from "../text/tree.ts";
import { readKeySource } from "./key.ts";
import {
  count,
  dollars,
  duration,
  flag,
  moment,
  origin,
  program,
  requestRate,
  spendRate,
  tokenRate,
  words,
} from "./values.ts";

/** The gateway is left empty where the tool names none: references.ts fills in the only one there is. */
export function readTool(
  entry: Entry,
  name: string,
  path: string,
  home: string,
  report: Report,
): Tool | null {
  const section = asSection(entry.value, path, report);
  if (section === null) return null;
  const tool = {
    name,
    gateway: section.scalar("gateway", words, ""),
    group: section.scalar("group", words, null),
    key: readKey(section, name, home),
    tokens: section.scalars("token", tokenHash(name)),
    tokenInUrl: section.scalar("token_in_url", flag, false),
    process: section.scalar("process", program, null),
    allowOrigins: section.scalars("allow_origins", origin),
    model: section.scalar("model", words, null),
    limits: readLimits(section.section("limits")),
    quota: section.scalar("quota", dollars, null),
    expires: section.scalar("expires", moment, null),
    enabled: section.scalar("enabled", flag, true),
    askUsage: section.scalar("ask_usage", flag, false),
    estimate: section.scalar("estimate", flag, false),
    keysElsewhere: section.scalar("keys_elsewhere", flag, false),
    watchOnly: section.scalar("watch_only", flag, false),
  };
  section.finish();
  return tool;
}

function readKey(section: Section, name: string, home: string): KeySource {
  const entry = section.entry("key");
  const given = entry && readKeySource(entry, section.pathOf("key"), home, section.report);
  return given ?? Object.freeze({ kind: "keychain", service: "keybearer", account: name });
}

function tokenHash(tool: string): Read<string> {
  return (text) => {
    const hash = /^sha256:([0-9a-f]{64})$/i.exec(text)?.[1];
    if (hash !== undefined) return { value: hash.toLowerCase() };
    const fault = text.startsWith("kb_")
      ? "this is the token itself, and only its hash is kept here"
      : "this is not the hash of a token";
    return { fault, hint: `take it out, then let it be written for you: keybearer tools token ${tool}` };
  };
}

function readLimits(section: Section | null): Limits {
  if (section === null) return DEFAULT_LIMITS;
  const limits = {
    requests: section.scalars("requests", requestRate),
    tokens: section.scalars("tokens", tokenRate),
    spend: section.scalars("spend", spendRate),
    concurrent: section.scalar("concurrent", count, null),
    wait: section.scalar("wait", duration, 0),
  };
  section.finish();
  return Object.freeze(limits);
}
