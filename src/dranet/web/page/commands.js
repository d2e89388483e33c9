// Commands to go on with in a terminal. Names of the cluster are quoted: what is copied is pasted into a shell.

const quoted = (text) => (/^[\w.,:=/@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
const kubectl = (...words) => ["kubectl", ...words.map(quoted)].join(" ");

function holderCommands(holder) {
  const inside = `--namespace=${holder.namespace}`;
  const claims = holder.claims.map((claim) => kubectl("get", `resourceclaim/${claim.name}`, inside, "-o", "yaml"));
  if (holder.kind === "claim") return commands(claims);
  const events = kubectl("get", "events", inside, `--field-selector=involvedObject.name=${holder.name}`);
  return commands([kubectl("describe", `pod/${holder.name}`, inside), events, ...claims]);
}

function nodeCommands(node) {
  return commands([kubectl("get", "resourceslices", `--field-selector=spec.nodeName=${node.name}`, "-o", "yaml"),
    kubectl("get", "pods", "--all-namespaces", `--field-selector=spec.nodeName=${node.name}`), kubectl("describe", `node/${node.name}`)]);
}

function jobCommands(namespace, job) {
  const [kind, name] = job.split(/\/(.*)/s);
  return commands([kubectl("get", `${kind.toLowerCase()}/${name}`, `--namespace=${namespace}`, "-o", "yaml"),
    kubectl("get", "pods", `--namespace=${namespace}`, "-o", "wide")]);
}

function commands(lines) {
  return [el("h3", {}, "Commands"), ...lines.map((line) => {
    const button = el("button", { type: "button", class: "copy", "aria-label": `Copy ${line}`, onclick: () => copy(line, button) }, "Copy");
    return el("div", { class: "command" }, el("code", {}, line), button);
  })];
}

async function copy(line, button) {
  try {
    await navigator.clipboard.writeText(line);
    button.textContent = "✔ Copied";
  } catch { // a browser that does not let us: then it is selected, for the keyboard
    getSelection().selectAllChildren(button.previousSibling);
    button.textContent = "selected: press Ctrl-C";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}
