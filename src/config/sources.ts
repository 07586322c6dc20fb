import { isAbsolute, join } from "node:path";
import type { Problem } from "../core/display.ts";
import { keyProblem, Secret } from "../core/secret.ts";
import type { CertificateAuthority, KeySource } from "./schema.ts";
import { type Reader, Section, type ValueResult } from "./section.ts";

/* What config.yaml takes from elsewhere: keys and other secrets, and certificate authorities. */

/** What is wrong with a secret that is written in the file itself. Never with the secret. */
export type LiteralCheck = (text: string) => Problem | null;

const COPY_WHOLE = "copy it whole from the gateway's console";

const incompleteKey: LiteralCheck = (text) => {
  const problem = keyProblem(text);
  return problem === null ? null : { problem: `incomplete key: ${problem}`, next: COPY_WHOLE };
};

/** A person chose it, so it may be anything on one line. */
export const passwordProblem: LiteralCheck = (text) =>
  /[\r\n]/.test(text) ? { problem: "the password contains a line break", next: COPY_WHOLE } : null;

const SOURCE_FORMS =
  "write keychain:keybearer/NAME, env:NAME, file:/PATH, { command: [/PROGRAM, ARGUMENT] } or the key itself";

export function readKeySource(
  section: Section,
  name: string,
  home: string,
  literalProblem: LiteralCheck = incompleteKey,
): KeySource | null {
  const value = section.entry(name)?.value;
  if (value === undefined) return null;
  const path = section.pathOf(name);
  if (value.kind === "scalar") {
    const reading = sourceFromText(value.text, home, literalProblem);
    if ("value" in reading) return reading.value;
    section.report.error(value.at, path, reading.problem, reading.next);
    return null;
  }
  if (value.kind === "dict" && value.entries.has("command"))
    return readCommand(new Section(value, path, section.report), home);
  // The names in the map are not repeated: in `{the-key-itself}` the key is one.
  section.report.error(value.at, path, "a key must have exactly one source", SOURCE_FORMS);
  return null;
}

function sourceFromText(text: string, home: string, literalProblem: LiteralCheck): ValueResult<KeySource> {
  const colon = text.indexOf(":");
  const rest = text.slice(colon + 1);
  switch (text.slice(0, colon)) {
    case "env":
      if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(rest)) return { value: Object.freeze({ kind: "env", name: rest }) };
      return { problem: "this is not the name of a variable", next: "such as env:CODEX_GATEWAY_KEY" };
    case "file": {
      const path = expandHome(rest, home);
      if (isAbsolute(path) && !path.includes("\0")) return { value: Object.freeze({ kind: "file", path }) };
      return {
        problem: "the path of a key file is not absolute",
        next: "such as file:/home/me/keys/codex or file:~/keys/codex",
      };
    }
    case "credential":
      // A slash would lead out of the folder of the credentials.
      if (/^[\w.-]{1,128}$/.test(rest) && !/^\.{1,2}$/.test(rest))
        return { value: Object.freeze({ kind: "credential", name: rest }) };
      return { problem: "this is not the name of a credential", next: "such as credential:codex" };
    case "keychain":
      return keychainSource(rest);
    case "command":
      return {
        problem: "a command is written as a list, so that no shell reads it",
        next: "{ command: [/usr/bin/pass, show, codex] }",
      };
    case "op":
      return { problem: "1Password needs a command", next: '{ command: [/usr/bin/op, read, "op://…"] }' };
  }
  if (text === "") return { problem: "nothing is written here", next: SOURCE_FORMS };
  const variable = /^\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?$/.exec(text)?.[1];
  if (variable) return { problem: "keybearer does not expand variables here", next: `write env:${variable}` };
  if (text.startsWith("kb_")) {
    return {
      problem: "this is a token of keybearer's own, not a gateway's key",
      next: "copy the key from the gateway's console",
    };
  }
  const wrong = literalProblem(text);
  if (wrong !== null) return wrong;
  return { value: Object.freeze({ kind: "literal", secret: new Secret(text) }) };
}

function keychainSource(rest: string): ValueResult<KeySource> {
  const match = /^([^/]+)\/(.+)$/.exec(rest);
  const [, service = "", account = ""] = match ?? [];
  if (match === null) {
    return {
      problem: "a keychain entry needs a service and an account",
      next: "such as keychain:keybearer/codex",
    };
  }
  // Otherwise an edit of this file could fetch any of the person's passwords.
  if (!service.startsWith("keybearer")) {
    return {
      problem: "the service of a keychain entry must begin with keybearer",
      next: `keychain:keybearer/${account}`,
    };
  }
  return { value: Object.freeze({ kind: "keychain", service, account }) };
}

function readCommand(section: Section, home: string): KeySource | null {
  const argv = readCommandLine(section, home);
  section.finish();
  return argv === null ? null : Object.freeze({ kind: "command", argv });
}

/** The list at `command`: the absolute path of a program, and its arguments. */
export function readCommandLine(section: Section, home: string): readonly [string, ...string[]] | null {
  const [first = "", ...rest] = section.scalars("command", (text) => ({ value: text }));
  const path = expandHome(first, home);
  if (!isAbsolute(path) || [first, ...rest].some((part) => part.includes("\0"))) {
    const message = "a command must start with the absolute path of a program";
    const hint = "{ command: [/usr/bin/pass, show, codex] }";
    section.report.error(section.offsetOf("command"), section.path, message, hint);
    return null;
  }
  return Object.freeze([path, ...rest] as const);
}

export function readAuthority(section: Section, home: string): CertificateAuthority | null {
  const path: Reader<string> = (text) => {
    const file = expandHome(text, home);
    if (isAbsolute(file) && !file.includes("\0")) return { value: file };
    return {
      problem: "the path of a ca_file is not absolute",
      next: "such as ca_file: /etc/ssl/company.pem",
    };
  };
  const file = section.scalar("ca_file", path, null);
  return file === null ? null : Object.freeze({ file, pem: "" });
}

function expandHome(path: string, home: string): string {
  return path.startsWith("~/") ? join(home, path.slice(2)) : path;
}
