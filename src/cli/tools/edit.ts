import { type Edited, editFile, editFileIfConfirmed, type NotEdited } from "../../config/edit-file.ts";
import { EXIT } from "../../core/errors.ts";
import { failNull } from "../ui/messages.ts";

/** Works without a daemon, and a running one sees the save. null: it has been told why nothing was changed. */
export async function editConfig<Result extends { readonly ok: true; readonly text: string }>(
  file: string,
  edit: (text: string) => Result | NotEdited,
  confirm?: () => Promise<boolean>,
): Promise<Edited<Result> | null> {
  const edited = await (confirm === undefined
    ? editFile(file, edit)
    : editFileIfConfirmed(file, edit, confirm));
  return edited === null || edited.ok ? edited : failNull(edited.reason, EXIT.failed);
}
