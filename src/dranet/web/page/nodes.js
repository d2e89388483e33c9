// The machines: filtered, grouped, and only those in sight drawn. Rows have known heights, so a thousand machines cost a
// long empty strip and the few rows one can see.

const TILE = { w: 176, h: 92 };
const CARD_HEAD = 38;
const DRAWN = 24; // machines that are drawn whole; more are tiles
const TILED = 300; // machines that are tiles; more are a map
const view = { rows: [], order: [], shown: new Map(), active: "", total: 0, map: null };

function arrange() {
  const words = lookedFor();
  state.sorted ??= [...state.nodes.values()].map((node) => node.name).sort(byName);
  const found = state.sorted.map((name) => state.nodes.get(name)).filter((node) => inZoom(node) && matches(node, words));
  const wanted = sizeFor(found.length);
  if (wanted !== "map") found.sort((a, b) => hasTrouble(b) - hasTrouble(a)); // stable: by name among equals
  const width = Math.max(280, $("nodes").clientWidth - 32);
  view.rows = [];
  view.order = [];
  view.map = null;
  drawCrumbs(found.length);
  for (const row of view.shown.values()) row.remove();
  view.shown.clear();
  $("map").hidden = $("key").hidden = wanted !== "map";
  $("legend").hidden = wanted === "map"; // the map has its own
  if (wanted === "map") return arrangeMap(found, width);
  let y = 4;
  for (const [title, nodes, size] of sections(found, wanted)) {
    if (title) {
      view.rows.push({ y, h: 46, title, nodes });
      y += 46;
    }
    if (state.closed.has(title)) continue;
    const widest = size === "tile" ? TILE.w : Math.max(...nodes.map((node) => geometry(node.layout).width + 26));
    const columns = Math.max(1, Math.floor((width + 12) / (widest + 12)));
    const scale = Math.min(1, (width - 26) / (widest - 26)); // a drawing never grows beyond its own size
    for (let i = 0; i < nodes.length; i += columns) {
      const part = nodes.slice(i, i + columns);
      const h = size === "tile" ? TILE.h : CARD_HEAD + 10 + Math.max(...part.map((node) => geometry(node.layout).height)) * scale;
      part.forEach((node) => view.order.push({ name: node.name, row: view.rows.length, columns }));
      view.rows.push({ y, h, part, size, cell: size === "tile" ? (width - 12 * (columns - 1)) / columns : Math.min(widest, width) });
      y += h + 12;
    }
  }
  view.total = found.length;
  $("rows").style.height = `${y + 20}px`;
  if (!view.order.some((entry) => entry.name === view.active)) view.active = view.order[0]?.name || "";
  paint();
}

function sizeFor(number) {
  if (state.zoom.node) return "drawing";
  if (state.size !== "auto") return state.size;
  return number > TILED ? "map" : number > DRAWN ? "tile" : "drawing";
}

// Machines with planned pods come first, and drawn while they are few: among tiles a plan would not be seen.
function sections(found, size) {
  const groups = (nodes) => troubleFirst(grouped(nodes)).map(([title, part]) => [title, part, size]);
  const planned = size === "tile" ? found.filter((node) => plannedOn(node.name).length) : [];
  if (!planned.length) return groups(found);
  const rest = found.filter((node) => !plannedOn(node.name).length);
  const title = `planned here: ${count(state.plan.pods.length, "pod")}`;
  return [[title, planned, planned.length > DRAWN ? "tile" : "drawing"], ...groups(rest)];
}

// Groups in which something is wrong, then the others, each in order of their names. A map keeps its places.
const troubleFirst = (groups) => groups.sort(([, a], [, b]) => b.some(hasTrouble) - a.some(hasTrouble));
const hasTrouble = (node) => Number(summary(node).misplaced || summary(node).states.has("incomplete"));

// More machines than a screen shows are looked for by where they stand, if that is known.
function groupBy() {
  if (state.group !== "auto") return state.group;
  return state.nodes.size > TILED && state.nodes.values().next().value.block ? "block" : "kind";
}

function grouped(nodes) {
  if (groupBy() === "none") return nodes.length ? [["", nodes]] : [];
  const groups = Map.groupBy(nodes, groupOf);
  return [...groups].sort(([a], [b]) => byName(a, b));
}

function groupOf(node) {
  const group = groupBy();
  if (group === "block") return node.block || "block unknown";
  const sum = summary(node);
  if (group === "kind") {
    const { title } = state.layouts.get(node.layout);
    return `${title || "machine"}: ${count(sum.gpus, "GPU")}, ${count(sum.nics, "NIC")}`;
  }
  if (sum.misplaced) return "1 · misplaced NICs";
  if (node.problem || sum.states.has("tainted") || sum.states.has("elsewhere")) return "2 · tainted, elsewhere or incomplete";
  return sum.states.has("in use") ? "3 · in use" : "4 · all free";
}

function paint() {
  const box = $("nodes");
  const [from, to] = [box.scrollTop - 400, box.scrollTop + box.clientHeight + 400];
  const wanted = new Set();
  let i = lowerBound(from);
  for (; i < view.rows.length && view.rows[i].y < to; i++) wanted.add(i);
  for (const [index, made] of view.shown) {
    if (wanted.has(index)) continue;
    if (made.contains(document.activeElement)) continue; // a row that has the focus stays
    made.remove();
    view.shown.delete(index);
  }
  for (const index of wanted) {
    if (view.shown.has(index)) continue;
    const made = drawRow(view.rows[index]);
    view.shown.set(index, made);
    $("rows").append(made);
  }
}

