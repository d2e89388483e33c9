// The fleet on one screen: a machine is one small mark on a canvas, in a frame with those of its group. Ten thousand
// elements would make every change slow; ten thousand small images copied to a canvas do not.

// The worst state of a machine comes first. Every mark has its own shape, so that colour is not needed.
const MARKS = {
  misplaced: { word: "misplaced NIC", colour: "--sys", shape: "cross" },
  incomplete: { word: "incomplete", colour: "--warn", shape: "bar" },
  tainted: { word: "tainted", colour: "--warn", shape: "slash" },
  elsewhere: { word: "NIC in another namespace", colour: "--pxb", shape: "dot" },
  full: { word: "all NICs in use", colour: "--ink", shape: "full" },
  part: { word: "partly in use", colour: "--ink", shape: "half" },
  free: { word: "free", colour: "--quiet", shape: "empty" },
};
const NAMED_GROUPS = 60; // with more, names would take more space than machines; they are below the map
const CELL = { most: 26, least: 3 };

const markOf = (node) => (summary(node).mark ??= worstOf(node));

function worstOf(node) {
  const sum = summary(node);
  if (sum.misplaced) return "misplaced";
  if (node.problem || node.unpublished) return "incomplete";
  if (sum.states.has("tainted")) return "tainted";
  if (sum.states.has("elsewhere")) return "elsewhere";
  const [used, all] = sum.nics ? [sum.usedNics, sum.nics] : [sum.usedGpus, sum.gpus];
  return !used && !sum.usedGpus ? "free" : used < all ? "part" : "full";
}

function arrangeMap(found, width) {
  const groups = grouped(found);
  const height = Math.max(160, $("nodes").clientHeight - 6);
  const { frames, cell, height: used } = largest(groups, width, height);
  view.total = found.length;
  view.map = { frames, cell, width, height: Math.max(used, 40), groups: groups.length };
  view.order = frames.flatMap((frame) => frame.nodes.map((node) => ({ name: node.name, columns: frame.columns })));
  if (!view.order.some((entry) => entry.name === view.active)) view.active = view.order[0]?.name || "";
  $("rows").style.height = "0";
  drawMap();
  drawKey(found);
}

// The largest marks with which every machine fits, whatever shape the frames must have for it.
function largest(groups, width, height) {
  for (let cell = CELL.most; cell > CELL.least; cell--) {
    const tried = [2, 1, 3, 4, 6].map((ratio) => pack(groups, cell, width, ratio)).find((one) => one.height <= height);
    if (tried) return tried;
  }
  return pack(groups, CELL.least, width, 1);
}

// Frames from left to right in lines, as wide as `ratio` times their height; none is wider than the screen.
function pack(groups, cell, width, ratio) {
  const head = groups.length > 1 && groups.length <= NAMED_GROUPS ? 18 : 0;
  const most = Math.max(1, Math.floor((width - 6) / cell));
  const frames = [];
  const gap = cell > 4 ? 3 : 1;
  let [x, y, tallest] = [0, 0, 0];
  for (const [title, nodes] of groups) {
    const columns = Math.min(most, Math.max(Math.ceil(Math.sqrt(nodes.length * ratio)), head ? Math.ceil(90 / cell) : 1));
    const [w, h] = [columns * cell + 4, Math.ceil(nodes.length / columns) * cell + 4 + head];
    if (x && x + w > width) [x, y, tallest] = [0, y + tallest + gap, 0];
    frames.push({ title, nodes, columns, x, y, w, h, head });
    x += w + gap;
    tallest = Math.max(tallest, h);
  }
  return { frames, cell, height: y + tallest };
}

function drawMap() {
  if (!view.map) return;
  const { frames, cell, width, height, groups } = view.map;
  const canvas = $("map");
  const paint = canvasOf(canvas, width, height);
  const colour = colours();
  const picked = pickedNames();
  const pictures = new Map(Object.keys(MARKS).map((mark) => [mark, dotsOf(picture(mark, cell, colour))]));
  const dots = new ImageData(canvas.width, canvas.height);
  for (const frame of frames) frame.nodes.forEach((node, i) => stamp(dots, pictures.get(markOf(node)), ...placeIn(frame, i, cell)));
  paint.putImageData(dots, 0, 0);
  const focused = document.activeElement === canvas;
  paint.font = "600 11px system-ui, sans-serif";
  for (const frame of frames) {
    paint.strokeStyle = colour("--line");
    if (groups > 1) paint.strokeRect(frame.x + 0.5, frame.y + 0.5, frame.w - 1, frame.h - 1);
    paint.fillStyle = colour("--ink");
    if (frame.head) paint.fillText(cut(frame.title, frame.w - 6, 11), frame.x + 4, frame.y + 13);
    frame.nodes.forEach((node, i) => {
      const [x, y] = placeIn(frame, i, cell);
      if (plannedOn(node.name).length) ring(paint, x, y, cell, colour("--planned"), [3, 2]);
      if (state.fresh.has(node.name) || picked.has(node.name)) ring(paint, x, y, cell, colour("--accent"), []);
      if (focused && node.name === view.active) ring(paint, x - 1, y - 1, cell + 2, colour("--accent"), []);
    });
  }
  sayUnder(view.active);
}

// The machines of what is selected: a machine, a pod's or a job's.
function pickedNames() {
  const { node, holder, job } = state.picked || {};
  return new Set(job ? podsOf(job).map((one) => one.node) : [node || nodeOfHolder(holder)]);
}

const placeIn = (frame, i, cell) => [frame.x + 2 + (i % frame.columns) * cell, frame.y + frame.head + 2 + Math.floor(i / frame.columns) * cell];

