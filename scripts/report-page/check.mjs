// Loads a page in headless Chromium, in both themes and two widths: node check.mjs CHROMIUM AXE PAGE [PICTURE].
// Fails on any message of the console, any request besides the page itself, any script, and any violation of axe-core's rules.
// Chromium is driven over its debugging pipe (--remote-debugging-pipe): JSON messages that end with a zero byte.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [chromium, axeFile, page, picture] = process.argv.slice(2);
const url = pathToFileURL(resolve(page)).href;
const axe = readFileSync(axeFile, "utf8");
const profile = mkdtempSync(join(tmpdir(), "report-page-"));
const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
  "--remote-debugging-pipe", `--user-data-dir=${profile}`, "about:blank"];
const browser = spawn(chromium, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
const limit = setTimeout(() => fail(["Chromium did not answer within 120 s"]), 120_000);

const waiting = new Map();
const listeners = new Set();
let last = 0;
let rest = "";
browser.stdio[4].on("data", (data) => {
  rest += data;
  const messages = rest.split("\0");
  rest = messages.pop();
  for (const text of messages) {
    const message = JSON.parse(text);
    if (message.id) {
      const { done, failed } = waiting.get(message.id);
      waiting.delete(message.id);
      message.error ? failed(new Error(JSON.stringify(message.error))) : done(message.result);
    } else for (const listener of listeners) listener(message);
  }
});

function call(method, params = {}, sessionId) {
  const id = ++last;
  browser.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + "\0");
  return new Promise((done, failed) => waiting.set(id, { done, failed }));
}

function fail(faults) {
  for (const fault of faults) console.error(`error: ${fault}`);
  browser.kill("SIGKILL");
  process.exit(1);
}

async function load(theme, width, faults) {
  const { targetId } = await call("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
  const send = (method, params) => call(method, params, sessionId);
  const where = `${theme}, ${width} px`;
  let loaded;
  const load = new Promise((done) => (loaded = done));
  const listener = ({ method, params, sessionId: of }) => {
    if (of !== sessionId) return;
    if (method === "Page.loadEventFired") loaded();
    if (method === "Log.entryAdded") faults.push(`${where}: console: ${params.entry.text}`);
    if (method === "Runtime.consoleAPICalled") faults.push(`${where}: console: ${JSON.stringify(params.args)}`);
    if (method === "Runtime.exceptionThrown") faults.push(`${where}: exception: ${params.exceptionDetails.text}`);
    if (method === "Network.requestWillBeSent" && params.request.url !== url) faults.push(`${where}: request to ${params.request.url}`);
  };
  listeners.add(listener);
  for (const domain of ["Page", "Log", "Runtime", "Network"]) await send(`${domain}.enable`);
  await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: theme }] });
  await send("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: false });
  await send("Page.navigate", { url });
  await load;
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(`${exceptionDetails.text} ${exceptionDetails.exception?.description ?? ""}`);
    return result.value;
  };
  const scripts = await evaluate("document.scripts.length");
  if (scripts !== 0) faults.push(`${where}: ${scripts} scripts`);
  const overflow = await evaluate("document.documentElement.scrollWidth - innerWidth");
  if (overflow > 0) faults.push(`${where}: the page is ${overflow} px wider than the window`);
  if (picture && theme === "light" && width > 1000) {
    const { data } = await send("Page.captureScreenshot", { format: "png", clip: { x: 0, y: 0, width, height: 1700, scale: 0.68 }, captureBeyondViewport: true });
    writeFileSync(picture, Buffer.from(data, "base64"));
  }
  // What is folded is checked too.
  await evaluate("for (const it of document.querySelectorAll('details')) it.open = true");
  await evaluate(`${axe}; 0`);
  const { violations, passes } = await evaluate("axe.run().then((it) => ({ violations: it.violations, passes: it.passes.length }))");
  for (const { id, help, nodes } of violations) {
    faults.push(`${where}: ${id} (${help}), ${nodes.length} times: ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary}`);
  }
  listeners.delete(listener);
  await call("Target.closeTarget", { targetId });
  return passes;
}

try {
  const faults = [];
  for (const theme of ["light", "dark"]) {
    for (const width of [1280, 400]) {
      const passes = await load(theme, width, faults);
      console.log(`${theme}, ${width} px: ${passes} of axe-core's rules pass`);
    }
  }
  if (faults.length > 0) fail(faults);
  const ended = new Promise((done) => browser.on("exit", done));
  await call("Browser.close");
  await ended;
  clearTimeout(limit);
} catch (error) {
  fail([error.stack]);
} finally {
  rmSync(profile, { recursive: true, force: true, maxRetries: 20 });
}
