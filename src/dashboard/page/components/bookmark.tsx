import { useEffect, useState } from "preact/hooks";
import type { RememberedBrowser } from "../../../control/browsers.ts";
import { dayName } from "../../../core/units.ts";
import { Answered, useAnswer } from "../answer.tsx";
import { nameField, type Values } from "../form.ts";
import { type Frame, useFrame } from "../frame.tsx";
import { type BrowserKey, makeBrowserKey, readBrowserKeys, takeIntoUse } from "../live/browser-key.ts";
import { messageOf } from "../live/client.ts";
import { Dialog, Form, type FormProblem } from "./dialog.tsx";
import { type Column, column, Table } from "./table.tsx";

/** The button that remembers this browser, so that a bookmark opens the dashboard without a terminal. */
export function Bookmark() {
  const { t } = useFrame();
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="plain" onClick={() => setOpen(true)}>
        {t("bookmark.open")}
      </button>
      {isOpen ? <BookmarkDialog onClose={() => setOpen(false)} /> : null}
    </>
  );
}

function BookmarkDialog({ onClose }: { readonly onClose: () => void }) {
  const frame = useFrame();
  const { t } = frame;
  const asked = useAnswer("/api/browsers");
  const own = useBrowserKeys();
  const act: Frame["act"] = (...given) => {
    onClose();
    frame.act(...given);
  };
  const columns: readonly Column<RememberedBrowser>[] = [
    column(t("word.name"), ({ name }) => name),
    column(t("word.last-use"), ({ used_at }) => dayName(used_at)),
    column(t("bookmark.revoke"), ({ name }) => (
      <button type="button" class="plain" onClick={() => act({ kind: "revoke-browser", name })}>
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
        {({ browsers, why, next }) => {
          const itself = browsers.find((each) => own?.some(({ publicKey }) => publicKey === each.public_key));
          return (
            <>
              {why === null ? null : (
                <p class="wrong" role="alert">
                  {[why, next].filter((part) => part !== null).join(" → ")}
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
              {why === null && itself === undefined ? <Remember act={act} /> : null}
            </>
          );
        }}
      </Answered>
    </Dialog>
  );
}

/** The keys of this browser; null: they are not read yet. */
function useBrowserKeys(): readonly BrowserKey[] | null {
  const [keys, setKeys] = useState<readonly BrowserKey[] | null>(null);
  useEffect(() => {
    void readBrowserKeys().then(setKeys);
  }, []);
  return keys;
}

function Remember({ act }: Pick<Frame, "act">) {
  const { t, live } = useFrame();
  const [problem, setProblem] = useState<FormProblem | null>(null);
  const field = { name: "name", label: t("word.name"), initial: nameOf(navigator.userAgent) };
  const make = async ({ name = "" }: Values) => {
    try {
      const key = await makeBrowserKey();
      // Only once it is done: until then the key that this browser had is in use.
      const remembered = () => void takeIntoUse(key).then(() => live.changed());
      act({ kind: "remember-browser", name, public_key: key.publicKey }, remembered);
    } catch (error) {
      setProblem({ field: null, text: messageOf(error) });
    }
  };
  return (
    <Form
      fields={() => [nameField(field, t)]}
      problem={problem}
      busy={false}
      onSubmit={(values) => void make(values)}
    />
  );
}

/** A first proposal: most people have one browser of a kind. */
function nameOf(userAgent: string): string {
  const [found = "browser"] = /Firefox|Edg|Chrome|Safari/.exec(userAgent) ?? [];
  return found === "Edg" ? "edge" : found.toLowerCase();
}
