import { parseConfig } from "../../src/config/parse.ts";

// Run by hostile.test.ts, because V8 can abort the whole process on deep nesting. Answers each text with what became
// of it: whether it was taken, how many problems, how much processor time, and how much the process grew.
export interface Outcome {
  readonly taken: boolean;
  readonly problems: number;
  readonly first: string;
  readonly cpuMs: number;
  readonly grownMb: number;
}

// So that the code itself is compiled and loaded.
for (let round = 0; round < 20; round += 1) {
  parseConfig(
    "gateway: https://gateway.example.com/v1\ntools: { codex: { key: x, kay: [1] } }\n",
    "/home/me",
  );
}
process.on("message", (text: string) => {
  global.gc?.();
  const before = process.resourceUsage().maxRSS;
  const started = process.cpuUsage();
  const { config, problems } = parseConfig(text, "/home/me");
  const { user, system } = process.cpuUsage(started);
  const outcome: Outcome = {
    taken: config !== null,
    problems: problems.length,
    first: problems[0]?.message ?? "",
    cpuMs: (user + system) / 1000,
    grownMb: (process.resourceUsage().maxRSS - before) / 1000,
  };
  process.send?.(outcome);
});
process.send?.("ready");
