import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { findPaths, prepareFolders, rootUid } from "../../src/core/paths.ts";
import { newHome } from "../doubles/command.ts";

const home = "/home/me";

t.test("without any variable, everything is where XDG says", async (t) => {
  t.match(findPaths({ env: {}, home }), {
    config: "/home/me/.config/keybearer/config.yaml",
    explicit: false,
    state: "/home/me/.local/state/keybearer",
    socket: "/home/me/.local/state/keybearer/run/control.sock",
    trust: "/home/me/.local/state/keybearer/trust.json",
  });
});

t.test("the XDG variables are used, and ignored where they are relative or empty", async (t) => {
  const env = { XDG_CONFIG_HOME: "/c", XDG_STATE_HOME: "/s", XDG_RUNTIME_DIR: "/r" };
  t.match(findPaths({ env, home }), {
    config: "/c/keybearer/config.yaml",
    state: "/s/keybearer",
    socket: "/r/keybearer/control.sock",
  });
  const relative = { XDG_CONFIG_HOME: "c", XDG_STATE_HOME: "./s", XDG_RUNTIME_DIR: "" };
  t.same(findPaths({ env: relative, home }), findPaths({ env: {}, home }));
});

t.test("KEYBEARER_HOME holds everything, even if XDG variables are set", async (t) => {
  const env = { KEYBEARER_HOME: "/k", XDG_CONFIG_HOME: "/c", XDG_STATE_HOME: "/s", XDG_RUNTIME_DIR: "/r" };
  t.match(findPaths({ env, home }), {
    config: "/k/config.yaml",
    state: "/k/state",
    socket: "/k/run/control.sock",
  });
  t.same(findPaths({ env: { KEYBEARER_HOME: "" }, home }), findPaths({ env: {}, home }), "empty is not set");
});

t.test("a file that --config names is explicit, and the mode of its folder does not matter", async (t) => {
  const folder = await newHome(t);
  mkdirSync(join(folder, "open"), { mode: 0o777 });
  const env = { KEYBEARER_HOME: join(folder, "own") };
  const paths = findPaths({ env, home, config: join(folder, "open", "other.yaml") });
  t.equal(paths.explicit, true);
  t.same(prepareFolders(paths), []);
  for (const made of [paths.state, paths.run]) t.equal(statSync(made).mode & 0o777, 0o700);
});

t.test("root is recognized by its number in a user namespace", async (t) => {
  const here = (map: string | null, overflow: string | null = "65534\n") =>
    rootUid((file) => (file === "/proc/self/uid_map" ? map : overflow));
  t.equal(here("         0          0 4294967295\n"), 0, "no namespace");
  t.equal(here(null), 0, "nor here, where there are none");
  t.equal(here("      1000       1000          1\n"), 65534, "as PrivateUsers= of a user's unit makes it");
  t.equal(here("      1000       1000          1\n", "99\n"), 99);
  t.equal(
    here("         0       1000          1\n"),
    0,
    "for a person called root, the user root is another one",
  );
  t.equal(here("         1     100000      65536\n         0       1000          1\n"), 0);
  for (const unreadable of [null, "", "x"]) t.equal(here("  1000  1000  1\n", unreadable), 0);
});
