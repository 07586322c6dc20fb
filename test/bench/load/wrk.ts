import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Load, Loaded, LoadGenerator } from "./load.ts";

const MARK = "bench-result ";

export function wrk(file: string): LoadGenerator {
  const version = /wrk\s+(\S+)/.exec(spawnSync(file, ["--version"], { encoding: "utf8" }).stdout)?.[1];
  return {
    name: `wrk ${version ?? ""}`.trim(),
    async run({ children, folder }, load) {
      const script = join(folder, "load.lua");
      writeFileSync(script, luaOf(load), { mode: 0o600 });
      const { connections, seconds, way } = load;
      const args = ["-t1", `-c${connections}`, `-d${seconds}s`, "--latency", "-s", script, way.url];
      const child = children.start({ file, args });
      const code = await child.ended;
      const line = child
        .output()
        .split("\n")
        .find((text) => text.startsWith(MARK));
      if (code !== 0 || line === undefined) throw new Error(`wrk failed: ${child.lastWords()}`);
      return resultOf(JSON.parse(line.slice(MARK.length)));
    },
  };
}

/** JSON's strings of plain ASCII are Lua's, too. */
function luaOf({ way, body }: Load): string {
  const headers = Object.entries({ "content-type": "application/json", ...way.headers });
  return `wrk.method = "POST"
wrk.body = ${JSON.stringify(body)}
${headers.map(([name, value]) => `wrk.headers[${JSON.stringify(name)}] = ${JSON.stringify(value)}`).join("\n")}
function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\\n${MARK}{"requests":%d,"us":%d,"errors":%d,"p50":%d,"p99":%d}\\n', summary.requests,
    summary.duration, e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50), latency:percentile(99)))
end
`;
}

function resultOf(told: { requests: number; us: number; errors: number; p50: number; p99: number }): Loaded {
  return {
    rps: told.requests / (told.us / 1e6),
    requests: told.requests,
    p50Ms: told.p50 / 1000,
    p99Ms: told.p99 / 1000,
    errors: told.errors,
  };
}
