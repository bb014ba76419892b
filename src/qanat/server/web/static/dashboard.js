// The live view: figures of /metrics while it is looked at, the memory plan, and the decisions of the start.

import { ApiError, getJson, getText } from "./api.js";
import { byId, element } from "./dom.js";
import { Figures, MAX_AGE_S } from "./figures.js";
import { asCount, asSeconds, asShare } from "./format.js";
import { explain } from "./generation.js";
import { lineChart } from "./line_chart.js";
import { memoryMap } from "./memory_map.js";
import { knownRequests } from "./request_log.js";
import { waterfall } from "./waterfall.js";
import { onLanguage, say } from "./words.js";

const INTERVAL_MS = 2000;

const TILES = [
  ["running", asCount],
  ["waiting", asCount],
  ["outputSpeed", asCount],
  ["promptSpeed", asCount],
  ["ttft", asSeconds],
  ["itl", asSeconds],
  ["cacheUse", asShare],
  ["cacheHits", asShare],
  ["acceptance", asShare],
];

const CHARTS = [
  ["requests", asCount, ["runningLine", "running"], ["waitingLine", "waiting"]],
  ["tokensPerSecond", asCount, ["output", "outputSpeed"], ["prompt", "promptSpeed"]],
  ["ttft", asSeconds, ["median", "ttft"], ["p99", "ttftP99"]],
  ["itl", asSeconds, ["median", "itl"], ["p99", "itlP99"]],
  ["cache", asShare, ["used", "cacheUse"], ["hits", "cacheHits"]],
  ["acceptance", asShare, ["acceptance", "acceptance"]],
];

export class Dashboard {
  constructor() {
    this.figures = new Figures();
    this.plan = null;
    this.planError = null;
    this.told = null; // of all requests, by the server
    this.toldS = 0;
    this.mayWatch = true;
    this.isVisible = false;
    this.timer = null;
    onLanguage(() => this.draw());
    document.addEventListener("visibilitychange", () => this.setVisible(this.isVisible));
  }

  // Asks the server only while somebody looks.
  setVisible(isVisible) {
    this.isVisible = isVisible;
    clearTimeout(this.timer);
    if (!isVisible || document.hidden) return;
    this.mayWatch = true; // the key may be another one by now
    this.askForPlan();
    this.poll();
  }

  async poll() {
    clearTimeout(this.timer);
    try {
      this.figures.add(performance.now() / 1000, await getText("metrics"));
      byId("dashboard-status").textContent = "";
    } catch (error) {
      byId("dashboard-status").textContent = say("metricsFailed", { why: explain(error) });
    }
    await this.askForRequests();
    this.draw();
    clearTimeout(this.timer); // another round may have begun meanwhile
    if (this.isVisible && !document.hidden) this.timer = setTimeout(() => this.poll(), INTERVAL_MS);
  }

  // Requests of all, where the server tells: it asks for an admin key if it knows any key.
  async askForRequests() {
    if (!this.mayWatch) return;
    try {
      const { requests } = await getJson("requests");
      this.told = requests;
      this.toldS = performance.now() / 1000;
    } catch (error) {
      if (!(error instanceof ApiError)) return; // said of /metrics
      this.told = null;
      this.mayWatch = false;
    }
  }

  async askForPlan() {
    try {
      this.plan = await getJson("v1/plan");
    } catch (error) {
      this.planError = error;
    }
    this.draw();
  }

  draw() {
    if (!this.isVisible) return;
    const { points, last } = this.figures;
    byId("tiles").replaceChildren(...TILES.map(([key, format]) => tile(say(key), format(last[key]))));
    const charts = CHARTS.map(([title, format, ...lines]) =>
      lineChart({ title, format, points, spanS: MAX_AGE_S, lines: lines.map(([key, field]) => ({ key, field })) }),
    );
    byId("charts").replaceChildren(...charts);
    byId("waterfall").replaceChildren(...waterfall(knownRequests(this.told, this.toldS), this.told !== null));
    this.drawPlan();
  }

  drawPlan() {
    if (this.plan) {
      byId("memory-map").replaceChildren(...memoryMap(this.plan.memory, this.figures.last.cacheUse ?? null));
      byId("decisions").replaceChildren(decisionTable(this.plan.decisions));
    } else if (this.planError) {
      const why = element("p", { class: "hint" }, say("planFailed", { why: explain(this.planError) }));
      byId("memory-map").replaceChildren(why);
      byId("decisions").replaceChildren(why.cloneNode(true));
    }
  }
}

function tile(label, value) {
  return element("div", { class: "tile" }, element("span", { class: "label" }, label), element("span", { class: "value" }, value));
}

function decisionTable(decisions) {
  if (!decisions.length) return element("p", { class: "hint" }, say("noDecisions"));
  const head = ["decisionField", "decisionGot", "decisionWhy"].map((key) => element("th", {}, say(key)));
  const rows = decisions.map(({ field, got, why }) =>
    element("tr", {}, element("td", { class: "code" }, field), element("td", {}, written(got)), element("td", {}, why)),
  );
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function written(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}
