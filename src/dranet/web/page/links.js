// The address bar names what is selected, so that a link leads to it: #pod/NAMESPACE/NAME, #claim/NAMESPACE/NAME,
// #job/NAMESPACE/NAME, #node/NAME, #device/NODE/DRIVER/NAME.

function linkOf(picked) {
  if (!picked) return "";
  if (picked.job) return link("job", ...splitOnce(picked.job));
  if (picked.device !== undefined) {
    const device = state.layouts.get(state.nodes.get(picked.node)?.layout)?.devices[picked.device];
    return device ? link("device", picked.node, device.driver, device.name) : "";
  }
  if (picked.node) return link("node", picked.node);
  const { kind, namespace, name } = named({ key: picked.holder });
  return kind === "plan" ? "" : link(kind, namespace, name); // a plan lives in this window only
}

const link = (...parts) => `#${parts.map(encodeURIComponent).join("/")}`;
const splitOnce = (key) => [key.slice(0, key.indexOf("/")), key.slice(key.indexOf("/") + 1)];

// What a link selects; null while its object is not there.
function pickedBy(hash) {
  const [kind, ...parts] = hash.replace(/^#/, "").split("/").map(decoded);
  const [namespace, name] = parts;
  if (kind === "pod" && state.holders.has(`${namespace}/${name}`)) return { holder: `${namespace}/${name}` };
  if (kind === "claim" && state.holders.has(`claim ${namespace}/${name}`)) return { holder: `claim ${namespace}/${name}` };
  if (kind === "job" && state.jobs.has(parts.join("/"))) return { job: parts.join("/") };
  if (kind === "node" && state.nodes.has(parts[0])) return { node: parts[0] };
  if (kind === "device" && state.nodes.has(parts[0])) return deviceBy(...parts);
  return null;
}

function deviceBy(node, driver, name) {
  const { devices } = state.layouts.get(state.nodes.get(node).layout);
  const at = devices.findIndex((device) => device.driver === driver && device.name === name);
  return at < 0 ? null : { node, device: at };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a broken escape selects nothing
  }
}

// A large cluster arrives in parts, so a link is followed again until its object is there.
function followLink() {
  if (!location.hash.slice(1) || location.hash === linkOf(state.picked)) return;
  const picked = pickedBy(location.hash);
  if (picked) pick(picked);
}

function writeLink() {
  const wanted = linkOf(state.picked);
  if (location.hash !== wanted) history.pushState(null, "", wanted || location.pathname + location.search);
}