function canvasOf(canvas, width, height) {
  const dots = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: width * dots, height: height * dots });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const paint = canvas.getContext("2d");
  paint.scale(dots, dots);
  return paint;
}

function ring(paint, x, y, cell, colour, dashes) {
  paint.save();
  Object.assign(paint, { strokeStyle: colour, lineWidth: 2 });
  paint.setLineDash(dashes);
  paint.strokeRect(x, y, cell - 1, cell - 1);
  paint.restore();
}

// The colours of the theme as a canvas wants them: light-dark() is resolved by an element.
function colours() {
  const probe = $("map");
  const known = new Map();
  return (name) => {
    if (!known.has(name)) {
      probe.style.color = `var(${name})`;
      known.set(name, getComputedStyle(probe).color);
    }
    return known.get(name);
  };
}

const dotsOf = (made) => made.getContext("2d").getImageData(0, 0, made.width, made.height);

// Row by row in memory: with ten thousand calls of drawImage a map took more than twice as long.
function stamp(dots, mark, x, y) {
  const scale = window.devicePixelRatio || 1;
  const [left, top] = [Math.round(x * scale), Math.round(y * scale)];
  for (let row = 0; row < mark.height && top + row < dots.height; row++) {
    dots.data.set(mark.data.subarray(row * mark.width * 4, (row + 1) * mark.width * 4), ((top + row) * dots.width + left) * 4);
  }
}

// One mark, drawn once and copied to every machine that shows it.
function picture(mark, cell, colour) {
  const canvas = document.createElement("canvas");
  const paint = canvasOf(canvas, cell, cell);
  const a = cell > 6 ? 1 : 0.5;
  const b = cell - a - (cell > 6 ? 1 : 0.5);
  const shape = MARKS[mark].shape;
  const framed = cell > 7 || shape === "empty"; // in a few dots a frame would hide what is in it
  Object.assign(paint, { strokeStyle: colour(MARKS[mark].colour), fillStyle: colour(MARKS[mark].colour), lineWidth: Math.max(1, cell / 9) });
  const line = (...points) => { paint.beginPath(); points.forEach(([x, y]) => paint.lineTo(x, y)); paint.stroke(); };
  if (shape === "full") paint.fillRect(a, a, b - a + 0.5, b - a + 0.5);
  else if (framed && shape !== "cross") { paint.globalAlpha = shape === "empty" ? 0.55 : 1; paint.strokeRect(a + 0.5, a + 0.5, b - a - 0.5, b - a - 0.5); }
  if (shape === "half") paint.fillRect(a, cell / 2, b - a + 0.5, b - cell / 2);
  paint.lineWidth = Math.max(1.2, cell / 6);
  if (shape === "cross" || shape === "slash") line([a, b], [b, a]);
  if (shape === "cross") line([a, a], [b, b]);
  if (shape === "bar") line([cell / 2, a], [cell / 2, b]);
  if (shape === "dot") { paint.beginPath(); paint.arc(cell / 2, cell / 2, cell / 5, 0, 7); paint.fill(); }
  return canvas;
}

function drawKey(found) {
  const counts = new Map(Object.keys(MARKS).map((mark) => [mark, 0]));
  for (const mark of found.map(markOf)) counts.set(mark, counts.get(mark) + 1);
  const colour = colours();
  const planned = found.filter((node) => plannedOn(node.name).length).length;
  $("key").firstChild.replaceChildren(...Object.keys(MARKS).map((mark) =>
    el("li", { "data-mark": mark }, picture(mark, 14, colour), MARKS[mark].word, el("b", {}, String(counts.get(mark))))),
  planned ? el("li", { "data-mark": "planned" }, el("span", { class: "badge planned" }, "┅ planned here"), el("b", {}, String(planned))) : "");
}

function sayUnder(name) {
  const node = state.nodes.get(name);
  const frame = view.map?.frames.find((one) => one.nodes.includes(node));
  const into = frame && view.map.groups > 1 ? ` · click or Enter: zoom into ${frame.title}` : "";
  $("under").textContent = node ? `${describeNode(node, summary(node))} · ${MARKS[markOf(node)].word}${into}` : "no machine matches";
}

function machineAt(event) {
  const { frames, cell } = view.map;
  const frame = frames.find((one) => event.offsetX >= one.x && event.offsetX < one.x + one.w && event.offsetY >= one.y && event.offsetY < one.y + one.h);
  if (!frame) return [null, null];
  const column = Math.floor((event.offsetX - frame.x - 2) / cell);
  const row = Math.floor((event.offsetY - frame.y - frame.head - 2) / cell);
  const inside = column >= 0 && row >= 0 && column < frame.columns;
  return [frame, (inside && frame.nodes[row * frame.columns + column]) || null];
}

// Into the group first, then into the machine; where there is one group, into the machine at once.
function enterMap(frame, node) {
  if (view.map.groups > 1 && frame) zoomTo(frame.title);
  else if (node) zoomTo(state.zoom.group, node.name);
}

function wireMap() {
  const canvas = $("map");
  canvas.addEventListener("click", (event) => enterMap(...machineAt(event)));
  canvas.addEventListener("mousemove", (event) => { const [, node] = machineAt(event); if (node) sayUnder(node.name); });
  for (const kind of ["focus", "blur"]) canvas.addEventListener(kind, drawMap);
  canvas.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return walk(event);
    event.preventDefault();
    const node = state.nodes.get(view.active);
    return enterMap(view.map.frames.find((frame) => frame.nodes.includes(node)), node);
  });
}
