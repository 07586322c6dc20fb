import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Action } from "../actions/actions.ts";
import { ActionDialog } from "./components/action-dialog.tsx";
import { CardsLine } from "./components/cards.tsx";
import { Footer, Header } from "./components/header-footer.tsx";
import { LinkNotice } from "./components/link-notice.tsx";
import { Shortcuts } from "./components/shortcuts.tsx";
import type { ActionForm } from "./form.ts";
import { FrameContext, type PageProps, type Parts } from "./frame.tsx";
import type { LiveState } from "./live/live.ts";
import type { Translate } from "./messages/messages.ts";
import { BillPage } from "./pages/bill.tsx";
import { EventsPage } from "./pages/events.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { ToolsPage } from "./pages/tools.tsx";
import { UsagePage } from "./pages/usage.tsx";
import { hrefOf, type PageName, type Route, routeOf } from "./route.ts";

const PAGE_OF = {
  overview: OverviewPage,
  usage: UsagePage,
  tools: ToolsPage,
  bill: BillPage,
  events: EventsPage,
} as const satisfies Record<PageName, (props: PageProps) => unknown>;

export function App({ parts }: { readonly parts: Parts }) {
  const state = useLiveState(parts);
  const [route, setRoute] = useState<Route>(() => routeOf(location.hash));
  const [opened, setOpened] = useState<Action | ActionForm | null>(null);
  const main = useRef<HTMLElement>(null);
  // At once: an address that changes meanwhile would not be noticed.
  useLayoutEffect(() => {
    const read = () => setRoute(routeOf(location.hash));
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  useTitle(route, parts.t, main);
  const setQuery: PageProps["setQuery"] = (query, how = "push") => {
    const href = hrefOf(route.page, query);
    if (how === "replace") history.replaceState(null, "", href);
    else history.pushState(null, "", href);
    setRoute(routeOf(href));
  };
  const Page = PAGE_OF[route.page];
  const { link, now } = state;
  // Before the first state there may be no session yet, and an answer to a page's question would say that it is over.
  const shown = link.state === "no-session" || now === null ? null : { link, now };
  return (
    <FrameContext.Provider value={{ ...parts, act: setOpened }}>
      <Header page={route.page} state={state} />
      <main id="main" ref={main} tabIndex={-1}>
        <LinkNotice state={state} />
        {shown === null || route.page === "overview" ? null : <CardsLine now={shown.now} />}
        {shown === null ? null : (
          <Page key={route.page} state={shown} query={route.query} setQuery={setQuery} />
        )}
      </main>
      <Footer now={now} />
      <Shortcuts />
      {opened === null ? null : (
        <ActionDialog key={JSON.stringify(opened)} asked={opened} onClose={() => setOpened(null)} />
      )}
    </FrameContext.Provider>
  );
}

function useLiveState({ live }: Parts): LiveState {
  const [state, setState] = useState(() => live.state());
  useEffect(() => {
    setState(live.state());
    return live.subscribe(() => setState(live.state()));
  }, [live]);
  return state;
}

/** On another page, or that of another tool, a screen reader begins at its top; a changed filter leaves the focus alone. */
function useTitle(
  { page, query }: Route,
  t: Translate,
  main: { readonly current: HTMLElement | null },
): void {
  const tool = page === "tools" ? query.get("tool") : null;
  const place = `${page} ${tool}`;
  const shown = useRef(place);
  // At once: later it would take the focus from where a person has put it meanwhile.
  useLayoutEffect(() => {
    document.title = [tool, t(`${page}.title`), "keybearer"].filter((part) => part !== null).join(" · ");
    if (shown.current === place) return;
    shown.current = place;
    main.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [place, t, main]);
}
