import { join } from "node:path";
import {
  ANY_NAME,
  addressAt,
  type ClientDescription,
  clientSettings,
  described,
  describedClient,
  type Elsewhere,
  FOR_EVERY_USER,
  field,
  filesIn,
  folderFrom,
  keyField,
  projectFolders,
  type Surroundings,
  setAll,
  textAt,
  type Wanted,
} from "../description.ts";
import { formatFor } from "../format.ts";
import { valueIn } from "../setting.ts";
import { cannotEdit } from "../text-edit.ts";
import { headerKey, mcpKeys } from "./mcp.ts";

function codexFolder(where: Surroundings): string {
  return folderFrom(where.env.CODEX_HOME, join(where.home, ".codex"), where);
}

const PROVIDER = ["model_providers", "keybearer"];
/** Settings of a provider that win over its token. */
const OVERRIDES = ["env_key", "env_key_instructions", "requires_openai_auth"];

const { at } = formatFor("toml");

const SETTINGS = clientSettings({
  files: (where) => [join(codexFolder(where), "config.toml")],
  format: "toml",
  fields: [
    field(["model"]),
    field(["model_provider"]),
    field([...PROVIDER, "name"]),
    field([...PROVIDER, "base_url"], "address"),
    field([...PROVIDER, "wire_api"]),
    field([...PROVIDER, "experimental_bearer_token"], "key"),
    ...OVERRIDES.map((name) => field([...PROVIDER, name])),
  ],
  tokenIn: (text) => textAt("toml", text, [...PROVIDER, "experimental_bearer_token"]),
  merge(text, { origin, token, model }) {
    if (at(text, [...PROVIDER, "auth"]) !== undefined)
      return cannotEdit(
        "[model_providers.keybearer.auth] overrides the token",
        null,
        "delete it, then run this again",
      );
    const settings: Wanted[] = [
      ...(model === null ? [] : [[["model"], model] satisfies Wanted]),
      [["model_provider"], "keybearer"],
      [[...PROVIDER, "name"], "keybearer"],
      [[...PROVIDER, "base_url"], `${origin}/v1`],
      [[...PROVIDER, "wire_api"], "responses"],
      // env_key would name a variable that a program started from a menu or an editor does not have, and it overrides
      // the token.
      [[...PROVIDER, "experimental_bearer_token"], token],
      ...OVERRIDES.map((name): Wanted => [[...PROVIDER, name], undefined]),
    ];
    return setAll("toml", text, settings);
  },
  removed: (before, after) =>
    OVERRIDES.map((name) => [...PROVIDER, name])
      .filter((path) => at(before, path) !== undefined && at(after, path) === undefined)
      .map((path) => path.join(".")),
  notes(text) {
    const profile = textAt("toml", text, ["profile"]);
    const provider = profile === null ? null : textAt("toml", text, ["profiles", profile, "model_provider"]);
    if (provider === null || provider === "keybearer") return [];
    return [`its profile ${profile} uses the provider ${provider}, which wins: change model_provider there`];
  },
});

const OPENAI = "https://api.openai.com/v1";
const EACH_PROVIDER = ["model_providers", ANY_NAME];
const ADDRESS = [...EACH_PROVIDER, "base_url"];

function inConfig(where: Surroundings) {
  const common = {
    address: ADDRESS,
    builtIn: OPENAI,
    // A profile may have only a part of a provider.
    elsewhere: {
      files: [{ path: join(codexFolder(where), "config.toml"), format: "toml" }],
      address: (tree, [name = ""]) => addressAt(tree, ["model_providers", name, "base_url"]),
    } satisfies Elsewhere,
  };
  return {
    keys: [
      keyField([...EACH_PROVIDER, "experimental_bearer_token"], common),
      keyField([...EACH_PROVIDER, "env_key"], { ...common, isName: true }),
      headerKey([...EACH_PROVIDER, "http_headers"], common),
      ...mcpKeys(["mcp_servers"]),
    ],
    addresses: [["openai_base_url"]],
  };
}

/** Codex. A profile is a file of its own that is laid over config.toml. The key in auth.json goes to the active provider. */
export const CODEX: ClientDescription = describedClient(
  "codex",
  (where) => {
    const folder = codexFolder(where);
    const config = join(folder, "config.toml");
    return [
      described(join(folder, ".env"), "dotenv", { variables: [] }),
      described(join(folder, "auth.json"), "json", {
        keys: [
          keyField(["OPENAI_API_KEY"], {
            builtIn: OPENAI,
            elsewhere: { files: [{ path: config, format: "toml" }], address: activeAddress },
            move: "rewrite",
            companions: [["auth_mode"]],
          }),
        ],
        logins: [["tokens", "access_token"], ["personal_access_token"], ["agent_identity"]],
      }),
      described(config, "toml", inConfig(where)),
      ...filesIn(folder, /^[\w-]+\.config\.toml$/).map((path) => described(path, "toml", inConfig(where))),
      ...projectFolders(where).map((project) =>
        described(join(project, ".codex", "config.toml"), "toml", { ...inConfig(where), isProject: true }),
      ),
      described("/etc/codex/config.toml", "toml", {
        ...inConfig(where),
        byHand: FOR_EVERY_USER,
      }),
    ];
  },
  {
    writes: () => [SETTINGS],
    tokenVariable: "KEYBEARER_TOKEN",
    withVariable: () => "Codex uses it for every provider but keybearer",
  },
);

/** The address of the provider that sends the key in auth.json. */
function activeAddress(tree: unknown): { readonly address: string } | "none" | "ambiguous" {
  const active = String(valueIn(tree, ["model_provider"]) ?? "openai");
  if (active === "openai") return addressAt(tree, ["openai_base_url"]);
  // Another one may be chosen on the command line, and send it.
  const usesIt = valueIn(tree, ["model_providers", active, "requires_openai_auth"]) === true;
  return usesIt ? addressAt(tree, ["model_providers", active, "base_url"]) : "ambiguous";
}
