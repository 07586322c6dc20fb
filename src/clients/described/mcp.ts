import { join } from "node:path";
import {
  ANY_NAME,
  applicationFolder,
  type ClientDescription,
  described,
  describedClient,
  type KeyField,
  keyField,
  type Pattern,
  projectFolders,
} from "../description.ts";

const BY_HAND =
  "an MCP server gets this key, not a client: give the server a token and keybearer's address if it can take one, else leave it";

/** The names of headers that carry a credential. */
const KEY_HEADER = /^(?:authorization|(?:x-)?(?:goog-)?api-?key|x-auth-token)$/i;

/** Bearer sk-…, or the key alone. */
export const HEADER_VALUE = /^(\s*(?:Bearer\s+)?)(\S+)(\s*)$/i;

/** A key in one of the headers below a path. */
export function headerKey(headers: Pattern, more: Partial<Omit<KeyField, "key" | "within">>): KeyField {
  return keyField([...headers, KEY_HEADER], { ...more, within: HEADER_VALUE });
}

/** The environments and headers of MCP servers below a path. */
export function mcpKeys(servers: Pattern): readonly KeyField[] {
  const byHand = { move: "by hand", byHand: BY_HAND } as const;
  return [
    ...["env", "environment", "envs"].map((name) => keyField([...servers, ANY_NAME, name, ANY_NAME], byHand)),
    ...["headers", "http_headers"].map((name) => headerKey([...servers, ANY_NAME, name], byHand)),
  ];
}

/** Files that several programs read, and that hold nothing but MCP servers. */
export const MCP: ClientDescription = describedClient("mcp", (where) => {
  const applications = applicationFolder(where);
  const of = (path: string, servers: string, isProject = false) =>
    described(path, "jsonc", { keys: mcpKeys([servers]), byHand: BY_HAND, isProject });
  return [
    of(join(applications, "Claude", "claude_desktop_config.json"), "mcpServers"),
    of(join(where.home, ".cursor", "mcp.json"), "mcpServers"),
    of(join(where.home, ".copilot", "mcp-config.json"), "mcpServers"),
    of(join(applications, "Code", "User", "mcp.json"), "servers"),
    ...projectFolders(where).flatMap((folder) => [
      of(join(folder, ".mcp.json"), "mcpServers", true),
      of(join(folder, ".cursor", "mcp.json"), "mcpServers", true),
      of(join(folder, ".vscode", "mcp.json"), "servers", true),
    ]),
  ];
});
