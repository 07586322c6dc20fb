import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Test } from "tap";

export interface Certificate {
  readonly key: string;
  readonly cert: string;
}

export interface Certificates {
  /** The file with the authority's certificate, for NODE_EXTRA_CA_CERTS. */
  readonly authority: string;
  /** From that authority, for 127.0.0.1 and localhost. */
  readonly good: Certificate;
  /** From that authority, for another name. */
  readonly otherName: Certificate;
  /** From nobody, for 127.0.0.1. */
  readonly selfSigned: Certificate;
}

/** null, and skipped, where there is no openssl on this machine. */
export function makeCertificates(t: Test): Certificates | null {
  try {
    execFileSync("openssl", ["version"], { stdio: "ignore" });
  } catch {
    t.skip("there is no openssl here to make certificates with", async () => {});
    return null;
  }
  const folder = mkdtempSync(join(tmpdir(), "kb-certs-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const run = (...args: string[]) => execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  run(
    "req",
    "-x509",
    ...newKey,
    "-keyout",
    "ca.key",
    "-out",
    "ca.pem",
    "-days",
    "2",
    "-subj",
    "/CN=test authority",
  );
  const issue = (name: string, subjects: string): Certificate => {
    writeFileSync(join(folder, `${name}.ext`), `subjectAltName=${subjects}\n`);
    run("req", ...newKey, "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", `/CN=${name}`);
    run(
      ...["x509", "-req", "-in", `${name}.csr`, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"],
      ...["-days", "2", "-out", `${name}.pem`, "-extfile", `${name}.ext`],
    );
    return read(name);
  };
  const read = (name: string): Certificate => ({
    key: readFileSync(join(folder, `${name}.key`), "utf8"),
    cert: readFileSync(join(folder, `${name}.pem`), "utf8"),
  });
  const good = issue("good", "IP:127.0.0.1,DNS:localhost");
  const otherName = issue("other", "DNS:gateway.example.com");
  run(
    ...[
      "req",
      "-x509",
      ...newKey,
      "-keyout",
      "self.key",
      "-out",
      "self.pem",
      "-days",
      "2",
      "-subj",
      "/CN=127.0.0.1",
    ],
    ...["-addext", "subjectAltName=IP:127.0.0.1"],
  );
  return { authority: join(folder, "ca.pem"), good, otherName, selfSigned: read("self") };
}
