import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "../processes/listening.ts";
import { KEY } from "../upstream/bodies.ts";
import { nginxConfig } from "../upstream/nginx-config.ts";
import type { Kind } from "./candidate.ts";
import { prefixedWays } from "./direct.ts";

/** The physical neighbourhood: a proxy in C that sets one header and keeps no book. */
export function nginx(file: string | null): Kind {
  return {
    name: "nginx",
    title: "nginx, one worker, sets one header, no log",
    version: () => (file === null ? null : nginxVersion(file)),
    missing: "nginx is not installed",
    async prepare(scene, { plain, stream }) {
      if (file === null) throw new Error("nginx is not installed");
      const port = await freePort();
      const folder = join(scene.folder, `nginx-${port}`);
      mkdirSync(folder, { recursive: true });
      const place = (name: string) => `
    location /${name}/ {
      proxy_pass http://${name}/;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Authorization "Bearer ${KEY}";
      proxy_buffering off;
      proxy_request_buffering off;
    }`;
      const upstream = (name: string, origin: string) =>
        `  upstream ${name} { server ${new URL(origin).host}; keepalive 256; keepalive_requests 100000000; }`;
      const config = nginxConfig(
        folder,
        `${upstream("plain", plain)}
${upstream("stream", stream)}
  server {
    listen 127.0.0.1:${port} backlog=1024;${place("plain")}${place("stream")}
  }`,
      );
      return { command: { file, args: ["-c", config, "-p", folder] }, port, ways: prefixedWays(port, {}) };
    },
  };
}

export function nginxVersion(file: string): string {
  return /nginx\/([\d.]+)/.exec(spawnSync(file, ["-v"], { encoding: "utf8" }).stderr)?.[1] ?? "unknown";
}
