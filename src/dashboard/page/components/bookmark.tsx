import { useEffect, useState } from "preact/hooks";
import type { RememberedBrowser } from "../../../control/browsers.ts";
import { withNext } from "../../../core/display.ts";
import { dayName } from "../../../core/units.ts";
import type { Action } from "../../actions/actions.ts";
import { Answered, useAnswer } from "../answer.tsx";
import { nameField, type Values } from "../form.ts";
import { useFrame } from "../frame.tsx";
import { makeBrowserKey, readBrowserKey } from "../live/browser-key.ts";
import { messageOf } from "../live/client.ts";
import { findMessage } from "../messages/messages.ts";
import { Dialog, Form } from "./dialog.tsx";
import { type Column, column, Table } from "./table.tsx";

/** The button that remembers this browser, so that a bookmark opens the dashboard without a terminal. */
export function Bookmark() {
  const { t } = useFrame();
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        {t("bookmark.open")}
      </button>
      {isOpen ? <BookmarkDialog onClose={() => setOpen(false)} /> : null}
    </>
  );
}

function BookmarkDialog({ onClose }: { readonly onClose: () => void }) {
  const { t, act } = useFrame();
  const asked = useAnswer("/api/browsers");
  // null: it is not read yet.
  const [own, setOwn] = useState<{ readonly key: string | undefined } | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    void readBrowserKey().then((found) => setOwn({ key: found?.publicKey }));
  }, []);
  const run = (action: Action) => {
    onClose();
    act(action);
  };
  const remember = async ({ name = "" }: Values) => {
    try {
      run({ kind: "remember-browser", name, public_key: (await makeBrowserKey()).publicKey });
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  const field = nameField({ name: "name", label: t("word.name"), initial: nameOf(navigator.userAgent) }, t);
  const columns: readonly Column<RememberedBrowser>[] = [
    column(t("word.name"), ({ name }) => name),
    column(t("word.last-use"), ({ used_at }) => dayName(used_at)),
    column(t("bookmark.revoke"), ({ name }) => (
      <button type="button" onClick={() => run({ kind: "revoke-browser", name })}>
        {t("bookmark.revoke")}
        <span class="visually-hidden"> {name}</span>
      </button>
    )),
    column(t("bookmark.key"), ({ fingerprint }) => <code>{fingerprint}</code>),
    column(t("bookmark.made"), ({ made_at }) => dayName(made_at)),
  ];
  return (
    <Dialog title={t("bookmark.title")} onClose={onClose}>
      <p>{t("bookmark.lead")}</p>
      <Answered asked={own === null ? { ...asked, value: null } : asked}>
        {({ browsers, why, next, code }) => {
          const known = findMessage(`problem.${code}`);
          const itself = browsers.find((each) => each.public_key === own?.key);
          return (
            <>
              {why === null ? null : (
                <p class="wrong" role="alert">
                  {known === null ? withNext({ problem: why, next }) : t(known)}
                </p>
              )}
              {browsers.length === 0 ? null : (
                <Table
                  caption={t("bookmark.list")}
                  rows={browsers}
                  keyOf={({ name }) => name}
                  columns={columns}
                />
              )}
              {itself === undefined ? null : <p>{t("bookmark.this", { name: itself.name })}</p>}
              {why === null && itself === undefined ? (
                <Form
                  fields={() => [field]}
                  problem={problem}
                  busy={false}
                  onSubmit={(values) => void remember(values)}
                />
              ) : null}
            </>
          );
        }}
      </Answered>
    </Dialog>
  );
}

/** A first proposal: most people have one browser of a kind. */
function nameOf(userAgent: string): string {
  const [found = "browser"] = /Firefox|Edg|Chrome|Safari/.exec(userAgent) ?? [];
  return found === "Edg" ? "edge" : found.toLowerCase();
}