function lowerBound(y) {
  let [low, high] = [0, view.rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (view.rows[middle].y + view.rows[middle].h < y) low = middle + 1;
    else high = middle;
  }
  return low;
}

function drawRow(row) {
  const made = el("div", { class: "row" });
  made.style.top = `${row.y}px`;
  if (row.title) {
    const open = !state.closed.has(row.title);
    made.append(el("h2", {}, el("button", { type: "button", class: "fold", "aria-expanded": String(open), "data-group": row.title }, `${open ? "▾" : "▸"} ${row.title}`),
      el("span", {}, groupTotals(row.nodes))));
  } else {
    made.append(...row.part.map((node) => machineBox(node, row)));
  }
  return made;
}

function groupTotals(nodes) {
  const sums = nodes.map(summary);
  const add = (key) => sums.reduce((total, sum) => total + sum[key], 0);
  return `${count(nodes.length, "machine")} · GPUs ${add("usedGpus")}/${add("gpus")} · NICs ${add("usedNics")}/${add("nics")} in use`;
}

function machineBox(node, row) {
  const sum = summary(node);
  const picked = state.picked?.node === node.name || (state.picked?.holder && nodeOfHolder(state.picked.holder) === node.name);
  const made = el("div", { class: `machine ${row.size}${picked ? " picked" : ""}${state.fresh.has(node.name) ? " fresh" : ""}${plannedOn(node.name).length ? " has-plan" : ""}`,
    "data-node": node.name, role: "button", "aria-label": describeNode(node, sum), tabindex: node.name === view.active ? "0" : "-1" });
  made.style.width = `${row.cell}px`;
  if (row.size === "tile") {
    made.append(el("div", { class: "top" }, el("span", { title: node.name }, el("bdi", {}, node.name))), miniature(node), tileFoot(node, sum));
  } else {
    const uses = `GPUs ${sum.usedGpus}/${sum.gpus} · NICs ${sum.usedNics}/${sum.nics} in use${node.block ? ` · ${node.block}` : ""}`;
    made.append(el("div", { class: "head" }, el("strong", {}, node.name), el("span", { class: "rest" }, uses),
      trouble(node), sum.worst ? badge(sum.worst, sum.misplaced) : null), drawing(node));
  }
  return made;
}

function tileFoot(node, sum) {
  const pods = holdersOn(node.name).length;
  const planned = plannedOn(node.name).length;
  return el("div", { class: "top" }, el("span", {}, el("bdi", {}, pods ? count(pods, "pod") : "free")),
    planned ? el("span", { class: "badge planned" }, `+ ${planned} planned`) : null, trouble(node, true), sum.worst ? badge(sum.worst, sum.misplaced) : null);
}

function trouble(node, short = false) {
  const words = [node.problem, node.unpublished && `${count(node.unpublished.length, "allocated device")} not published`].filter(Boolean).join("; ");
  return words ? el("span", { class: "badge warn", title: words }, short ? "⚠" : `⚠ ${words}`) : null;
}

function describeNode(node, sum) {
  const pods = holdersOn(node.name).map((holder) => holder.name);
  const parts = [node.name, `${sum.usedGpus} of ${sum.gpus} GPUs and ${sum.usedNics} of ${sum.nics} NICs in use`,
    pods.length ? `pods ${pods.join(", ")}` : "no pods", plannedOn(node.name).length && `${count(plannedOn(node.name).length, "pod")} planned`, sum.worst && `worst pair ${sum.worst}${sum.misplaced ? ", misplaced" : ""}`,
    sum.states.has("tainted") && "has tainted devices", node.problem];
  return parts.filter(Boolean).join("; ");
}

function nodeOfHolder(key) {
  return (state.holders.get(key) || state.plan?.pods.find((pod) => pod.key === key))?.node;
}

// Arrow keys walk over the machines; one of them is in the tab order at a time.
function walk(event) {
  const here = view.order.findIndex((entry) => entry.name === view.active);
  if (here < 0) return;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: view.order[here].columns, ArrowUp: -view.order[here].columns,
    PageDown: 3 * view.order[here].columns, PageUp: -3 * view.order[here].columns, Home: -here, End: view.order.length - 1 - here }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const next = Math.min(view.order.length - 1, Math.max(0, here + step));
  focusNode(view.order[next].name);
}

function focusNode(name) {
  view.active = name;
  if (view.map) return drawMap();
  reveal(name);
  for (const made of document.querySelectorAll("#rows .machine")) made.tabIndex = made.dataset.node === name ? 0 : -1;
  machineBoxOf(name)?.focus({ preventScroll: true });
}

const machineBoxOf = (name) => [...document.querySelectorAll("#rows .machine")].find((made) => made.dataset.node === name);

function reveal(name) {
  const entry = view.order.find((one) => one.name === name);
  if (!entry || view.map) return;
  const [row, box] = [view.rows[entry.row], $("nodes")];
  if (row.y < box.scrollTop + 8) box.scrollTop = row.y - 50;
  else if (row.y + row.h > box.scrollTop + box.clientHeight) box.scrollTop = row.y + row.h - box.clientHeight + 16;
  paint();
}

function refreshNodes() {
  keepFocus($("rows"), arrange);
}
