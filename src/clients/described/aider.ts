import { join } from "node:path";
import {
  ANY_NAME,
  addressAt,
  type ClientDescription,
  clientSettings,
  described,
  describedClient,
  field,
  keyField,
  projectFolders,
  type Surroundings,
  setAll,
  textAt,
  type Wanted,
} from "../description.ts";
import { backgroundModel } from "../snippets.ts";

const SETTINGS = clientSettings({
  files: ({ home }) => [join(home, ".aider.conf.yml")],
  format: "yaml",
  fields: [
    field(["openai-api-base"], "address"),
    field(["openai-api-key"], "key"),
    field(["model"]),
    field(["weak-model"]),
  ],
  tokenIn: (text) => textAt("yaml", text, ["openai-api-key"]),
  merge(text, target) {
    const { origin, token, model } = target;
    const settings: Wanted[] = [
      [["openai-api-base"], `${origin}/v1`],
      [["openai-api-key"], token],
    ];
    if (model !== null) settings.push([["model"], `openai/${model}`]);
    // Without it aider takes a model for commit messages that the gateway may not have.
    const weak = backgroundModel(target);
    if (weak !== null) settings.push([["weak-model"], `openai/${weak}`]);
    return setAll("yaml", text, settings);
  },
});

/** gemini=…, and NAME=… */
const NAMED_KEY = /^([\w-]+=)(\S+)()$/;
const KEY_VARIABLE = /^(\w*(?:KEY|TOKEN)=)(\S+)()$/;

function inConfig(where: Surroundings) {
  return {
    keys: [
      keyField(["openai-api-key"], {
        address: ["openai-api-base"],
        builtIn: "https://api.openai.com/v1",
        // It takes each setting from the last file that has it.
        elsewhere: {
          files: configFiles(where).map((path) => ({ path, format: "yaml" })),
          address: (tree) => addressAt(tree, ["openai-api-base"]),
        },
        addressVariables: ["AIDER_OPENAI_API_BASE", "OPENAI_API_BASE", "OPENAI_BASE_URL"],
      }),
      keyField(["anthropic-api-key"], {
        builtIn: "https://api.anthropic.com",
        addressVariables: ["ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"],
        base: "root",
        move: "rewrite",
      }),
      ...[["api-key"], ["api-key", ANY_NAME]].map((path) =>
        keyField(path, {
          within: NAMED_KEY,
          move: "by hand",
          byHand:
            "aider takes no address for the key of such a provider: use openai/<model>, openai-api-base and openai-api-key instead",
        }),
      ),
      ...[["set-env"], ["set-env", ANY_NAME]].map((path) =>
        keyField(path, {
          within: KEY_VARIABLE,
          move: "by hand",
          byHand: "put the token there, and keybearer's address into the variable that belongs to it",
        }),
      ),
    ],
  };
}

function configFiles(where: Surroundings): readonly string[] {
  return [where.home, ...projectFolders(where)].map((folder) => join(folder, ".aider.conf.yml"));
}

/** Aider. The files of the home folder, the repository and the current folder; a later one wins, and .env wins over the environment. */
export const AIDER: ClientDescription = describedClient(
  "aider",
  (where) => {
    const env = { variables: [], isShared: true };
    const projects = projectFolders(where);
    return [
      described(join(where.home, ".aider", "oauth-keys.env"), "dotenv", { variables: [] }),
      described(join(where.home, ".env"), "dotenv", env),
      ...projects.map((project) => described(join(project, ".env"), "dotenv", { ...env, isProject: true })),
      ...configFiles(where).map((path, index) =>
        described(path, "yaml", { ...inConfig(where), isProject: index > 0 }),
      ),
    ];
  },
  {
    writes: () => [SETTINGS],
    withVariable: (name) =>
      name === "OPENAI_API_KEY"
        ? "Aider takes the one in its settings instead"
        : "Aider uses it for the models of that provider",
  },
);
