import t from "tap";
import { typeable } from "../../src/core/command-name.ts";

t.test("a program that is not installed is named by its file in commands, and in nothing else", (t) => {
  const [, program = ""] = process.argv;
  t.teardown(() => {
    process.argv[1] = program;
  });
  process.argv[1] = "/opt/keybearer/dist/cli/main.js";
  for (const [text, typed] of [
    ["try keybearer status", "try node /opt/keybearer/dist/cli/main.js status"],
    ["keybearer 0.1.0 serves http://localhost:5391", null],
    ["keybearer runs as alice", null],
    ["/etc/keybearer status", null],
  ] as const)
    t.equal(typeable(text, "anywhere"), typed ?? text);
  t.end();
});
