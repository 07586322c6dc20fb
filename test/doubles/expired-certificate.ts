import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Certificate } from "./certificates.ts";

/** From the authority of makeCertificates(), for 127.0.0.1, and over since yesterday. null where openssl cannot. */
export function expiredCertificate(authority: string): Certificate | null {
  const cwd = dirname(authority);
  const run = (...args: string[]) => execFileSync("openssl", args, { cwd, stdio: "pipe" });
  try {
    writeFileSync(join(cwd, "expired.ext"), "subjectAltName=IP:127.0.0.1\n");
    const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    run("req", ...curve, "-keyout", "expired.key", "-out", "expired.csr", "-subj", "/CN=expired");
    run(
      ...["x509", "-req", "-in", "expired.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"],
      ...["-days", "-1", "-out", "expired.pem", "-extfile", "expired.ext"],
    );
  } catch {
    return null;
  }
  const read = (name: string) => readFileSync(join(cwd, name), "utf8");
  return { key: read("expired.key"), cert: read("expired.pem") };
}
