import { Command } from "commander";
import { ack } from "./ack.ts";
import { diff } from "./diff.ts";
import { login } from "./login.ts";
import { report } from "./report.ts";
import { show } from "./show.ts";
import { sync } from "./sync.ts";

const AFTER = `
exit code 1 while an alarm is not acknowledged: a key is used elsewhere`;

const LOGIN_AFTER = `
asked for, by kind of console: sub2api email and password, new-api access token
and user id, one-api access token. without a terminal they are read from stdin,
one a line; a secret is never taken as an argument`;

const GATEWAY = "its name; all where it is left out";

export function mirrorCommand(): Command {
  const mirror = new Command("mirror")
    .summary("our usage log against the console's, and leaks")
    .description("compares the usage log with the gateway's own, row by row, and unmasks leaked keys")
    .enablePositionalOptions()
    .option("--json", "for programs")
    .addHelpText("after", AFTER)
    .action(report);
  mirror
    .command("login")
    .description("log in to a console, once")
    .argument("[gateway]", "its name; may be left out where there is one console")
    .option("--refresh-token", "sub2api: ask for a refresh token, where a captcha bars the password")
    .addHelpText("after", LOGIN_AFTER)
    .action(login);
  mirror
    .command("sync")
    .description("read the console's rows now")
    .argument("[gateway]", GATEWAY)
    .action(sync);
  mirror
    .command("diff")
    .description("the rows that differ, ours beside theirs")
    .argument("[gateway]", GATEWAY)
    .option("--json", "for programs")
    .action(diff);
  mirror
    .command("show")
    .description("both sides of one row, and why its verdict")
    .argument("<row>", "as diff names it: a row, a request id of the gateway's, or a record's id")
    .option("--json", "for programs")
    .action(show);
  mirror
    .command("ack")
    .description("acknowledge alarms; wants a person at a terminal")
    .argument("[gateway]", GATEWAY)
    .action(ack);
  return mirror;
}
