import { Command } from "commander";
import { advice } from "../../core/advice.ts";
import type { diff, show } from "./diff.ts";
import type { login } from "./login.ts";
import type { report } from "./report.ts";
import type { ack, sync } from "./sync.ts";

const AFTER = `
exit code 1 while an alarm is not acknowledged: a key is used elsewhere, and
needs a new one: ${advice.rotate("<tool>")}. a suspicion is listed first as
well, but exits 0`;

const LOGIN_AFTER = `
it asks for what this kind of console needs: sub2api for email and password,
new-api for an access token and the user id, one-api for an access token,
litellm for a key of yours that no tool uses. it does not ask for an email or
user id that is in config.yaml. without a terminal it reads the answers from
stdin, one per line; a secret is never an argument`;

const GATEWAY = "a gateway; default: all";

export function mirrorCommand(): Command {
  const mirror = new Command("mirror")
    .summary("compare the usage log with the console's; find leaks")
    .description("compare the usage log with the gateway's own, row by row, and find leaked keys")
    .enablePositionalOptions()
    .option("--json", "print JSON")
    .addHelpText("after", AFTER)
    .action(async (...given: Parameters<typeof report>) => (await import("./report.ts")).report(...given));
  mirror
    .command("login")
    .description("log in to a console; once is enough")
    .argument("[gateway]", "a gateway; optional if only one has a console")
    .option("--refresh-token", "sub2api: ask for a refresh token, if a captcha blocks the password")
    .option("--account <name>", "one of several accounts, by its name in config.yaml")
    .addHelpText("after", LOGIN_AFTER)
    .action(async (...given: Parameters<typeof login>) => (await import("./login.ts")).login(...given));
  mirror
    .command("sync")
    .description("read the console's rows now")
    .argument("[gateway]", GATEWAY)
    .action(async (...given: Parameters<typeof sync>) => (await import("./sync.ts")).sync(...given));
  mirror
    .command("diff")
    .description("list the rows that differ, ours beside theirs")
    .argument("[gateway]", GATEWAY)
    .option("--json", "print JSON")
    .action(async (...given: Parameters<typeof diff>) => (await import("./diff.ts")).diff(...given));
  mirror
    .command("show")
    .description("show both sides of one row, and the reason for its verdict")
    .argument("<row>", "a row as diff names it, a request id of the gateway, or a record's id")
    .option("--json", "print JSON")
    .action(async (...given: Parameters<typeof show>) => (await import("./diff.ts")).show(...given));
  mirror
    .command("ack")
    .description("acknowledge alarms; needs a person at a terminal")
    .argument("[gateway]", GATEWAY)
    .action(async (...given: Parameters<typeof ack>) => (await import("./sync.ts")).ack(...given));
  return mirror;
}
