// One machine as a drawing: NUMA nodes, PCIe roots in them, GPUs above, NICs below, and a line for every pair of a pod.
// The geometry depends on the layout alone, so rows of a long list have known heights before anything is drawn.

const BOX = { w: 100, h: 56, gap: 10, pad: 10, head: 20, mid: 52, apart: 16 };
const geometries = new Map();

function geometry(key) {
  if (!geometries.has(key)) geometries.set(key, plot(state.layouts.get(key)));
  return geometries.get(key);
}

function plot(layout) {
  const groups = layout.numa.map((numa) => numa.roots.map((root) => sized(root, layout.devices)));
  const all = groups.flat();
  const gpuRows = Math.max(0, ...all.map((group) => group.gpuRows));
  const nicRows = Math.max(0, ...all.map((group) => group.nicRows));
  const split = all.some((group) => !group.gpuRows) && gpuRows > 0;
  const linked = layout.devices.flatMap((device, at) => (device.nvlinks ? [at] : []));
  const lift = linked.length > 1 ? 20 : 0; // space for the bus above everything
  const top = lift + 2 * BOX.head + BOX.pad / 2;
  const nicTop = top + rows(gpuRows) + (gpuRows ? BOX.mid + (split ? 22 : 0) : 0);
  const bottom = nicRows ? nicTop + rows(nicRows) : top + rows(gpuRows);
  const plan = { numas: [], roots: [], boxes: new Map(), width: 0, height: bottom + 2 * BOX.pad + 4, gpuRows, linked: lift ? linked : [] };
  let x = 1;
  layout.numa.forEach((numa, i) => {
    const width = placeNuma(plan, groups[i], x + BOX.pad, { top, nicTop, bottom, gpuRows });
    const title = numa.numa === null ? "NUMA node unknown" : `NUMA node ${numa.numa}`;
    plan.numas.push({ x, y: 2 + lift, w: width + 2 * BOX.pad, h: bottom - lift + 2 * BOX.pad, title });
    x += width + 2 * BOX.pad + BOX.apart;
  });
  plan.width = Math.max(x - BOX.apart + 1, 260);
  return plan;
}

const rows = (number) => (number ? number * (BOX.h + BOX.gap) - BOX.gap : 0);

function sized(root, devices) {
  const gpus = root.devices.filter((at) => devices[at].kind === "gpu");
  const nics = root.devices.filter((at) => devices[at].kind === "nic");
  const columns = Math.min(8, Math.max(gpus.length, nics.length));
  return { root: root.root, gpus, nics, columns, gpuRows: Math.ceil(gpus.length / columns), nicRows: Math.ceil(nics.length / columns),
    width: columns * (BOX.w + BOX.gap) - BOX.gap + 2 * BOX.pad };
}

// Roots with both kinds of devices have the full height; roots with only NICs are below roots with only GPUs.
function placeNuma(plan, groups, x0, lines) {
  const order = [...groups.filter((g) => g.gpuRows && g.nicRows), ...groups.filter((g) => !g.gpuRows || !g.nicRows)];
  let [above, below] = [x0, x0];
  for (const group of order) {
    const both = group.gpuRows && group.nicRows;
    const x = both ? Math.max(above, below) : group.gpuRows ? above : below;
    const first = group.gpuRows ? lines.top : lines.nicTop;
    const last = group.nicRows ? lines.bottom : lines.top + rows(lines.gpuRows);
    plan.roots.push({ x, y: first - BOX.head, w: group.width, h: last - first + BOX.head + BOX.pad, title: group.root });
    seat(plan, group.gpus, x + BOX.pad, lines.top, group.columns);
    seat(plan, group.nics, x + BOX.pad, lines.nicTop, group.columns);
    if (group.gpuRows) above = x + group.width + BOX.gap;
    if (group.nicRows) below = x + group.width + BOX.gap;
  }
  return Math.max(above, below) - x0 - BOX.gap;
}

function seat(plan, devices, x, y, columns) {
  devices.forEach((at, i) => {
    plan.boxes.set(at, { x: x + (i % columns) * (BOX.w + BOX.gap), y: y + Math.floor(i / columns) * (BOX.h + BOX.gap) });
  });
}

