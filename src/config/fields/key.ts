import { isAbsolute, join } from "node:path";
import type { KeySource } from "../../core/key-source.ts";
import { keyFault, Secret } from "../../core/secret.ts";
import { type Reading, Section } from "../text/section.ts";
import type { Entry, Report } from "../text/tree.ts";

/** What a literal must be like: a key is one run of characters, a password what a person chose. */
export type LiteralFault = (text: string) => string | null;

const incompleteKey: LiteralFault = (text) => {
  const fault = keyFault(text);
  return fault === null ? null : `incomplete key: ${fault}`;
};

export const passwordFault: LiteralFault = (text) =>
  /[\r\n]/.test(text) ? "the password has a line break in it" : null;

/** Where a secret comes from. The person's home folder stands for a leading `~/`. */
export function readKeySource(
  entry: Entry,
  path: string,
  home: string,
  report: Report,
  literalFault: LiteralFault = incompleteKey,
): KeySource | null {
  const { value } = entry;
  if (value.kind === "scalar") {
    const reading = fromText(value.text, home, literalFault);
    if ("value" in reading) return reading.value;
    report.error(value.at, path, reading.fault, reading.hint);
    return null;
  }
  // Other names are not repeated: `{the-key-itself}` is a dictionary, too.
  if (value.kind === "dict" && value.entries.has("command"))
    return readCommand(new Section(value, path, report), home);
  report.error(value.at, path, "a key comes from one place", HOW);
  return null;
}

const HOW =
  "write keychain:keybearer/NAME, env:NAME, file:/PATH, { command: [/PROGRAM, ARGUMENT] } or the key itself";

function fromText(text: string, home: string, literalFault: LiteralFault): Reading<KeySource> {
  const colon = text.indexOf(":");
  const rest = text.slice(colon + 1);
  switch (text.slice(0, colon)) {
    case "env":
      if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(rest)) return { value: Object.freeze({ kind: "env", name: rest }) };
      return { fault: "that is not the name of a variable", hint: "such as env:CODEX_GATEWAY_KEY" };
    case "file": {
      const path = rest.startsWith("~/") ? join(home, rest.slice(2)) : rest;
      if (isAbsolute(path) && !path.includes("\0")) return { value: Object.freeze({ kind: "file", path }) };
      return {
        fault: "the path of a key file is not absolute",
        hint: "such as file:/home/me/keys/codex or file:~/keys/codex",
      };
    }
    case "keychain":
      return fromKeychain(rest);
    case "command":
      return {
        fault: "a command is written as a list, so that no shell reads it",
        hint: "{ command: [/usr/bin/pass, show, codex] }",
      };
    case "op":
      return { fault: "1Password is asked by a command", hint: '{ command: [/usr/bin/op, read, "op://…"] }' };
  }
  if (text === "") return { fault: "nothing is written here", hint: HOW };
  const variable = /^\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?$/.exec(text)?.[1];
  if (variable) return { fault: "variables are not filled in", hint: `write env:${variable}` };
  if (text.startsWith("kb_")) {
    return {
      fault: "this is a token of keybearer's own, not a gateway's key",
      hint: "copy the key from the gateway's console",
    };
  }
  const fault = literalFault(text);
  if (fault !== null) return { fault, hint: "copy it whole from the gateway's console" };
  return { value: Object.freeze({ kind: "literal", secret: new Secret(text) }) };
}

function fromKeychain(rest: string): Reading<KeySource> {
  const match = /^([^/]+)\/(.+)$/.exec(rest);
  if (!match)
    return {
      fault: "a keychain entry has a service and an account",
      hint: "such as keychain:keybearer/codex",
    };
  const [, service = "", account = ""] = match;
  if (!service.startsWith("keybearer")) {
    // Otherwise an edit of this file could fetch any password of the person's.
    return {
      fault: "the service of a keychain entry must begin with keybearer",
      hint: `keychain:keybearer/${account}`,
    };
  }
  return { value: Object.freeze({ kind: "keychain", service, account }) };
}

function readCommand(section: Section, home: string): KeySource | null {
  const argv = section.scalars("command", (text) => ({ value: text })).slice();
  section.finish();
  const [program = "", ...rest] = argv;
  const path = program.startsWith("~/") ? join(home, program.slice(2)) : program;
  if (!isAbsolute(path) || argv.some((part) => part.includes("\0"))) {
    section.report.error(
      section.placeOf("command"),
      section.path,
      "a command starts with the absolute path of a program",
      "{ command: [/usr/bin/pass, show, codex] }",
    );
    return null;
  }
  return Object.freeze({ kind: "command", argv: Object.freeze([path, ...rest] as const) });
}
