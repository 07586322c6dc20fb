import { join, resolve } from "node:path";
import {
  ANY_NAME,
  addressAt,
  type ClientDescription,
  type ClientId,
  clientSettings,
  configFolder,
  type DescribedFile,
  dataFolder,
  described,
  describedClient,
  type Elsewhere,
  field,
  keyField,
  type Names,
  projectFolders,
  type Surroundings,
  setAll,
  textAt,
  type Wanted,
} from "../description.ts";
import { formatFor } from "../format.ts";
import { editJson } from "../json-edit.ts";
import { backgroundModel } from "../snippets.ts";
import { providerAddress } from "../variables.ts";
import { headerKey, mcpKeys } from "./mcp.ts";

/** Kilo Code's command line is a fork of opencode: the same settings in files with other names. */
interface Program {
  readonly client: ClientId;
  /** As people call it. */
  readonly name: string;
  readonly schema: string;
  /** The name of its folder, and of its own files without the ending. */
  readonly stem: string;
  /** Names of its user's files, the last one wins. */
  readonly names: readonly string[];
  /** Folders in a project and in the home folder. */
  readonly dotFolders: readonly string[];
  /** The variable that names one more file. */
  readonly variable: string;
}

const PROGRAMS: readonly Program[] = [
  {
    client: "opencode",
    name: "opencode",
    schema: "https://opencode.ai/config.json",
    stem: "opencode",
    names: ["config.json", "opencode.json", "opencode.jsonc"],
    dotFolders: [".opencode"],
    variable: "OPENCODE_CONFIG",
  },
  {
    client: "kilo-code",
    name: "Kilo Code",
    schema: "https://app.kilo.ai/config.json",
    stem: "kilo",
    names: ["config.json", "kilo.json", "kilo.jsonc", "opencode.json", "opencode.jsonc"],
    dotFolders: [".kilocode", ".kilo"],
    variable: "KILO_CONFIG",
  },
];

const OURS = ["provider", "keybearer"];

function settingsFor({ schema, stem, variable }: Program) {
  // It allows comments and trailing commas in .json, too.
  const { at } = formatFor("jsonc");
  return clientSettings({
    files(where) {
      const named = where.env[variable];
      if (named) return [resolve(where.cwd, named)];
      const folder = join(configFolder(where), stem);
      // It reads both, and .jsonc wins.
      return [join(folder, `${stem}.jsonc`), join(folder, `${stem}.json`)];
    },
    format: "jsonc",
    fields: [
      field([...OURS, "npm"]),
      field([...OURS, "name"]),
      field([...OURS, "options", "baseURL"], "address"),
      field([...OURS, "options", "apiKey"], "key"),
      field([...OURS, "models", ANY_NAME]),
      field(["model"]),
      field(["small_model"]),
    ],
    empty: `{\n  "$schema": "${schema}"\n}\n`,
    tokenIn: (text) => textAt("jsonc", text, [...OURS, "options", "apiKey"]),
    merge(text, target) {
      const { origin, token, model } = target;
      const background = backgroundModel(target);
      const settings: Wanted[] = [
        [[...OURS, "npm"], "@ai-sdk/openai-compatible"],
        [[...OURS, "name"], "keybearer"],
        [[...OURS, "options", "baseURL"], `${origin}/v1`],
        [[...OURS, "options", "apiKey"], token],
      ];
      if (model === null) return setAll("jsonc", text, settings);
      settings.push([["model"], `keybearer/${model}`]);
      settings.push([["small_model"], `keybearer/${background ?? model}`]);
      let edited = setAll("jsonc", text, settings);
      for (const name of new Set([model, background ?? model])) {
        // A listed model keeps its options.
        if (edited.ok && at(edited.text, [...OURS, "models", name]) === undefined)
          edited = editJson(edited.text, ["provider", "keybearer", "models", name], {}, "comments");
      }
      return edited;
    },
    notes(text) {
      const disabled = at(text, ["disabled_providers"]);
      const enabled = at(text, ["enabled_providers"]);
      const notes: string[] = [];
      if (Array.isArray(disabled) && disabled.includes("keybearer"))
        notes.push("disabled_providers names keybearer: remove it there");
      if (Array.isArray(enabled) && !enabled.includes("keybearer"))
        notes.push("enabled_providers does not name keybearer: add it there");
      return notes;
    },
  });
}

const EACH_PROVIDER = ["provider", ANY_NAME, "options"];

function keysIn(elsewhere: Elsewhere) {
  const common = {
    address: [...EACH_PROVIDER, "baseURL"],
    builtIn: ([name]: Names) => providerAddress(name),
    elsewhere,
  };
  return [
    keyField([...EACH_PROVIDER, "apiKey"], common),
    headerKey([...EACH_PROVIDER, "headers"], common),
    ...mcpKeys(["mcp"]),
  ];
}

function filesOf(program: Program, where: Surroundings): readonly DescribedFile[] {
  const { name, stem, names, dotFolders, variable } = program;
  const user = names.map((each) => join(configFolder(where), stem, each));
  const named = where.env[variable];
  const inDotFolders = (folder: string) =>
    dotFolders.flatMap((dot) => endings(stem).map((each) => join(folder, dot, each)));
  const own = [...user, ...(named ? [resolve(where.cwd, named)] : []), ...inDotFolders(where.home)];
  const projects = projectFolders(where).flatMap((folder) => [
    ...endings(stem).map((each) => join(folder, each)),
    ...inDotFolders(folder),
  ]);
  // It merges all of them.
  const elsewhere: Elsewhere = {
    files: [...own, ...projects].map((path) => ({ path, format: "jsonc" })),
    address: (tree, [provider = ""]) => addressAt(tree, ["provider", provider, "options", "baseURL"]),
  };
  const keys = keysIn(elsewhere);
  return [
    // A key in the settings wins over the one that was typed into the program.
    described(join(dataFolder(where), stem, "auth.json"), "json", {
      keys: [
        keyField([ANY_NAME, "key"], {
          builtIn: ([provider]) => providerAddress(provider),
          elsewhere,
          move: "rewrite",
          companions: [[ANY_NAME, "type"]],
        }),
      ],
      logins: [[ANY_NAME, "access"]],
    }),
    ...own.map((path) => described(path, "jsonc", { keys })),
    ...projects.map((path) => described(path, "jsonc", { keys, isProject: true })),
    described(join("/etc", stem, `${stem}.json`), "jsonc", {
      keys,
      byHand: `these settings of ${name} are for every user of this machine: ask its administrator to remove the key`,
    }),
  ];
}

function endings(stem: string): string[] {
  return [`${stem}.jsonc`, `${stem}.json`];
}

/** opencode and Kilo Code. */
export const OPENCODE_AND_KILO: readonly ClientDescription[] = PROGRAMS.map((program) =>
  describedClient(program.client, (where) => filesOf(program, where), {
    writes: () => [settingsFor(program)],
    needsModel: true,
    withVariable: () => `${program.name} offers the models of that provider as well, past keybearer`,
  }),
);
