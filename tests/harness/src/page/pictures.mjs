// Makes the pictures of docs/ from the real thing: the demo in a terminal, and its page. Run by docs/pictures/make.
import { createRequire } from "node:module";
import { execFileSync } from "node:child_process";

const require = createRequire(process.env.WINDLASS_PAGE_MODULES + "/");
const { chromium } = require("playwright-core");
const [session, url, folder] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.WINDLASS_CHROMIUM, args: ["--no-sandbox"] });

// What a terminal shows, as HTML: the colours that Windlass uses.
const colours = { 31: "#ff8a80", 32: "#66d17e", 33: "#f0b94a", 35: "#d7a6f5", 36: "#7fd4e0" };
const html = (text) => text.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const painted = (text) => {
  let style = {};
  return text.split(/(\x1b\[[0-9;]*m)/).map((piece) => {
    const codes = piece.match(/^\x1b\[([0-9;]*)m$/);
    if (!codes) return `<span style="${Object.entries(style).map((pair) => pair.join(":")).join(";")}">${html(piece)}</span>`;
    for (const code of (codes[1] || "0").split(";").map(Number)) {
      if (code === 0) style = {};
      if (code === 39) delete style.color;
      if (code === 22) style = { color: style.color };
      if (code === 1) style["font-weight"] = "bold";
      if (code === 2) style.opacity = "0.6";
      if (colours[code]) style.color = colours[code];
    }
    return "";
  }).join("");
};
const terminal = async (file) => {
  const text = execFileSync("tmux", ["capture-pane", "-p", "-e", "-t", session], { encoding: "utf8" }).trimEnd();
  const page = await browser.newPage({ viewport: { width: 900, height: 100 } });
  await page.setContent(`<body style="margin:0"><pre style="margin:0;padding:12px;background:#0f1419;color:#e6edf3;font:14px/1.35 monospace;width:max-content">${painted(text)}</pre>`);
  await page.locator("pre").screenshot({ path: `${folder}/${file}` });
  await page.close();
};

const page = await browser.newPage({ viewport: { width: 1000, height: 860 } });
page.setDefaultTimeout(120000);
await page.goto(url);
await page.goto(new URL("/fleets/default/db", url).href);
// The bad image is held: nodes are named, and the page says why.
await page.waitForFunction(() => /ImagePullBackOff/.test(document.querySelector("#nodes")?.innerText) && /1\.2-nope/.test(document.querySelector("#head")?.innerText));
await page.waitForTimeout(1000);
await page.screenshot({ path: `${folder}/page.png` });
await terminal("terminal.png");
await browser.close();