function drawing(node) {
  const layout = state.layouts.get(node.layout);
  const plan = geometry(node.layout);
  const { marks } = summary(node);
  const holders = holdersOn(node.name);
  const pairs = pairsToDraw(node, layout, holders);
  const made = svg("svg", { viewBox: `0 0 ${plan.width} ${plan.height}`, width: plan.width, role: "img",
    "aria-label": `Drawing of ${node.name}; its devices and pods are listed under Selected`,
    class: pairs.some((pair) => pair.chosen) || somethingChosen(node) ? "dim" : null });
  plan.numas.forEach((numa, i) => {
    if (i) made.append(...between(plan.numas[i - 1], numa));
    made.append(svg("rect", { class: "numa", x: numa.x, y: numa.y, width: numa.w, height: numa.h, rx: 9 }),
      svg("text", { class: "small", x: numa.x + BOX.pad, y: numa.y + 15 }, numa.title));
  });
  for (const root of plan.roots) {
    const title = root.title ? `root ${root.title}` : "PCIe root hidden";
    made.append(svg("rect", { class: "root", x: root.x, y: root.y, width: root.w, height: root.h, rx: 6 }),
      svg("text", { class: "small", x: root.x + BOX.pad, y: root.y + 14 }, cut(title, root.w - 12, 10)));
  }
  if (plan.linked.length) made.append(nvlink(plan, layout));
  layout.devices.forEach((device, at) => made.append(drawDevice(node, device, at, plan.boxes.get(at), marks.get(at), holders)));
  pairs.sort((a, b) => Boolean(a.chosen) - Boolean(b.chosen));
  const drawn = pairs.map((pair, i) => drawPair(pair, plan.boxes.get(pair.gpu), plan.boxes.get(pair.nic), i));
  made.append(...drawn.map(([line]) => line), ...drawn.map(([, label]) => label)); // no line crosses a label
  return made;
}

// NVLink joins the GPUs of a machine whatever their NUMA node: one bus above all, down to each at its right edge.
function nvlink(plan, layout) {
  const drops = plan.linked.map((at) => [plan.boxes.get(at).x + BOX.w - 7, plan.boxes.get(at).y]);
  const [from, to] = [Math.min(...drops.map(([x]) => x)), Math.max(...drops.map(([x]) => x))];
  const numbers = [...new Set(plan.linked.map((at) => layout.devices[at].nvlinks))].sort((a, b) => a - b);
  const word = `NVLink, ${numbers.join(" or ")} a GPU`;
  const wide = word.length * 6 + 14;
  return svg("g", { class: "nvlink" }, svg("title", {}, `${plan.linked.length} GPUs are connected by NVLink`),
    svg("path", { d: `M${from} 10H${to}${drops.map(([x, y]) => `M${x} 10V${y}`).join("")}` }),
    svg("rect", { x: (from + to - wide) / 2, y: 1, width: wide, height: 18, rx: 9 }), svg("text", { x: (from + to) / 2, y: 14 }, word));
}

function between(left, right) {
  const middle = left.y + left.h / 2;
  return [-3, 3].map((dy) => svg("line", { class: "bus", x1: left.x + left.w, x2: right.x, y1: middle + dy, y2: middle + dy }));
}

function pairsToDraw(node, layout, holders) {
  const picked = state.picked || {};
  if (picked.node === node.name && picked.device !== undefined) return pairsOf(layout, picked.device);
  const planned = plannedOn(node.name).filter((pod) => pod.key === picked.holder);
  return [...holders, ...planned].flatMap((holder) =>
    holder.pairs.map((pair) => ({ ...pair, chosen: holder.key === picked.holder, holder })));
}

// Every distance from one device to those of the other kind.
function pairsOf(layout, at) {
  const gpus = layout.devices.filter((device) => device.kind === "gpu").length;
  const pair = (gpu, nic) => {
    const distance = layout.near[gpu][nic - gpus];
    const direct = distance === "UNKNOWN" ? null : RANK[distance] <= RANK[layout.devices[nic].direct];
    return { gpu, nic, distance, direct, chosen: true, from: at };
  };
  const others = layout.devices.map((_, i) => i).filter((i) => (i < gpus) !== (at < gpus));
  return others.map((other) => (at < gpus ? pair(at, other) : pair(other, at)));
}

function somethingChosen(node) {
  const picked = state.picked || {};
  if (picked.device !== undefined) return picked.node === node.name;
  const holder = state.holders.get(picked.holder) || (state.plan && state.plan.pods.find((pod) => pod.key === picked.holder));
  return Boolean(holder) && holder.node === node.name;
}

