import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

/** A unique secret that looks like a key. */
export function canary(): string {
  return `sk-${randomBytes(18).toString("hex")}`;
}

/** A secret whose every encoding looks different from it: quotes, a backslash, and what addresses and JSON escape. */
export function oddCanary(): string {
  const random = () => randomBytes(9).toString("hex");
  return `sk-${random()}"\\/+=%&'${random()}`;
}

/** Every shape in which a secret could slip through, by name. */
export function shapesOf(secret: string): ReadonlyMap<string, string> {
  const bytes = Buffer.from(secret);
  const shapes = new Map([
    ["plain", secret],
    ["reversed", [...secret].reverse().join("")],
    ["hex", bytes.toString("hex")],
    ["upper case hex", bytes.toString("hex").toUpperCase()],
    ["in an address", encodeURIComponent(secret)],
    ["in a form", new URLSearchParams({ x: secret }).toString().slice(2)],
    ["in JSON", JSON.stringify(secret).slice(1, -1)],
    ["in JSON twice", JSON.stringify(JSON.stringify(secret).slice(1, -1)).slice(1, -1)],
    ["its beginning", secret.slice(0, 12)],
    ["its end", secret.slice(-12)],
  ]);
  // base64 looks different for each place in three bytes; what depends on the neighbours is left out.
  for (const shift of [0, 1, 2]) {
    const text = Buffer.concat([Buffer.alloc(shift), bytes])
      .toString("base64")
      .slice(4, -4);
    shapes.set(`base64, ${shift} further`, text);
    shapes.set(`base64url, ${shift} further`, text.replaceAll("+", "-").replaceAll("/", "_"));
  }
  return shapes;
}

/** What an echo of a part of a key may look like, with other bytes around it. */
export function echoForms(part: string): ReadonlyMap<string, string> {
  const hex = Buffer.from(part).toString("hex");
  const forms = new Map([
    ["plain", part],
    ["hex", hex],
    ["upper case hex", hex.toUpperCase()],
  ]);
  for (const before of ["", "x", "xy"]) {
    const bytes = Buffer.from(`${before}${part}z`);
    forms.set(`base64 behind ${before.length} bytes`, bytes.toString("base64").replaceAll("=", ""));
    forms.set(`base64url behind ${before.length} bytes`, bytes.toString("base64url"));
  }
  return forms;
}

/** Every way to write a whole key that is searched for beyond echoForms. */
export function wholeKeyForms(key: string): ReadonlyMap<string, string> {
  const each = (write: (hex: string, code: number) => string) =>
    Array.from(key, (char) => write(char.charCodeAt(0).toString(16), char.charCodeAt(0))).join("");
  return new Map([
    ["JSON", JSON.stringify(key).slice(1, -1)],
    ["address", encodeURIComponent(key)],
    ["\\u", each((hex) => `\\u00${hex}`)],
    ["\\u in upper case", each((hex) => `\\u00${hex.toUpperCase()}`)],
    ["percent", each((hex) => `%${hex}`)],
    ["percent in upper case", each((hex) => `%${hex.toUpperCase()}`)],
    ["decimal entities", each((_, code) => `&#${code};`)],
    ["hexadecimal entities", each((hex) => `&#x${hex};`)],
  ]);
}

/** Where a secret is found, and in which shape. */
export function scan(
  paths: Readonly<Record<string, string>>,
  secrets: Readonly<Record<string, string>>,
): string[] {
  return Object.entries(secrets).flatMap(([name, secret]) =>
    Object.entries(paths).flatMap(([place, text]) => {
      const found = [...shapesOf(secret)].find(([, shape]) => text.includes(shape));
      return found === undefined ? [] : [`${name} in ${place} (${found[0]})`];
    }),
  );
}

export function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((name) => join(folder, name))
    .filter((path) => statSync(path, { throwIfNoEntry: false })?.isFile());
}

/**
 * What each of these files holds, by its path. A file may go while one looks: a temporary one gets its real name, and
 * SQLite takes its WAL away.
 */
export function textsOf(files: readonly string[]): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const file of files) {
    try {
      texts[file] = readFileSync(file, "latin1");
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) throw error;
    }
  }
  return texts;
}
