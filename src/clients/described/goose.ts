import { join } from "node:path";
import { asFields } from "../../core/json.ts";
import {
  ANY_NAME,
  addressAt,
  type ClientDescription,
  clientSettings,
  configFolder,
  described,
  describedClient,
  field,
  filesIn,
  keyField,
  type Surroundings,
  setAll,
  textAt,
  type Wanted,
} from "../description.ts";
import { HEADER_VALUE, headerKey, mcpKeys } from "./mcp.ts";

function gooseFolder(where: Surroundings): string {
  return where.env.GOOSE_PATH_ROOT
    ? join(where.env.GOOSE_PATH_ROOT, "config")
    : join(configFolder(where), "goose");
}

/**
 * A provider of our own, with the token in a header: goose takes a provider's key from the keychain or from secrets.yaml, and
 * which of the two it reads depends on the machine.
 */
const PROVIDER = clientSettings({
  files: (where) => [join(gooseFolder(where), "custom_providers", "keybearer.json")],
  format: "json",
  fields: [
    ...["name", "engine", "display_name", "description", "api_key_env"].map((name) => field([name])),
    ...["requires_auth", "supports_streaming"].map((name) => field([name])),
    field(["base_url"], "address"),
    field(["headers", "Authorization"], "key"),
    field(["models", ANY_NAME, "name"]),
    field(["models", ANY_NAME, "context_limit"]),
  ],
  tokenIn: (text) => HEADER_VALUE.exec(textAt("json", text, ["headers", "Authorization"]) ?? "")?.[2] ?? null,
  merge(text, { origin, token, model }) {
    const settings: Wanted[] = [
      [["name"], "keybearer"],
      [["engine"], "openai"],
      [["display_name"], "keybearer"],
      [["description"], "keybearer"],
      [["api_key_env"], ""],
      [["requires_auth"], false],
      // goose adds v1/chat/completions.
      [["base_url"], origin],
      [["headers", "Authorization"], `Bearer ${token}`],
      [["models", 0, "name"], model ?? ""],
      [["models", 0, "context_limit"], 128_000],
      [["supports_streaming"], true],
    ];
    return setAll("json", text, settings);
  },
});

const CHOICE = clientSettings({
  files: (where) => [join(gooseFolder(where), "config.yaml")],
  format: "yaml",
  fields: [field(["GOOSE_PROVIDER"]), field(["GOOSE_MODEL"])],
  tokenIn: () => null,
  merge: (text, { model }) =>
    setAll("yaml", text, [
      [["GOOSE_PROVIDER"], "keybearer"],
      [["GOOSE_MODEL"], model ?? ""],
    ]),
});

/** The keys of built-in providers: the setting with their address, and where they go without one. */
const SECRETS: readonly (readonly [key: string, host: string | null, builtIn: string | null])[] = [
  ["OPENAI_API_KEY", "OPENAI_HOST", "https://api.openai.com"],
  ["ANTHROPIC_API_KEY", "ANTHROPIC_HOST", "https://api.anthropic.com"],
  ["GOOGLE_API_KEY", "GOOGLE_HOST", "https://generativelanguage.googleapis.com"],
  ["OPENROUTER_API_KEY", "OPENROUTER_HOST", "https://openrouter.ai/api"],
  ["LITELLM_API_KEY", "LITELLM_HOST", null],
];

/** goose. Secrets are in the keychain, else in secrets.yaml; the environment wins over both. */
export const GOOSE: ClientDescription = describedClient(
  "goose",
  (where) => {
    const folder = gooseFolder(where);
    const config = join(folder, "config.yaml");
    const providers = filesIn(join(folder, "custom_providers"), /\.json$/);
    return [
      described(config, "yaml", { keys: mcpKeys(["extensions"]), variables: [] }),
      described(`${config}.bak`, "yaml", {
        variables: [],
        byHand: `it is goose's own copy of config.yaml: rm ${config}.bak`,
      }),
      ...providers.map((path) =>
        described(path, "json", {
          keys: [headerKey(["headers"], { address: ["base_url"], base: "root" })],
        }),
      ),
      described(join(folder, "secrets.yaml"), "yaml", {
        keys: [
          ...SECRETS.map(([key, host, builtIn]) =>
            keyField([key], {
              builtIn,
              elsewhere: {
                files: [{ path: config, format: "yaml" }],
                address: (tree) => (host === null ? "none" : addressAt(tree, [host])),
              },
              addressVariables: host === null ? [] : [host],
              base: "root",
              move: "rewrite",
            }),
          ),
          keyField([/^CUSTOM_\w+_API_KEY$/], {
            elsewhere: {
              files: providers.map((path) => ({ path, format: "json" })),
              address: (tree, [name]) =>
                asFields(tree).api_key_env === name ? addressAt(tree, ["base_url"]) : "none",
            },
            base: "root",
            move: "rewrite",
          }),
        ],
      }),
    ];
  },
  {
    writes: () => [PROVIDER, CHOICE],
    needsModel: true,
    withVariable: () => "goose uses it for its other providers",
  },
);
