import { join } from "node:path";
import {
  applicationFolder,
  type ClientDescription,
  described,
  describedClient,
  projectFolders,
  type Surroundings,
} from "../description.ts";

/** VS Code and the editors that are built from it. */
const EDITORS = ["Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf", "Kiro", "Trae"];

function terminalVariable({ platform }: Surroundings): string {
  const system = platform === "darwin" ? "osx" : platform === "win32" ? "windows" : "linux";
  return `terminal.integrated.env.${system}`;
}

/** The environment of the terminals in VS Code. */
export const VSCODE_TERMINAL: ClientDescription = describedClient("vscode-terminal", (where) => {
  const variables = [terminalVariable(where)];
  const applications = applicationFolder(where);
  return [
    ...EDITORS.map((editor) =>
      described(join(applications, editor, "User", "settings.json"), "jsonc", { variables }),
    ),
    ...projectFolders(where).map((folder) =>
      described(join(folder, ".vscode", "settings.json"), "jsonc", { variables, isProject: true }),
    ),
  ];
});

/** Extensions that keep their keys in the editor's own encrypted store, and what to do in them. */
const EXTENSIONS: readonly (readonly [folder: string, steps: string])[] = [
  [
    "rooveterinaryinc.roo-cline",
    "Roo Code encrypts its keys in the editor: Settings > API Provider: OpenAI Compatible, then keybearer's address and a token",
  ],
  [
    "saoudrizwan.claude-dev",
    "Cline encrypts its keys in the editor: Settings > API Provider: OpenAI Compatible, then keybearer's address and a token",
  ],
  [
    "kilocode.kilo-code",
    "Kilo Code encrypts its keys in the editor: Providers > Custom provider, then keybearer's address and a token",
  ],
];

const ZED =
  "Zed keeps keys in the keychain: put keybearer's address into language_models in this file, then enter a token on the provider's page";
const CURSOR =
  "Cursor encrypts its keys, and its requests come from its own servers, which do not reach keybearer: give it a key of its own and set watch_only: true";
const CHERRY =
  "Cherry Studio keeps keys in a database: Settings > Model Provider, then keybearer's address as API Host and a token as API Key";
const CHATBOX =
  "close Chatbox first, since it writes this file when it ends. then Settings > Model Provider: keybearer's address as API Host, a token as API Key";

/** Programs with a window. They are only reported: what they store is encrypted, in a database, or written while they run. */
export const APPLICATIONS: ClientDescription = describedClient("application", (where) => {
  const applications = applicationFolder(where);
  const opaque = (path: string, byHand: string) => described(path, "text", { isOpaque: true, byHand });
  const zed = where.platform === "darwin" ? join(where.home, ".config") : applications;
  return [
    ...EDITORS.flatMap((editor) =>
      EXTENSIONS.map(([folder, steps]) =>
        opaque(join(applications, editor, "User", "globalStorage", folder), steps),
      ),
    ),
    opaque(join(applications, "Cursor", "User", "globalStorage", "state.vscdb"), CURSOR),
    opaque(join(zed, "zed", "settings.json"), ZED),
    opaque(join(applications, "CherryStudio"), CHERRY),
    described(join(applications, "xyz.chatboxapp.app", "config.json"), "text", { byHand: CHATBOX }),
  ];
});
