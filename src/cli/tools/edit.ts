import { type Edited, editFile, type NotEdited } from "../../config/edit/edit-file.ts";
import { EXIT } from "../../core/errors.ts";
import { told } from "./told.ts";

/** Works without a daemon, and a running one sees the save. null: it has been told why nothing was changed. */
export async function editConfig<Found extends { readonly ok: true; readonly text: string }>(
  file: string,
  splice: (text: string) => Found | NotEdited,
  may?: () => Promise<boolean>,
): Promise<Edited<Found> | null> {
  const edited = await editFile(file, splice, { may });
  return edited === null || edited.ok ? edited : told(edited.reason, EXIT.failed);
}
