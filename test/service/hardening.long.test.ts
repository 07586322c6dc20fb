import t from "tap";
import { PACKAGE, startUserManager } from "../doubles/user-manager.ts";

const CANARY = "sk-canary-sources-0123456789abcdef";

t.test("under a real user manager, a command that the unit's hardening stops is reported", async (t) => {
  const manager = await startUserManager(t);
  if (manager === null) return;
  const sh = (script: string) => `{ key: { command: [/bin/sh, -c, ${JSON.stringify(script)}] } }\n`;
  const save = (tools: string) =>
    manager.write(
      ".config/keybearer/config.yaml",
      `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools:\n${tools}`,
    );
  const service = async (...args: string[]) => {
    const main = `${PACKAGE}/dist/cli/main.js`;
    const shell = { SSH_AUTH_SOCK: "/run/agent", GIVEN_KEY: CANARY };
    const ended = await manager.run([process.execPath, main, "service", ...args], shell);
    t.notMatch(ended.stdout + ended.stderr, CANARY, "no key is shown");
    return ended;
  };
  const notes = async () => JSON.parse((await service("status", "--json")).stdout).notes;
  const cache = `  cache: ${sh(`touch ~/.cache/of-a-vault && printf sk-canary-sources-%s 0123456789abcdef`)}`;
  const agent = `  agent: ${sh('test -n "$SSH_AUTH_SOCK" || { echo no authentication agent >&2; exit 2; }')}`;
  const UNIT = ".config/systemd/user/keybearer.service";
  await manager.write(".cache/here", "");

  await save(`${cache}${agent}  gone: { key: { command: [/no/such/program] } }\n`);
  const none = await service("install");
  t.equal(none.code, 0, none.stdout + none.stderr);
  t.match(none.stderr, /^tool gone: .* → /m, "why, and what to type");
  t.match(none.stderr, /can serve no tool until that is done\n/);
  t.match(await notes(), [
    {
      id: "restricted",
      what: /^tool cache: .*Read-only file system$/,
      next: new RegExp(`let it write there: .* ReadWritePaths=${manager.home}/\\.cache, then`),
    },
    {
      id: "restricted",
      what: /^tool agent: .*no authentication agent$/,
      next: /import-environment SSH_AUTH_SOCK/,
    },
  ]);

  await manager.systemctl("set-environment", `GIVEN_KEY=${CANARY}`);
  await save(`${cache}  given: { key: env:GIVEN_KEY }\n`);
  await manager.write(`${UNIT}.d/cache.conf`, "[Service]\nReadWritePaths=%h/.cache\n");
  await manager.systemctl("daemon-reload");
  t.equal((await service("restart")).code, 0);
  t.same(await notes(), [], "with the drop-in it may write there");
  const again = await service("install");
  t.equal(again.code, 0, again.stdout + again.stderr);
  t.match(again.stderr, /tool given: .*may be gone after the next login/);
  t.match(
    again.stderr,
    /^tool given: .* → .* trust given$/m,
    "a new variable waits for trust, and the other tool has its key",
  );
  const journal = (await manager.run(["journalctl", "--quiet", "--no-pager"])).stdout;
  t.notMatch(journal, CANARY);
});
