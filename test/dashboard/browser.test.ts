import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import t from "tap";
import { ACTIONS } from "../../src/dashboard/actions/actions.ts";
import { findBrowser } from "../doubles/browser.ts";
import { startDashboardSetup } from "../doubles/dashboard-setup.ts";
import { LONG } from "../doubles/effort.ts";
import { ROOT } from "../doubles/paths.ts";
import { watchPages } from "../doubles/watched-page.ts";
import { FIRST_CASES, MORE_CASES, prepareActions } from "./browser-actions.ts";
import { attacked, rebound } from "./browser-attacks.ts";
import { opensAfterLostAnswer, opensByBookmark, revokesWithoutStorage } from "./browser-bookmark.ts";
import { catchesUp, restsUnseen } from "./browser-gaps.ts";
import { keyboardOf, MOUSE } from "./browser-hands.ts";
import { isAccessible, needsSession, policyHolds, staysText, survives } from "./browser-hardships.ts";
import { choosesLook, connects, copies, presses, sorts } from "./browser-manners.ts";
import { staysInPlace } from "./browser-steady.ts";
import {
  arrives,
  clientsOf,
  disables,
  filters,
  filtersByOutcome,
  opens,
  opensRecord,
  printsTheMonth,
  showsTheBill,
  WIDE,
} from "./browser-visit.ts";

/** A real browser, a real daemon, real calls. The browser reaches the page through a tap that keeps every byte. */
const browserPath = findBrowser();
const skip =
  browserPath === null ? "no Chromium on this machine (apt-get install chromium-headless-shell)" : false;
/** Chromium's own line about an action that was refused, or a tool that the next case has removed. */
const ANSWERED_NO = /^Failed to load resource: the server responded with a status of 4(?:00|03|04|09)/;
const inLong = { skip: LONG ? false : "npm run test:long takes this part of the walk" };

t.test("the dashboard in a browser", { skip }, async (t) => {
  const scene = await startDashboardSetup(t, browserPath ?? "", (port) => [
    ...["evil.test:80", `rebind.test:${port}`, `127.0.0.1:${port}`],
    ...[`localhost:${port - 1}`, `127.0.0.1:${port - 1}`],
  ]);
  const watch = watchPages(scene.browser);
  const page = await watch.page({ viewport: WIDE });
  const sdk = clientsOf(scene);
  const address = await scene.address();

  await t.test("a code opens the page and is stored nowhere", (t) => opens(t, scene, page, address));
  await t.test("a code works once, and without a session the page shows no data", (t) =>
    needsSession(t, scene, watch, address),
  );
  const earlier = watch.complaints.length;
  await t.test("a request appears while it runs, and in the log when it ends", (t) =>
    arrives(t, scene, page, sdk),
  );
  await t.test("the list, the tools and the mirror", inLong, async (t) => {
    await t.test("a name, a search and a bar filter the list", (t) => filters(t, page));
    await t.test("the filter for how a request ended changes the list and its figures", () =>
      filtersByOutcome(page),
    );
    await t.test("a record opens with its times and ids", (t) => opensRecord(t, page));
    await t.test("a tool that is disabled here is refused in its own protocol", (t) =>
      disables(t, scene, page, sdk),
    );
    await t.test("the foreign row comes first on the bill, below the alarm", (t) => showsTheBill(t, page));
    await t.test("the bill of a month is printed alone", (t) => printsTheMonth(t, page));
    await t.test("nothing moves while requests come and go", (t) => staysInPlace(t, scene, page, sdk));
    await t.test("every command has a button that copies it", (t) => copies(t, scene, page));
  });
  await t.test("markup and bidirectional controls stay text on every page", (t) => staysText(t, scene, page));
  await t.test("keys lead to the pages", (t) => presses(t, page));
  await t.test("a column of the tools sorts them, by mouse and by keyboard", (t) => sorts(t, scene, page));
  await t.test("a tool's page has the settings of a client", (t) => connects(t, scene, page));
  await t.test("language and theme are chosen for this browser", (t) => choosesLook(t, page));
  await t.test("axe finds nothing", (t) => isAccessible(t, scene, watch));
  t.strictSame(watch.complaints.slice(earlier), [], "the browser console has no errors");
  await t.test("what a person changes", async (t) => {
    const before = watch.complaints.length;
    const stageFor = prepareActions(scene, page);
    for (const { title, run } of FIRST_CASES) await t.test(title, (t) => run(t, stageFor(MOUSE)));
    await t.test("by the keyboard alone", inLong, async (t) => {
      for (const { title, run } of MORE_CASES) await t.test(title, (t) => run(t, stageFor(keyboardOf(page))));
    });
    t.strictSame(
      watch.complaints.slice(before).filter((line) => !ANSWERED_NO.test(line)),
      [],
    );
    await scene.under().save(scene.config);
  });
  t.strictSame(
    [...new Set([...FIRST_CASES, ...MORE_CASES].flatMap(({ kinds }) => kinds))].sort(),
    Object.keys(ACTIONS).sort(),
    "every action that a page can ask for has a case",
  );
  await t.test("interruptions", inLong, async (t) => {
    await t.test("what came while the stream was broken is there afterwards", (t) =>
      catchesUp(t, scene, watch),
    );
    await t.test("a hidden page sends no requests", (t) => restsUnseen(t, scene, watch));
    await t.test("a bookmark opens the page until it is revoked", (t) => opensByBookmark(t, scene, watch));
    await t.test("a bookmark works although the answer that it does was lost", (t) =>
      opensAfterLostAnswer(t, scene, watch),
    );
    await t.test("a browser that stores nothing can revoke another one", (t) =>
      revokesWithoutStorage(t, scene, watch),
    );
    await t.test("the page survives a restart of the daemon", (t) => survives(t, scene, watch, page));
  });
  await page.context().close();
  await t.test("the page's policy blocks what the page does not need", (t) => policyHolds(t, scene));
  await t.test("a page of another origin gets nothing, even with a session", (t) => attacked(t, scene));
  await t.test("a rebound name gets nothing", (t) => rebound(t, scene));

  t.strictSame(watch.violations, [], "the policy blocked nothing of the page itself");
  t.strictSame(
    watch.requests.filter((url) => new URL(url).origin !== scene.origin),
    [],
    "the page requests nothing from another origin",
  );
  const sent = scene.tap.connections.map((connection) => connection.sent()).join("\n");
  t.notMatch(sent, /^[A-Z]+ \S*kd_/m, "no address contains a code or a session");
  const received = scene.tap.connections.map((connection) => connection.received()).join("\n");
  t.ok(received.includes(scene.tools.codex.key.slice(-4)), "the tap saw the answers");
  for (const secret of scene.secrets()) t.notOk(received.includes(secret), "no secret reaches a page");
});

t.test("the page is small", async (t) => {
  const files = ["index.html", "main.js", "page.css"];
  const built = files.map((name) => readFileSync(join(ROOT, "dist", "dashboard", name)));
  const compressed = built.map((bytes) => gzipSync(bytes).length).reduce((a, b) => a + b);
  t.ok(compressed < 120_000, `${compressed} bytes, compressed`);
  t.comment(`${compressed} bytes compressed, of ${built.reduce((sum, { length }) => sum + length, 0)}`);
  for (const bytes of built) t.notMatch(bytes.toString(), /sourceMappingURL/);
});
