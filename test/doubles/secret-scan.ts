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
