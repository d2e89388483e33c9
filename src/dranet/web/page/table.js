// All pods as a table: sorted by any column, and as a CSV file.

const SHOWN_ROWS = 300;
const COLUMNS = [
  ["Namespace", (holder) => holder.namespace],
  ["Pod", (holder) => (holder.kind === "claim" ? `claim ${holder.name}` : holder.name)],
  ["Node", (holder) => holder.node || ""],
  ["Phase", (holder) => holder.phase],
  ["GPUs", (holder) => heldKinds(holder, "gpu")],
  ["NICs", (holder) => heldKinds(holder, "nic")],
  ["Worst pair", (holder) => holder.worst || ""],
  ["GB/s", (holder) => holder.busbw ?? ""],
  ["Misplaced", (holder) => (holder.misplaced ? "yes" : "")],
];
const sorting = { column: 8, down: true }; // pods with a problem first

function heldKinds(holder, kind) {
  const devices = state.layouts.get(state.nodes.get(holder.node)?.layout)?.devices || [];
  return holder.claims.reduce((sum, claim) => sum + claim.devices.filter(({ at }) => devices[at]?.kind === kind).length, 0);
}

function tableRows() {
  const words = lookedFor();
  const wanted = [...state.holders.values()].filter((holder) => chosenPod(holder) && words.every((one) => podHas(holder, one)));
  const rows = wanted.map((holder) => ({ holder, cells: COLUMNS.map(([, read]) => read(holder)) }));
  return rows.sort((a, b) => compareCells(a, b) || byKey(a.holder, b.holder));
}

function compareCells(a, b) {
  const [one, other] = [a.cells[sorting.column], b.cells[sorting.column]];
  const rank = (value) => RANK[value] ?? -1;
  const order = COLUMNS[sorting.column][0] === "Worst pair" ? rank(one) - rank(other)
    : typeof one === "number" && typeof other === "number" ? one - other : byName(String(one), String(other));
  return sorting.down ? -order : order;
}

function drawTable() {
  if ($("table").hidden) return;
  const rows = tableRows();
  const heads = COLUMNS.map(([title], at) => el("th", { scope: "col", "aria-sort": at === sorting.column ? (sorting.down ? "descending" : "ascending") : null },
    el("button", { type: "button", class: "sort", onclick: () => sortBy(at) }, `${title}${at === sorting.column ? (sorting.down ? " ▾" : " ▴") : ""}`)));
  const body = rows.slice(0, SHOWN_ROWS).map(({ holder, cells }) => el("tr", { class: holder.misplaced ? "bad" : null }, cells.map((cell, at) => el("td", {},
    at === 1 ? el("button", { type: "button", class: "link", "data-holder": holder.key, onclick: () => pick({ holder: holder.key }) }, String(cell)) : String(cell)))));
  replace("table", el("p", { class: "buttons" }, el("span", { class: "quiet" }, `${count(rows.length, "row")}${rows.length > SHOWN_ROWS ? `, the first ${SHOWN_ROWS} shown` : ""}`),
    el("button", { type: "button", id: "csv", onclick: saveCsv }, "Save as CSV")),
  el("div", { class: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body))));
}

function sortBy(column) {
  sorting.down = sorting.column === column && !sorting.down;
  sorting.column = column;
  drawTable();
}

// Spreadsheets run a cell that begins like a formula; a leading quote makes it text.
function csvCell(value) {
  const text = String(value).replace(/^[=+\-@\t]/, "'$&");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csvText = () => [COLUMNS.map(([title]) => title), ...tableRows().map(({ cells }) => cells)].map((row) => `${row.map(csvCell).join(",")}\r\n`).join("");

function saveCsv() {
  const url = URL.createObjectURL(new Blob([csvText()], { type: "text/csv" }));
  el("a", { href: url, download: "pods.csv" }).click();
  URL.revokeObjectURL(url);
}
