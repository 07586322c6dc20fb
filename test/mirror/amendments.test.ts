import t from "tap";
import { buildAmendment, computeCorrection } from "../../src/mirror/store/amendments.ts";
import { record } from "../doubles/records.ts";

t.test("a charge for another machine's request does not change the limits here", async (t) => {
  const own = record(1, { counts: true, counted_microdollars: 3 });
  const amend = buildAmendment(own, { ...own, billed_microdollars: 10 });
  if (amend === null) throw new Error("nothing is amended");
  t.match(amend, { kind: "amend", id: own.id, billed_microdollars: 10, limits: { tool: "codex" } });
  t.match(computeCorrection(amend), { tool: "codex", spend: 7 });

  const theirs = record(2, { machine: "laptop", counts: true, counted_microdollars: 3 });
  const siblingAmend = buildAmendment(theirs, { ...theirs, billed_microdollars: 10 });
  if (siblingAmend === null) throw new Error("nothing is amended");
  t.match(siblingAmend, {
    kind: "sibling-amend",
    id: theirs.id,
    machine: "laptop",
    machine_id: "id-of-laptop",
    billed_microdollars: 10,
  });
  t.notHas(siblingAmend, "limits");
  t.equal(computeCorrection(siblingAmend), null);
  t.equal(buildAmendment(theirs, theirs), null);
});
