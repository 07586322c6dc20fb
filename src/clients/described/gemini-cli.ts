import { join } from "node:path";
import {
  ANY_NAME,
  type ClientDescription,
  clientSettings,
  described,
  describedClient,
  field,
  projectFolders,
  setAll,
  textAt,
  type Wanted,
} from "../description.ts";
import { formatFor } from "../format.ts";
import { mcpKeys } from "./mcp.ts";

/** The last assignment of a variable counts, and a file that a person wrote may have several. */
function assignment(text: string, name: string): number {
  const all = formatFor("dotenv").at(text, [name]);
  return Array.isArray(all) ? Math.max(0, all.length - 1) : 0;
}

const ENV = clientSettings({
  files: ({ home }) => [join(home, ".gemini", ".env")],
  format: "dotenv",
  fields: [
    field(["GOOGLE_GEMINI_BASE_URL", ANY_NAME], "address"),
    field(["GEMINI_API_KEY", ANY_NAME], "key"),
    field(["GEMINI_MODEL", ANY_NAME]),
  ],
  tokenIn: (text) => textAt("dotenv", text, ["GEMINI_API_KEY", assignment(text, "GEMINI_API_KEY")]),
  merge(text, { origin, token, model }) {
    const settings: Wanted[] = [
      [["GOOGLE_GEMINI_BASE_URL", assignment(text, "GOOGLE_GEMINI_BASE_URL")], origin],
      [["GEMINI_API_KEY", assignment(text, "GEMINI_API_KEY")], token],
    ];
    if (model !== null) settings.push([["GEMINI_MODEL", assignment(text, "GEMINI_MODEL")], model]);
    return setAll("dotenv", text, settings);
  },
  notes: () => [
    "Gemini CLI reads one .env: ~/.gemini/.env hides ~/.env, a project's .env hides both, and in a folder that you do not trust it reads none",
  ],
});

/** Without it Gemini CLI asks how to log in. */
const CHOICE = clientSettings({
  files: ({ home }) => [join(home, ".gemini", "settings.json")],
  format: "jsonc",
  fields: [field(["security", "auth", "selectedType"])],
  tokenIn: () => null,
  merge: (text) => setAll("jsonc", text, [[["security", "auth", "selectedType"], "gemini-api-key"]]),
});

/**
 * Gemini CLI. It reads one .env: the nearest above the current folder, and in each folder .gemini/.env before .env. What the
 * environment has already wins. In a folder that is not trusted it reads none.
 */
export const GEMINI_CLI: ClientDescription = describedClient(
  "gemini-cli",
  (where) => {
    const env = { variables: [], replacesEarlier: true };
    const projects = projectFolders(where);
    return [
      described(join(where.home, ".env"), "dotenv", { ...env, isShared: true }),
      described(join(where.home, ".gemini", ".env"), "dotenv", env),
      ...projects.flatMap((project) => [
        described(join(project, ".env"), "dotenv", { ...env, isShared: true, isProject: true }),
        described(join(project, ".gemini", ".env"), "dotenv", { ...env, isProject: true }),
      ]),
      described(join(where.home, ".gemini", "settings.json"), "jsonc", { keys: mcpKeys(["mcpServers"]) }),
      ...projects.map((project) =>
        described(join(project, ".gemini", "settings.json"), "jsonc", {
          keys: mcpKeys(["mcpServers"]),
          isProject: true,
        }),
      ),
      described(join(where.home, ".gemini", "oauth_creds.json"), "json", {
        logins: [["access_token"]],
        byHand: "it holds a login of Gemini CLI, which stays as it is",
      }),
      described(join(where.home, ".gemini", "gemini-credentials.json"), "text", {
        isOpaque: true,
        byHand:
          "a key that was typed into Gemini CLI is encrypted there: type /auth in it and enter the token instead",
      }),
    ];
  },
  {
    writes: () => [ENV, CHOICE],
    tokenVariable: "GEMINI_API_KEY",
    withVariable: () => "it wins over ~/.gemini/.env, and Gemini CLI sends it to keybearer: refused",
  },
);
