import { join } from "node:path";
import {
  ANY_NAME,
  type ClientDescription,
  described,
  describedClient,
  filesIn,
  keyField,
  projectFolders,
} from "../description.ts";
import { headerKey } from "./mcp.ts";

/** Not templates, and not what dotenvx and varlock keep there. */
const ENV_FILE = /^\.env(?:\.(?!(?:example|sample|template|dist|defaults|schema|keys|vault)$)[\w-]+)*$/;

const DIRENV =
  "direnv runs it as a script: replace the key with a token and the address with keybearer's, then direnv allow";
const CONTAINER =
  "a container does not reach keybearer on localhost: on Linux network_mode: host does, else leave the key there";

/** The variables of an environment that is written as a list: NAME=value. */
const ASSIGNMENT = /^([A-Za-z_]\w*=)(\S+)()$/;

/** Files that belong to a project, and whose variables whatever runs there reads. */
export const ENV_FILES: ClientDescription = describedClient("env-file", (where) => {
  const variables = { variables: [] };
  return [
    described(join(where.home, ".env"), "dotenv", variables),
    ...projectFolders(where).flatMap((folder) => [
      ...filesIn(folder, ENV_FILE).map((path) =>
        described(path, "dotenv", { ...variables, isProject: true }),
      ),
      described(join(folder, ".envrc"), "sh", { ...variables, isProject: true, byHand: DIRENV }),
      ...["mise.toml", ".mise.toml", "mise.local.toml", join(".config", "mise.toml")].map((name) =>
        described(join(folder, name), "toml", {
          variables: ["env"],
          isProject: true,
          byHand: "replace the key below [env] with a token and the address with keybearer's",
        }),
      ),
    ]),
    described(join(where.home, ".config", "mise", "config.toml"), "toml", {
      variables: ["env"],
      byHand: "replace the key below [env] with a token and the address with keybearer's",
    }),
  ];
});

const COMPOSE_FILE = /^(?:docker-)?compose(?:\.[\w-]+)?\.ya?ml$/;

/** What runs in containers: compose files, and LibreChat's settings beside them. */
export const CONTAINERS: ClientDescription = describedClient("container", (where) =>
  projectFolders(where).flatMap((folder) => [
    ...filesIn(folder, COMPOSE_FILE).map((path) =>
      described(path, "yaml", {
        keys: [
          keyField(["services", ANY_NAME, "environment", /(?:KEY|KEYS|TOKEN)$/], { move: "by hand" }),
          keyField(["services", ANY_NAME, "environment", /^\d+$/], { within: ASSIGNMENT, move: "by hand" }),
        ],
        isProject: true,
        byHand: CONTAINER,
      }),
    ),
    described(join(folder, "librechat.yaml"), "yaml", {
      keys: [
        keyField(["endpoints", "custom", ANY_NAME, "apiKey"], {
          address: ["endpoints", "custom", ANY_NAME, "baseURL"],
          move: "by hand",
        }),
        headerKey(["endpoints", "custom", ANY_NAME, "headers"], {
          address: ["endpoints", "custom", ANY_NAME, "baseURL"],
          move: "by hand",
        }),
      ],
      isProject: true,
      byHand: CONTAINER,
    }),
  ]),
);