function drawDevice(node, device, at, box, mark, holders) {
  const picked = state.picked || {};
  const kind = mark ? mark.state : "free";
  const planned = plannedOn(node.name).find((pod) => pod.claims.some((claim) => claim.devices.some((one) => one.at === at)));
  const who = mark && mark.by ? holders.findIndex((holder) => mark.by.includes(holder.key)) : -1;
  const chosen = (picked.node === node.name && picked.device === at) || (picked.holder && mark?.by?.includes(picked.holder));
  const words = wordsToFind();
  const hit = words.length > 0 && words.every((word) => deviceWords(device).toLowerCase().includes(word));
  const classes = ["device", device.kind, kind.replace(" ", "-"), who >= 0 && `who-${who % 6}`, chosen && "chosen", hit && "hit",
    planned && kind !== "in use" && "planned"].filter(Boolean).join(" ");
  const body = device.kind === "gpu"
    ? svg("path", { class: "body", d: `M${box.x + 9} ${box.y}H${box.x + BOX.w}V${box.y + BOX.h}H${box.x}V${box.y + 9}Z` })
    : svg("rect", { class: "body", x: box.x, y: box.y, width: BOX.w, height: BOX.h, rx: 15 });
  const third = planned && kind !== "in use" ? `plan: ${planned.name}` : mark && mark.by ? mark.by.map((key) => key.split("/").pop()).join(", ") : "";
  const last = third ? squeeze(third, BOX.w - 20, 11) : `${STATES[kind]} ${kind}`;
  const title = [device.label, device.title, device.address, kind, mark?.claim && `claim ${mark.claim}`, ...(mark?.taints || [])];
  return svg("g", { class: classes, "data-at": at }, svg("title", {}, title.filter(Boolean).join(" · ")), body,
    svg("text", { class: "name", x: box.x + 12, y: box.y + 17 }, device.label),
    mark?.taints && kind === "in use" ? svg("text", { x: box.x + BOX.w - 20, y: box.y + 17 }, "⚠") : null,
    svg("text", { class: "small", x: box.x + 12, y: box.y + 31 }, cut(device.title, BOX.w - 18, 10)),
    svg("text", { x: box.x + 12, y: box.y + 46 }, last));
}

function drawPair(pair, gpu, nic, order) {
  const [x1, y1, x2, y2] = [gpu.x + BOX.w / 2, gpu.y + BOX.h, nic.x + BOX.w / 2, nic.y];
  const pull = Math.max(18, (y2 - y1) * 0.5);
  const at = Math.abs(x1 - x2) < 4 ? 0.5 : [0.38, 0.5, 0.62][order % 3];
  let [cx, cy] = [bezier(x1, x1, x2, x2, at), bezier(y1, y1 + pull, y2 - pull, y2, at)];
  if (pair.from !== undefined) [cx, cy] = pair.from === pair.gpu ? [x2, y2 - 13] : [x1, y1 + 13]; // a fan: labels at its far ends
  const { glyph, word } = DISTANCES[pair.distance];
  const how = pair.direct === false ? "; copied through host memory" : "";
  const group = (...parts) => svg("g", { class: `pair ${pair.distance}${pair.chosen ? " chosen" : ""}` }, svg("title", {}, `${pair.distance}: ${word}${how}`), parts);
  return [group(svg("path", { d: `M${x1} ${y1}C${x1} ${y1 + pull} ${x2} ${y2 - pull} ${x2} ${y2}` })),
    group(svg("rect", { class: "label", x: cx - 25, y: cy - 8.5, width: 50, height: 17, rx: 8.5 }),
    svg("text", { x: cx, y: cy + 4 }, `${glyph} ${pair.distance === "UNKNOWN" ? "" : pair.distance}`))];
}

const bezier = (a, b, c, d, t) => a * (1 - t) ** 3 + 3 * b * t * (1 - t) ** 2 + 3 * c * t * t * (1 - t) + d * t ** 3;

function cut(text, width, size) {
  const fits = Math.floor(width / (size * 0.58));
  return text.length <= fits ? text : `${text.slice(0, Math.max(1, fits - 1))}…`;
}

// Pods of one workload differ at the end of their names.
function squeeze(text, width, size) {
  const fits = Math.floor(width / (size * 0.58));
  return text.length <= fits ? text : `${text.slice(0, Math.floor(fits / 3))}…${text.slice(1 - Math.ceil((fits * 2) / 3))}`;
}

// A machine in a few square centimetres: squares are GPUs, circles are NICs, filled is in use, struck through is tainted.
function miniature(node) {
  const layout = state.layouts.get(node.layout);
  const { marks } = summary(node);
  const kinds = ["gpu", "nic"].map((kind) => layout.devices.map((device, at) => [device, at]).filter(([device]) => device.kind === kind));
  const wide = Math.max(8, ...kinds.map((row) => row.length));
  const made = svg("svg", { class: "mini", viewBox: `0 0 ${wide * 18} 36`, width: 156, height: 36, preserveAspectRatio: "xMinYMid", "aria-hidden": "true" });
  const outlines = new Map(); // by state, all its devices: a screen of tiles has a thousand devices, and two or three states each
  const add = (kind, outline) => outlines.set(kind, (outlines.get(kind) || "") + outline);
  kinds.forEach((row, r) => row.forEach(([, at], i) => {
    const mark = marks.get(at);
    const [x, y] = [i * 18 + 2, r * 18 + 2];
    add((mark ? mark.state : "free").replace(" ", "-"), r ? `M${x} ${y + 6}a6 6 0 1 1 12 0a6 6 0 1 1-12 0z` : `M${x} ${y}h12v12h-12z`);
    if (mark?.taints) add("slash", `M${x - 1} ${y + 13}L${x + 13} ${y - 1}`);
  }));
  made.append(...[...outlines].map(([kind, d]) => svg("path", { class: kind, d })));
  return made;
}
