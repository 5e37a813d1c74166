// Drives one browser: a command a line on standard input, as JSON, and an answer a line on standard output. What a command
// is, the functions of `deeds` say; browser.rs beside it speaks with it.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";

const require = createRequire(process.env.WINDLASS_PAGE_MODULES + "/");
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

// Chromium has no sandbox of its own where whoever runs it is root, as in most containers.
const browser = await chromium.launch({ executablePath: process.env.WINDLASS_CHROMIUM, args: ["--no-sandbox"] });
let page;
let complaints = [];

const deeds = {
  // A page of one's own, with cookies of its own.
  async open({ width = 1280, height = 900, dark = false, script = true }) {
    await page?.context().close();
    const context = await browser.newContext({
      viewport: { width, height }, colorScheme: dark ? "dark" : "light", javaScriptEnabled: script,
    });
    page = await context.newPage();
    // Shorter than the minute after which the page reads again what it did not hear of.
    page.setDefaultTimeout(45000);
    complaints = [];
    page.on("pageerror", (error) => complaints.push(String(error)));
    // That a page was answered with a refusal is no complaint of the page's.
    page.on("console", (said) => { if (said.type() === "error" && said.location().url !== page.url()) complaints.push(said.text()); });
  },
  async look({ width, height = 900, dark }) {
    if (width) await page.setViewportSize({ width, height });
    if (dark !== undefined) await page.emulateMedia({ colorScheme: dark ? "dark" : "light" });
  },
  async go({ to }) { const answer = await page.goto(to); return answer.status(); },
  async text({ of = "body" }) { return page.innerText(of); },
  async address() { return page.url(); },
  // Waits until a part of the page says something.
  async wait({ of = "body", says }) {
    await page.waitForFunction(([of, says]) => document.querySelector(of)?.innerText.includes(says), [of, says]);
  },
  async click({ on }) { await page.click(on); },
  async fill({ on, text }) { await page.fill(on, text); },
  async press({ key }) { await page.keyboard.press(key); },
  async type({ text }) { await page.keyboard.type(text); },
  // Where the keyboard is.
  async focus() {
    return page.evaluate(() => ({ id: document.activeElement.id, name: document.activeElement.innerText ?? "" }));
  },
  async evaluate({ code }) { return page.evaluate(code); },
  async picture({ file, whole = true }) { await page.screenshot({ path: file, fullPage: whole }); },
  // How wide the content is beside how wide the window is: more is a page that scrolls sideways.
  async overflow() { return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth); },
  // What stands in somebody's way, of those that count.
  async axe() {
    await page.evaluate(axe);
    const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    const counts = found.violations.filter((one) => one.impact === "serious" || one.impact === "critical");
    return { rules: found.passes.length, found: counts.map((one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html).slice(0, 3).join(" ")}`) };
  },
  async complaints() { return complaints; },
  // For so long: how often it was drawn, the longest that it was not, how long scripts kept it busy, and how often a part changed.
  async smooth({ seconds, scroll = false }) {
    return page.evaluate(async ([seconds, scroll]) => {
      const gaps = [];
      let busy = 0, longest = 0, changes = 0;
      const tasks = new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) { busy += entry.duration; longest = Math.max(longest, entry.duration); }
      });
      tasks.observe({ entryTypes: ["longtask"] });
      const watch = new MutationObserver(() => changes++);
      watch.observe(document.querySelector("main"), { childList: true, subtree: true });
      const began = performance.now();
      let last = began;
      await new Promise((done) => {
        const frame = (now) => {
          gaps.push(now - last);
          last = now;
          if (scroll) window.scrollBy(0, 40);
          if (now - began < seconds * 1000) requestAnimationFrame(frame); else done();
        };
        requestAnimationFrame(frame);
      });
      tasks.disconnect();
      watch.disconnect();
      gaps.sort((a, b) => a - b);
      return { frames: gaps.length, p99: gaps[Math.floor(gaps.length * 0.99)], worst: gaps.at(-1), busy, longest, changes,
        elements: document.querySelectorAll("*").length };
    }, [seconds, scroll]);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const command = JSON.parse(line);
    answer = { ok: (await deeds[command.do](command)) ?? null };
  } catch (error) {
    answer = { error: `${error.message}\n${await page?.innerText("body").catch(() => "")}` };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();
