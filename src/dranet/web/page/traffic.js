// Bytes and errors of the NICs of pods, fetched from the driver only while they are on the screen.
// The driver reports counters with their time; rates are differences between readings, kept here for a few minutes.

const ASK_SECONDS = 3; // as often as a driver reads its counters
const KEPT_READINGS = 60;
const traffic = { node: "", readings: [], problem: "", place: null, wanted: null, turn: 0 };

// The element for the NICs of a machine, all or some; there is one at a time.
function trafficOf(name, wanted = () => true) {
  if (!state.live) return null;
  const goesOn = traffic.node === name && traffic.place?.isConnected;
  if (traffic.node !== name) Object.assign(traffic, { node: name, readings: [], problem: "" });
  Object.assign(traffic, { wanted, place: el("div", { id: "traffic" }) });
  if (!goesOn) {
    const turn = ++traffic.turn;
    setTimeout(() => followTraffic(turn));
  }
  drawTraffic();
  return [el("h3", {}, "Current traffic"), traffic.place];
}

async function followTraffic(turn) {
  if (turn !== traffic.turn || !traffic.place.isConnected) return;
  if (traffic.place.checkVisibility() && !document.hidden) {
    const answer = await ask("/traffic", "node", traffic.node).catch(() => ({ missing: "The server does not respond." }));
    if (turn !== traffic.turn) return;
    addReading(answer);
    drawTraffic();
  }
  setTimeout(() => followTraffic(turn), ASK_SECONDS * 1000);
}

function addReading(answer) {
  traffic.problem = answer.missing || "";
  if (answer.missing || answer.at <= traffic.readings.at(-1)?.at) return; // no new reading yet
  const nics = new Map(answer.nics.map((nic) => [`${nic.device} ${nic.claim}`, nic]));
  traffic.readings = [...traffic.readings, { at: answer.at, nics }].slice(-KEPT_READINGS);
}

function drawTraffic() {
  const last = traffic.readings.at(-1);
  const found = [...(last?.nics || [])].filter(([, nic]) => traffic.wanted(nic));
  const quiet = (text) => el("p", { class: "quiet" }, text);
  traffic.place.replaceChildren(...[
    traffic.problem ? quiet(`Not available: ${traffic.problem}`) : null,
    !last && !traffic.problem ? quiet("loading …") : null,
    last && !found.length ? quiet("No counters: no pod has exclusive use of a NIC here. Shared NICs are not counted per pod.") : null,
    ...found.map(([key, nic]) => nicTraffic(key, nic)),
  ].filter(Boolean));
}

const sum = (counts) => Object.values(counts).reduce((total, one) => total + one, 0);

// The readings of a NIC since its counters were last reset, and the bits per second between them.
function ratesOf(key) {
  const rates = [];
  let [before, first] = [null, null];
  for (const { at, nics } of traffic.readings) {
    const nic = nics.get(key);
    if (!nic || (before && sum(nic.receive) + sum(nic.transmit) < sum(before.nic.receive) + sum(before.nic.transmit))) {
      rates.length = 0;
      before = first = null;
    }
    if (!nic) continue;
    first ??= { at, nic };
    if (before) {
      const bits = (direction, path) => Math.max(0, ((nic[direction][path] || 0) - (before.nic[direction][path] || 0)) * 8 / (at - before.at));
      const each = (direction) => Object.fromEntries(Object.keys(nic[direction]).map((path) => [path, bits(direction, path)]));
      rates.push({ receive: each("receive"), transmit: each("transmit"), broke: sum(grown(before.nic, nic, "errors", "drops")) > 0 });
    }
    before = { at, nic };
  }
  return { rates, first };
}

// By how much counters have grown, those that have.
function grown(from, to, ...kinds) {
  const all = kinds.flatMap((kind) => Object.entries(to[kind]).map(([name, value]) => [name, value - (from[kind][name] || 0)]));
  return Object.fromEntries(all.filter(([, by]) => by > 0));
}

function nicTraffic(key, nic) {
  const { rates, first } = ratesOf(key);
  const device = state.layouts.get(state.nodes.get(traffic.node)?.layout)?.devices.find((one) => one.name === nic.device);
  const said = (counts) => Object.entries(counts).map(([name, by]) => `${name} +${by}`).join(", ");
  const [bad, marks] = [said(grown(first.nic, nic, "errors", "drops")), said(grown(first.nic, nic, "congestion"))];
  const over = `in ${Math.round(traffic.readings.at(-1).at - first.at)} s`;
  return el("div", { class: "flow", "data-device": nic.device },
    el("p", {}, el("b", {}, device ? label(device) : nic.device), el("span", { class: "quiet" }, ` ${nic.claim}`)),
    rates.length ? [flowChart(rates), el("p", {}, `in ${paths(rates.at(-1).receive)} · out ${paths(rates.at(-1).transmit)}`)] : el("p", { class: "quiet" }, "measuring: waiting for a second reading"),
    rates.length ? el("p", { class: bad ? "bad" : "quiet" }, bad ? `⚠ ${bad} ${over}` : `no errors, no drops ${over}`) : null,
    marks ? el("p", { class: "quiet" }, `congestion: ${marks} ${over}`) : null);
}

const paths = (rates) => Object.entries(rates).map(([path, bits]) => (path === "interface" ? bitRate(bits) : `${bitRate(bits)} RDMA`)).join(" + ");

function bitRate(bits) {
  const power = Math.min(3, Math.max(0, Math.floor(Math.log10(Math.max(bits, 1)) / 3)));
  return `${Number((bits / 1000 ** power).toPrecision(3))} ${["", "k", "M", "G"][power]}bit/s`;
}

// In upwards, out downwards, a mark where errors or drops grew; the newest at the right.
function flowChart(rates) {
  const most = Math.max(1, ...rates.flatMap((one) => [sum(one.receive), sum(one.transmit)]));
  const made = svg("svg", { class: "hour", viewBox: "0 0 300 66", role: "img", "aria-label": `Throughput of the last readings, at most ${bitRate(most)}; in upwards, out downwards` });
  rates.forEach((one, i) => {
    const x = 300 - (rates.length - i) * 5;
    const [up, down] = [sum(one.receive) * 30 / most, sum(one.transmit) * 30 / most];
    made.append(svg("rect", { class: "placed", x, y: 32 - up, width: 4, height: up }), svg("rect", { class: "left", x, y: 32, width: 4, height: down }));
    if (one.broke) made.append(svg("text", { class: "broke", x: x - 4, y: 64 }, "⚠"));
  });
  made.append(svg("line", { class: "axis", x1: 0, x2: 300, y1: 32, y2: 32 }), svg("text", { class: "small", x: 0, y: 9 }, bitRate(most)));
  return made;
}
