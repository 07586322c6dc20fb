import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import t from "tap";
import { findBrowser } from "../doubles/browser.ts";
import { startDashboardSetup } from "../doubles/dashboard-setup.ts";
import { ROOT } from "../doubles/paths.ts";
import { watchPages } from "../doubles/watched-page.ts";
import { attacked, rebound } from "./browser-attacks.ts";
import { catchesUp, restsUnseen } from "./browser-gaps.ts";
import { isAccessible, needsSession, policyHolds, staysText, survives } from "./browser-hardships.ts";
import {
  arrives,
  clientsOf,
  disables,
  filters,
  filtersByEnd,
  mirrors,
  opens,
  opensRecord,
  WIDE,
} from "./browser-visit.ts";

/** A real browser, a real daemon, real calls. The browser reaches the page through a tap that keeps every byte. */
const browserPath = findBrowser();
const skip =
  browserPath === null
    ? "there is no chromium here to look at the dashboard with (apt-get install chromium-headless-shell)"
    : false;
if (browserPath === null)
  t.comment(
    "!!! no chromium on this machine (apt-get install chromium-headless-shell): the dashboard's page is NOT LOOKED AT",
  );

t.test("the dashboard, as a person sees it", { skip }, async (t) => {
  const scene = await startDashboardSetup(t, browserPath ?? "", (port) => [
    ...["evil.test:80", `rebind.test:${port}`, `127.0.0.1:${port}`],
    ...[`localhost:${port - 1}`, `127.0.0.1:${port - 1}`],
  ]);
  const watch = watchPages(scene.browser);
  const page = await watch.page({ viewport: WIDE });
  const sdk = clientsOf(scene);
  const address = await scene.address();

  await t.test("a code opens it, and is nowhere afterwards", (t) => opens(t, scene, page, address));
  await t.test("a code is good once, and without a session there is nothing", (t) =>
    needsSession(t, scene, watch, address),
  );
  const heard = watch.complaints.length;
  await t.test("a request is seen while it runs, and in the log when it is over", (t) =>
    arrives(t, scene, page, sdk),
  );
  await t.test("a click on a name, and one on a bar, filter what is listed", (t) => filters(t, page));
  await t.test("how a request ended filters the list alone", (t) => filtersByEnd(t, page));
  await t.test("a record opens with its times and ids", (t) => opensRecord(t, page));
  await t.test("a tool that is disabled here is refused in its own protocol", (t) =>
    disables(t, scene, page, sdk),
  );
  await t.test("the mirror's foreign row comes first, below the alarm", (t) => mirrors(t, page));
  await t.test("markup and turns of direction stay text on every page", (t) => staysText(t, scene, page));
  await t.test("axe finds nothing in either language, theme or width", (t) => isAccessible(t, scene, watch));
  t.strictSame(watch.complaints.slice(heard), [], "no page complained");
  await t.test("what came while the link was broken is there afterwards", (t) => catchesUp(t, scene, watch));
  await t.test("a hidden page asks for nothing", (t) => restsUnseen(t, scene, watch));
  await t.test("the daemon may restart under it", (t) => survives(t, scene, watch, page));
  await page.context().close();
  await t.test("the page's own policy stops what it does not need", (t) => policyHolds(t, scene));
  await t.test("a page of elsewhere gets nothing, whatever it knows", (t) => attacked(t, scene));
  await t.test("nor does a name that was turned to this address", (t) => rebound(t, scene));

  t.strictSame(watch.violations, [], "the policy had nothing to stop");
  t.strictSame(
    watch.requests.filter((url) => new URL(url).origin !== scene.origin),
    [],
    "nothing is asked for from anywhere else",
  );
  const sent = scene.tap.connections.map((connection) => connection.sent()).join("\n");
  t.notMatch(sent, /^[A-Z]+ \S*kd_/m, "no code and no session is in an address");
  const received = scene.tap.connections.map((connection) => connection.received()).join("\n");
  t.ok(received.length > 500_000 && received.includes(scene.tools.codex.key.slice(-4)), "it was tapped");
  for (const secret of scene.secrets()) t.notOk(received.includes(secret), "no secret reaches a page");
});

t.test("everything that the page needs is small", async (t) => {
  const files = ["index.html", "main.js", "page.css"];
  const built = files.map((name) => readFileSync(join(ROOT, "dist", "dashboard", name)));
  const compressed = built.map((bytes) => gzipSync(bytes).length).reduce((a, b) => a + b);
  t.ok(compressed < 150_000, `${compressed} bytes, compressed`);
  t.comment(`${compressed} bytes compressed, of ${built.reduce((sum, { length }) => sum + length, 0)}`);
  for (const bytes of built) t.notMatch(bytes.toString(), /sourceMappingURL/);
});
