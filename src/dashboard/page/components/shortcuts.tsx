import { useEffect, useState } from "preact/hooks";
import { useFrame } from "../frame.tsx";
import { hrefOf, PAGES, type PageName } from "../route.ts";
import { Dialog } from "./dialog.tsx";

/** After `g`. */
const LETTERS: Readonly<Record<PageName, string>> = {
  overview: "o",
  usage: "u",
  tools: "t",
  bill: "b",
  events: "e",
};

/** The page's keys: `g` and a letter for a page, `/` for the search field, `?` for this list. */
export function Shortcuts() {
  const { t } = useFrame();
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    let isGoing = false;
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const page = isGoing ? PAGES.find((each) => LETTERS[each] === event.key) : undefined;
      isGoing = event.key === "g";
      if (page !== undefined) location.hash = hrefOf(page);
      else if (event.key === "?") setShown(true);
      else if (event.key === "/" && focusSearch()) event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  if (!isShown) return null;
  return (
    <Dialog title={t("keys.title")} onClose={() => setShown(false)}>
      <dl class="keys">
        {PAGES.map((page) => (
          <div key={page}>
            <dt>
              <kbd>g</kbd> <kbd>{LETTERS[page]}</kbd>
            </dt>
            <dd>{t(`${page}.title`)}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>/</kbd>
          </dt>
          <dd>{t("keys.search")}</dd>
        </div>
        <div>
          <dt>
            <kbd>?</kbd>
          </dt>
          <dd>{t("keys.list")}</dd>
        </div>
      </dl>
    </Dialog>
  );
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, select, textarea, dialog") !== null;
}

/** False: the page has no search field. */
function focusSearch(): boolean {
  const field = document.querySelector<HTMLInputElement>('main input[type="search"]');
  field?.focus();
  return field !== null;
}
