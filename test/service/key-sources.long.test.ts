import { existsSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { PACKAGE, startUserManager } from "../doubles/user-manager.ts";

const CANARY = "sk-canary-sources-0123456789abcdef";

t.test("under a real user manager, a command is tried with the unit's restrictions", async (t) => {
  const manager = await startUserManager(t);
  if (manager === null) return;
  const sh = (script: string) => `{ key: { command: [/bin/sh, -c, ${JSON.stringify(script)}] } }\n`;
  const save = (tools: string) =>
    manager.write(
      ".config/keybearer/config.yaml",
      `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools:\n${tools}`,
    );
  const install = async (...args: string[]) => {
    const main = `${PACKAGE}/dist/cli/main.js`;
    const shell = { SSH_AUTH_SOCK: "/run/agent", GIVEN_KEY: CANARY };
    const ended = await manager.run([process.execPath, main, "service", "install", ...args], shell);
    t.notMatch(ended.stdout + ended.stderr, CANARY, "no key is shown");
    return ended;
  };
  const cache = `  cache: ${sh(`touch ~/.cache/of-a-vault && printf sk-canary-sources-%s 0123456789abcdef`)}`;
  const agent = `  agent: ${sh('test -n "$SSH_AUTH_SOCK" || { echo no authentication agent >&2; exit 2; }')}`;
  const UNIT = ".config/systemd/user/keybearer.service";
  await manager.write(".cache/here", "");

  await save(`${cache}${agent}  gone: { key: { command: [/no/such/program] } }\n`);
  const none = await install();
  t.equal(none.code, 2, none.stdout + none.stderr);
  t.match(none.stderr, /tool cache: .*its hardening\): .*Read-only file system → let it write there: /);
  t.match(none.stderr, new RegExp(`ReadWritePaths=${manager.home}/\\.cache, then`));
  t.match(none.stderr, /tool agent: .*no authentication agent → .*import-environment SSH_AUTH_SOCK/);
  t.match(none.stderr, /tool gone: .*\/no\/such\/program/);
  t.match(none.stderr, /nothing was changed/);
  t.notOk(existsSync(join(manager.homeOutside, UNIT)));

  // With exact arguments, in the daemon's folder, without the keys of others.
  await manager.systemctl("set-environment", `GIVEN_KEY=${CANARY}`);
  const script =
    'test "$0/$1" = \'50%h/$HOME\' && test "$PWD" = / && test -z "$GIVEN_KEY" && echo "sk-$(id -u)-0123456"';
  const exact = `  exact: { key: { command: [/bin/sh, -c, ${JSON.stringify(script)}, "50%h", "$HOME"] } }\n`;
  await save(`${cache}${exact}  given: { key: env:GIVEN_KEY }\n`);
  await manager.write(`${UNIT}.d/cache.conf`, "[Service]\nReadWritePaths=%h/.cache\n");
  const first = await install();
  t.equal(first.code, 0, first.stdout + first.stderr);
  t.notMatch(first.stderr, /tool exact/);
  await manager.systemctl("stop", "keybearer");
  const again = await install();
  t.equal(again.code, 0, again.stdout + again.stderr);
  t.notMatch(again.stderr, /tool (exact|cache)/, "with the drop-in it may write there");
  t.match(again.stderr, /tool given: .*may be gone after the next login/);
  const journal = (await manager.run(["journalctl", "--quiet", "--no-pager"])).stdout;
  t.match(journal, /keybearer tries the source of a key/);
  t.notMatch(journal, CANARY);
});
