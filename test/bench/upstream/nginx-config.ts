import { writeFileSync } from "node:fs";
import { join } from "node:path";

/** One process, no logs, everything it writes below its own folder. */
export function nginxConfig(folder: string, http: string): string {
  const file = join(folder, "nginx.conf");
  const temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `  ${name}_temp_path ${join(folder, name)};`,
  );
  writeFileSync(
    file,
    `daemon off;
master_process off;
pid ${join(folder, "nginx.pid")};
error_log stderr crit;
events { worker_connections 2048; }
http {
  access_log off;
  default_type application/octet-stream;
  keepalive_requests 100000000;
  keepalive_timeout 60s;
  tcp_nodelay on;
  client_max_body_size 200m;
  client_body_buffer_size 256k;
${temp.join("\n")}
${http}
}
`,
  );
  return file;
}
