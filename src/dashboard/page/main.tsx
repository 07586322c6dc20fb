import { render } from "preact";
import { App } from "./app.tsx";
import { escapeControlChars } from "./escape-control-chars.ts";
import { openByBookmark } from "./live/browser-key.ts";
import { Client } from "./live/client.ts";
import { Live } from "./live/live.ts";
import { createTranslate } from "./messages/messages.ts";
import { applyTheme, readLanguage } from "./preferences.ts";
import { codeOf } from "./route.ts";
import { stored } from "./stored.ts";

/** The page's beginning: the one file that acts when it is loaded. */
function start(root: HTMLElement): void {
  const clock = () => Date.now();
  applyTheme();
  const language = readLanguage();
  document.documentElement.lang = language;
  // The token that the one-time code was traded for. It ends with the tab, and is never in a cookie.
  const session = stored(() => sessionStorage, "keybearer.session");
  const client = new Client(session);
  const live = new Live({ client, session, now: clock });
  const begin = async () => {
    const code = codeOf(location.hash);
    // It must not stay in the address or in the history, used or not.
    if (code !== null) history.replaceState(null, "", `${location.pathname}#/overview`);
    const isNew = code === null && session.read() === null;
    await live.open(code, isNew ? await openByBookmark(client, session) : null);
  };
  void begin();
  // Once: a tab that the browser has restored has the token of a session that is over.
  const unsubscribe = live.subscribe(() => {
    const { link } = live.state();
    if (link.state !== "no-session" || link.kind !== "over") return;
    unsubscribe();
    void begin();
  });
  addEventListener("hashchange", () => {
    if (codeOf(location.hash) !== null) void begin();
  });
  document.addEventListener("visibilitychange", () =>
    live.setVisible(document.visibilityState === "visible"),
  );
  // Opened in a tab behind this one.
  if (document.visibilityState === "hidden") live.setVisible(false);
  root.textContent = "";
  escapeControlChars();
  render(<App parts={{ t: createTranslate(language), language, client, live, clock }} />, root);
}

const root = document.getElementById("page");
if (root !== null) start(root);
