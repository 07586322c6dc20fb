import { DOTENV } from "./dotenv-edit.ts";
import { JSON_WITH_COMMENTS, STRICT_JSON } from "./json-edit.ts";
import type { SettingsFormat } from "./setting.ts";
import { FISH, SH } from "./shell-edit.ts";
import { TOML } from "./toml-edit.ts";
import { YAML } from "./yaml-edit.ts";

export type { Path, PlainValue, Setting, Settings, SettingsFormat } from "./setting.ts";

/** The formats of clients' settings. */
const FORMATS = {
  /** RFC 8259. */
  json: STRICT_JSON,
  /** JSON with comments and trailing commas. */
  jsonc: JSON_WITH_COMMENTS,
  toml: TOML,
  yaml: YAML,
  /** .env files, and environment.d of systemd. */
  dotenv: DOTENV,
  /** The start files of bash, zsh and POSIX shells. */
  sh: SH,
  fish: FISH,
} satisfies Record<string, SettingsFormat>;

export type Format = keyof typeof FORMATS;

export function formatFor(format: Format): SettingsFormat {
  return FORMATS[format];
}

/** The content of a new file. */
export function emptyText(format: Format): string {
  return format === "json" || format === "jsonc" ? "{}\n" : "";
}
