import { existsSync } from "node:fs";
import { join } from "node:path";
import {
  ANY_NAME,
  addressAt,
  type ClientDescription,
  clientSettings,
  described,
  describedClient,
  field,
  folderFrom,
  keyField,
  type Surroundings,
  setAll,
  textAt,
  type Wanted,
} from "../description.ts";
import { formatFor } from "../format.ts";
import { providerAddress } from "../variables.ts";
import { headerKey } from "./mcp.ts";

function dataFolder(where: Surroundings): string {
  const cline = folderFrom(where.env.CLINE_DIR, join(where.home, ".cline"), where);
  return folderFrom(where.env.CLINE_DATA_DIR, join(cline, "data"), where);
}

function providersFile(where: Surroundings): string {
  const usual = join(dataFolder(where), "settings", "providers.json");
  return folderFrom(where.env.CLINE_PROVIDER_SETTINGS_PATH, usual, where);
}

const MODES = ["plan", "act"] as const;
const ENTRY = ["providers", "openai-compatible"];
const { at } = formatFor("json");

/** Cline 3. Without `updatedAt` in each provider it drops the whole file. */
const PROVIDERS = clientSettings({
  files: (where) => [providersFile(where)],
  format: "json",
  fields: [
    field(["version"]),
    field(["lastUsedProvider"]),
    field([...ENTRY, "settings", "provider"]),
    field([...ENTRY, "settings", "baseUrl"], "address"),
    field([...ENTRY, "settings", "apiKey"], "key"),
    field([...ENTRY, "settings", "model"]),
    field([...ENTRY, "updatedAt"], "stamp"),
    field([...ENTRY, "tokenSource"]),
  ],
  tokenIn: (text) => textAt("json", text, [...ENTRY, "settings", "apiKey"]),
  merge(text, { origin, token, model }) {
    const settings: Wanted[] = [
      [["lastUsedProvider"], "openai-compatible"],
      [[...ENTRY, "settings", "provider"], "openai-compatible"],
      [[...ENTRY, "settings", "baseUrl"], `${origin}/v1`],
      [[...ENTRY, "settings", "apiKey"], token],
      [[...ENTRY, "settings", "model"], model ?? ""],
    ];
    const defaults: Wanted[] = [
      [["version"], 1],
      [[...ENTRY, "updatedAt"], "2026-01-01T00:00:00.000Z"],
      [[...ENTRY, "tokenSource"], "manual"],
    ];
    return setAll("json", text, [...settings, ...defaults.filter(([path]) => at(text, path) === undefined)]);
  },
});

/** Cline 2, and what Cline 3 takes over once if it has no providers.json yet. */
const STATE = clientSettings({
  files: (where) => [join(dataFolder(where), "globalState.json")],
  format: "json",
  fields: [
    field(["openAiBaseUrl"], "address"),
    ...MODES.flatMap((mode) => [field([`${mode}ModeApiProvider`]), field([`${mode}ModeOpenAiModelId`])]),
    field(["welcomeViewCompleted"]),
  ],
  tokenIn: () => null,
  merge: (text, { origin, model }) =>
    setAll("json", text, [
      [["openAiBaseUrl"], `${origin}/v1`],
      ...MODES.flatMap((mode): Wanted[] => [
        [[`${mode}ModeApiProvider`], "openai"],
        [[`${mode}ModeOpenAiModelId`], model ?? ""],
      ]),
      // Otherwise it asks how to log in.
      [["welcomeViewCompleted"], true],
    ]),
});

const SECRETS = clientSettings({
  files: (where) => [join(dataFolder(where), "secrets.json")],
  format: "json",
  fields: [field(["openAiApiKey"], "key")],
  tokenIn: (text) => textAt("json", text, ["openAiApiKey"]),
  merge: (text, { token }) => setAll("json", text, [[["openAiApiKey"], token]]),
});

/** Only Cline 2 has been used here. */
function isOld(where: Surroundings): boolean {
  return !existsSync(providersFile(where)) && existsSync(join(dataFolder(where), "globalState.json"));
}

/** The keys of Cline 2, the field with their address, and where they go without one. */
const OLD_KEYS: readonly (readonly [key: string, address: string | null, builtIn: string | null])[] = [
  ["openAiApiKey", "openAiBaseUrl", null],
  ["apiKey", "anthropicBaseUrl", "https://api.anthropic.com"],
  ["openAiNativeApiKey", null, "https://api.openai.com/v1"],
  ["openRouterApiKey", null, "https://openrouter.ai/api/v1"],
  ["geminiApiKey", "geminiBaseUrl", "https://generativelanguage.googleapis.com"],
  ["liteLlmApiKey", "liteLlmBaseUrl", null],
  ["deepSeekApiKey", null, "https://api.deepseek.com/v1"],
];

const EACH = ["providers", ANY_NAME, "settings"];

/** Cline's command line. Version 3 keeps everything in providers.json, version 2 in two files. */
export const CLINE_CLI: ClientDescription = describedClient(
  "cline-cli",
  (where) => {
    const state = join(dataFolder(where), "globalState.json");
    return [
      described(state, "json", {
        addresses: OLD_KEYS.flatMap(([, address]) => (address === null ? [] : [[address]])),
      }),
      described(join(dataFolder(where), "secrets.json"), "json", {
        keys: OLD_KEYS.map(([key, address, builtIn]) =>
          keyField([key], {
            builtIn,
            elsewhere: {
              files: [{ path: state, format: "json" }],
              address: (tree) => (address === null ? "none" : addressAt(tree, [address])),
            },
            base: key === "apiKey" || key === "geminiApiKey" ? "root" : "v1",
            move: "rewrite",
          }),
        ),
        logins: [["cline:clineAccountId"], ["openai-codex-oauth-credentials"]],
      }),
      described(providersFile(where), "json", {
        keys: [
          ...[["apiKey"], ["auth", "apiKey"]].map((path) =>
            keyField([...EACH, ...path], {
              address: [...EACH, "baseUrl"],
              builtIn: ([name]) => providerAddress(name === "openai-native" ? "openai" : name),
            }),
          ),
          headerKey([...EACH, "headers"], { address: [...EACH, "baseUrl"] }),
        ],
        logins: [[...EACH, "auth", "accessToken"]],
      }),
    ];
  },
  {
    // The address first: a token in the old address's place would be sent to it.
    writes: (where) => (isOld(where) ? [STATE, SECRETS] : [PROVIDERS]),
    mayWrite: () => [PROVIDERS, STATE, SECRETS],
    needsModel: true,
    withVariable: () => "Cline uses it for its other providers",
  },
);
