import { readFileSync } from "node:fs";
import t from "tap";
import { passedSockets } from "../../src/control/owner-sockets.ts";
import { REACH, routeReach } from "../../src/control/reach.ts";
import { rootsCommand } from "../../src/core/command-name.ts";
import { systemPaths } from "../../src/core/paths.ts";
import { boundaryFindings } from "../../src/doctor/boundary.ts";
import { findChangeable, namesIn } from "../../src/service/system-program.ts";
import { isOurs, systemFiles } from "../../src/service/system-units.ts";
import { ROOT } from "../doubles/paths.ts";

const TEMPLATE = readFileSync(`${ROOT}/service/keybearer-system.service`, "utf8");

t.test("a system service has a socket for each owner, which only the owner and root can open", (t) => {
  const owners = [
    { name: "alice", uid: 1000 },
    { name: "bob", uid: 1001 },
  ];
  const files = systemFiles(TEMPLATE, {
    node: "/usr/bin/node",
    main: "/opt/a b/main.js",
    owners,
    stopSeconds: 40,
  });
  const text = (name: string) => files.find(({ path }) => path.endsWith(`/${name}`))?.text ?? "";
  t.ok(files.every((file) => isOurs(file.text)));
  const alices = text("keybearer-alice.socket");
  t.match(alices, "ListenStream=/run/keybearer/1000.sock\nSocketUser=alice\nSocketMode=0600\n");
  t.match(alices, "FileDescriptorName=owner-alice\n");
  t.match(text("keybearer-root.socket"), "SocketUser=root\nSocketMode=0600\n");
  const unit = text("keybearer.service");
  t.match(unit, 'ExecStart=:"/usr/bin/node" "/opt/a b/main.js" run --system\n');
  t.match(unit, "Sockets=keybearer-root.socket keybearer-alice.socket keybearer-bob.socket\n");
  t.match(unit, "TimeoutStopSec=40s\n");
  for (const line of [
    "User=keybearer",
    "ProtectHome=yes",
    "ProtectSystem=strict",
    "ProtectProc=invisible",
    "NoNewPrivileges=yes",
    "LimitCORE=0",
    "CapabilityBoundingSet=",
    "StateDirectoryMode=0700",
  ])
    t.ok(unit.split("\n").includes(line), line);
  const alerts = text("keybearer-alerts.service");
  t.match(alerts, '"/opt/a b/main.js" events --follow --desktop --system\n');
  t.match(alerts, "ConditionPathExists=/run/keybearer/%U.sock\n", "it starts for owners alone");
  t.equal(systemPaths(1000).socket, "/run/keybearer/1000.sock");
  t.end();
});

t.test("passed sockets are known by their names, whatever their order", (t) => {
  const env = { LISTEN_PID: "7", LISTEN_FDS: "3", LISTEN_FDNAMES: "owner-bob:root:owner-alice" };
  t.same(passedSockets(env, 7), [
    { descriptor: 3, caller: { owner: "bob" } },
    { descriptor: 4, caller: { owner: null } },
    { descriptor: 5, caller: { owner: "alice" } },
  ]);
  for (const wrong of [
    {},
    { ...env, LISTEN_PID: "8" },
    { ...env, LISTEN_FDS: "2" },
    { ...env, LISTEN_FDNAMES: "owner-bob:other:root" },
  ])
    t.match(passedSockets(wrong, 7), { problem: String });
  t.end();
});

t.test("over an owner's socket, a route that may allow more is for root", (t) => {
  const cases: readonly [string, unknown, string][] = [
    ["GET /status", null, "reads"],
    ["POST /trust", [], "widens"],
    ["POST /claim/:name", {}, "widens"],
    ["POST /confirm/:name", {}, "widens"],
    ["POST /forget", {}, "widens"],
    ["POST /lift/:name", { amount: 0 }, "narrows"],
    ["POST /lift/:name", { amount: 5 }, "widens"],
    ["POST /lift/:name", "0", "widens"],
    ["POST /stopsession/:name", { stopped: true }, "narrows"],
    ["POST /stopsession/:name", { stopped: false }, "widens"],
    ["POST /enablekey/:name", { enabled: true }, "widens"],
    ["POST /changekey", { action: "disable" }, "narrows"],
    ["POST /changekey", { action: "enable" }, "widens"],
    ["POST /something/new", {}, "widens"],
  ];
  for (const [route, body, reach] of cases)
    t.equal(routeReach(route, body), reach, `${route} ${JSON.stringify(body)}`);
  for (const route of Object.keys(REACH)) t.not(routeReach(route, {}), "depends");
  t.end();
});

t.test("doctor names each way in which a program of the owner's could become root", (t) => {
  const closed = { canSudo: false, groups: ["alice"], changeable: null, corePattern: null, systemd: 252 };
  t.match(boundaryFindings(closed), [{ level: "ok" }]);
  for (const [open, what] of [
    [{ canSudo: true }, /sudo asks for no password/],
    [{ groups: ["alice", "docker"] }, /group docker/],
    [{ groups: ["disk"] }, /group disk/],
    [{ changeable: "other users can write to /opt" }, /other users can write to \/opt/],
    [{ corePattern: "/home/alice/dump does not belong to root" }, /core dumps/],
    [{ systemd: 241 }, /systemd is 241/],
  ] as const)
    t.match(boundaryFindings({ ...closed, ...open }), [{ level: "problem", what }]);
  t.end();
});

t.test("a file is the service's only if nobody but root can change it or a folder above it", (t) => {
  const file = `${t.testdir({ "main.js": "" })}/main.js`;
  if (process.getuid?.() !== 0) t.match(findChangeable(file), /does not belong to root/);
  t.equal(findChangeable("/"), null);
  t.match(findChangeable("/no/such/file"), /cannot be checked/);
  t.end();
});

t.test("a sudo line names the program that only root can change, never one that is found by name", (t) => {
  const unit = (node: string, main: string) =>
    rootsCommand(
      systemFiles(TEMPLATE, { node, main, owners: [], stopSeconds: 20 }).find(({ path }) =>
        path.endsWith(".service"),
      )?.text ?? "",
    );
  const copy = "/usr/local/lib/keybearer/1.2.3";
  t.equal(unit(`${copy}/bin/node`, `${copy}/package/dist/cli/main.js`), "/usr/local/bin/keybearer");
  t.equal(unit("/usr/bin/node", "/opt/kb/main.js"), "/usr/bin/node /opt/kb/main.js");
  t.equal(unit("/usr/bin/node", "/opt/a b/main.js"), "/usr/bin/node '/opt/a b/main.js'");
  t.end();
});

t.test("a copied program is written only below its folder", (t) => {
  t.same(namesIn("package/node_modules/@a/b+c/x y.js"), ["package", "node_modules", "@a", "b+c", "x y.js"]);
  for (const name of ["/etc/passwd", "../x", "a/../../x", "a//b", "", ".", "a/./b", "a\0b"])
    t.throws(() => namesIn(name), /unusable name/, JSON.stringify(name));
  t.end();
});
