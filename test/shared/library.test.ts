import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import t from "tap";

/** Prints whether the client library was loaded, after a program that is given. */
function isLoaded(program: string): boolean {
  const text = `
    import { createRequire } from "node:module";
    ${program}
    const loaded = Object.keys(createRequire(import.meta.url).cache);
    console.log(loaded.some((path) => path.includes("@redis")));`;
  const cwd = fileURLToPath(new URL("../../src", import.meta.url));
  const output = execFileSync(process.execPath, ["--input-type=module", "-e", text], {
    cwd,
    encoding: "utf8",
  });
  return output.trim() === "true";
}

t.test("the client library is loaded for a connection, and not before", (t) => {
  t.equal(isLoaded('await import("./daemon/daemon.js");'), false);
  const store = '{ url: "redis://localhost:1", username: null, authority: null }';
  const connect = `(await import("./shared/connection.js")).newClient(${store}, null, AbortSignal.abort())`;
  t.equal(isLoaded(`await ${connect};`), true);
  t.end();
});
