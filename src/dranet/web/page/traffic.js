// Bytes and errors through the cards that pods have: their driver is asked while somebody looks, and at no other time.
// It counts and tells when it did; rates are differences between its looks, kept here for a few minutes.

const ASK_SECONDS = 3; // as often as a driver looks by itself
const KEPT_LOOKS = 60;
const traffic = { node: "", looks: [], problem: "", place: null, wanted: null, turn: 0 };

// Where the cards of a machine are drawn, all or those wanted; there is one such place at a time.
function trafficOf(name, wanted = () => true) {
  if (!state.live) return null;
  const goesOn = traffic.node === name && traffic.place?.isConnected;
  if (traffic.node !== name) Object.assign(traffic, { node: name, looks: [], problem: "" });
  Object.assign(traffic, { wanted, place: el("div", { id: "traffic" }) });
  if (!goesOn) {
    const turn = ++traffic.turn;
    setTimeout(() => followTraffic(turn));
  }
  drawTraffic();
  return [el("h3", {}, "Through the cards, now"), traffic.place];
}

async function followTraffic(turn) {
  if (turn !== traffic.turn || !traffic.place.isConnected) return;
  if (traffic.place.checkVisibility() && !document.hidden) {
    const answer = await ask("/traffic", "node", traffic.node).catch(() => ({ missing: "The server does not answer." }));
    if (turn !== traffic.turn) return;
    takeLook(answer);
    drawTraffic();
  }
  setTimeout(() => followTraffic(turn), ASK_SECONDS * 1000);
}

function takeLook(answer) {
  traffic.problem = answer.missing || "";
  if (answer.missing || answer.at <= traffic.looks.at(-1)?.at) return; // the driver has not looked again yet
  const cards = new Map(answer.cards.map((card) => [`${card.device} ${card.claim}`, card]));
  traffic.looks = [...traffic.looks, { at: answer.at, cards }].slice(-KEPT_LOOKS);
}

function drawTraffic() {
  const last = traffic.looks.at(-1);
  const found = [...(last?.cards || [])].filter(([, card]) => traffic.wanted(card));
  const quiet = (text) => el("p", { class: "quiet" }, text);
  traffic.place.replaceChildren(...[
    traffic.problem ? quiet(`Not known now: ${traffic.problem}`) : null,
    !last && !traffic.problem ? quiet("asking the driver …") : null,
    last && !found.length ? quiet("No counters: no pod has a card for itself here. Shared cards are the node's to count.") : null,
    ...found.map(([key, card]) => cardTraffic(key, card)),
  ].filter(Boolean));
}

const sum = (counts) => Object.values(counts).reduce((total, one) => total + one, 0);

// The looks at a card since its counters began anew the last time, and the bits per second between each two.
function ratesOf(key) {
  const rates = [];
  let [before, first] = [null, null];
  for (const { at, cards } of traffic.looks) {
    const card = cards.get(key);
    if (!card || (before && sum(card.receive) + sum(card.transmit) < sum(before.card.receive) + sum(before.card.transmit))) {
      rates.length = 0;
      before = first = null;
    }
    if (!card) continue;
    first ??= { at, card };
    if (before) {
      const bits = (direction, path) => Math.max(0, ((card[direction][path] || 0) - (before.card[direction][path] || 0)) * 8 / (at - before.at));
      const each = (direction) => Object.fromEntries(Object.keys(card[direction]).map((path) => [path, bits(direction, path)]));
      rates.push({ receive: each("receive"), transmit: each("transmit"), broke: sum(grown(before.card, card, "errors", "drops")) > 0 });
    }
    before = { at, card };
  }
  return { rates, first };
}

// By how much counters have grown, those that have.
function grown(from, to, ...kinds) {
  const all = kinds.flatMap((kind) => Object.entries(to[kind]).map(([name, value]) => [name, value - (from[kind][name] || 0)]));
  return Object.fromEntries(all.filter(([, by]) => by > 0));
}

function cardTraffic(key, card) {
  const { rates, first } = ratesOf(key);
  const device = state.layouts.get(state.nodes.get(traffic.node)?.layout)?.devices.find((one) => one.name === card.device);
  const said = (counts) => Object.entries(counts).map(([name, by]) => `${name} +${by}`).join(", ");
  const [bad, marks] = [said(grown(first.card, card, "errors", "drops")), said(grown(first.card, card, "congestion"))];
  const over = `in ${Math.round(traffic.looks.at(-1).at - first.at)} s`;
  return el("div", { class: "flow", "data-device": card.device },
    el("p", {}, el("b", {}, device ? label(device) : card.device), el("span", { class: "quiet" }, ` ${card.claim}`)),
    rates.length ? [flowChart(rates), el("p", {}, `in ${paths(rates.at(-1).receive)} · out ${paths(rates.at(-1).transmit)}`)] : el("p", { class: "quiet" }, "measuring: two looks are needed"),
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
  const made = svg("svg", { class: "hour", viewBox: "0 0 300 66", role: "img", "aria-label": `Throughput of the last looks, at most ${bitRate(most)}; in upwards, out downwards` });
  rates.forEach((one, i) => {
    const x = 300 - (rates.length - i) * 5;
    const [up, down] = [sum(one.receive) * 30 / most, sum(one.transmit) * 30 / most];
    made.append(svg("rect", { class: "placed", x, y: 32 - up, width: 4, height: up }), svg("rect", { class: "left", x, y: 32, width: 4, height: down }));
    if (one.broke) made.append(svg("text", { class: "broke", x: x - 4, y: 64 }, "⚠"));
  });
  made.append(svg("line", { class: "axis", x1: 0, x2: 300, y1: 32, y2: 32 }), svg("text", { class: "small", x: 0, y: 9 }, bitRate(most)));
  return made;
}
