"use strict";
// The page is whole without this: sorting, the way down to receipts, the colours by hand and printing are added here.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const named = (names, values) => Object.fromEntries(names.map((name, place) => [name, values[place]]));
  const metrics = Object.keys(data.metrics);
  const rows = (data.receipts || []).map((values) => {
    const row = named(data.columns, values);
    return { ...row, figures: named(metrics, row.figures), facts: named(data.facts, row.facts) };
  });
  const byNumber = new Map(rows.map((row) => [row.receipt, row]));
  const dialog = document.getElementById("dialog");
  const body = document.getElementById("dialog-body");
  const tip = document.getElementById("tip");

  // Text only ever enters the page as text.
  function make(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === true) made.setAttribute(key, "");
      else if (value !== false && value !== undefined && value !== "") made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== undefined && child !== null && child !== ""));
    return made;
  }

  // ---- tables: by click, or by Enter and Space on a title; a third time gives back the order of the report
  const words = new Intl.Collator("en", { numeric: true });
  function value(cell) {
    const text = cell ? cell.textContent.trim() : "—";
    if (text === "—") return { none: true, text };
    const found = /^([<>]?) ?([+−-]?)(\d[\d,]*(?:\.\d+)?|\.\d+)/.exec(text);
    if (!found) return { text };
    const number = parseFloat(found[3].replaceAll(",", "")) * (found[2] && found[2] !== "+" ? -1 : 1);
    return { text, number, side: { "<": -1, ">": 1 }[found[1]] || 0 };
  }
  function compare(a, b) {
    if (a.number !== undefined && b.number !== undefined) {
      return a.number - b.number || a.side - b.side || words.compare(a.text, b.text);
    }
    return words.compare(a.text, b.text);
  }
  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    const lines = table.tBodies[0];
    const asWritten = [...lines.rows];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", next);
        const keyed = asWritten.map((row) => [value(row.cells[column]), row]);
        if (next !== "none") {
          const sign = next === "ascending" ? 1 : -1;
          // what has no value stays last, whichever way
          keyed.sort(([a], [b]) => (a.none || b.none ? !!a.none - !!b.none : sign * compare(a, b)));
        }
        lines.append(...keyed.map(([, row]) => row));
      });
    });
  }

  // ---- sources: from a figure to its receipts
  function numbers(source) {
    return (source.receipts || "").split(",").filter(Boolean).flatMap((part) => {
      const [low, high] = part.split("-").map(Number);
      return Array.from({ length: (high || low) - low + 1 }, (_, place) => low + place);
    });
  }
  function count(n, what) {
    return `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
  }
  function summary(source) {
    const parts = [];
    if (source.n) {
      const named = (source.receipts || "").replaceAll("-", "–").replaceAll(",", ", ");
      const short = named.length > 90 ? `${named.slice(0, named.lastIndexOf(",", 90))}, …` : named;
      parts.push(count(source.n, "receipt") + (short ? `: ${short}` : ""));
    }
    (source.files || []).forEach(([path]) => parts.push(path));
    return parts.join(" · ") || "no receipt is named";
  }

  function facts(pairs) {
    return make("dl", { class: "facts" }, ...pairs.filter(([, text]) => text !== "" && text !== undefined)
      .map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(text)))));
  }
  function details(row) {
    const figures = Object.entries(row.figures).map(([name, text]) => [data.metrics[name], text]);
    const evidence = Object.entries(row.evidence);
    const seen = make("div", { class: "receipt" },
      facts([["file", `${data.folder}/${row.file}`], ["sha256", row.sha256], ["reason", row.reason]]),
      facts(figures), facts([["attempt", row.attempt], ...Object.entries(row.facts)]));
    evidence.forEach(([name, text]) => seen.append(make("p", { class: "label" }, name), make("pre",
      { tabindex: "0", role: "region", "aria-label": name }, text)));
    return seen;
  }
  function line(row, metric, columns) {
    const button = make("button", { type: "button", class: "cite", "aria-expanded": "false" }, String(row.receipt));
    const shown = {
      arm: row.arm, window: row.window, context: row.context, workload: row.workload,
      seed: row.sentinel ? `${row.seed} (sentinel)` : row.seed,
      outcome: row.outcome + (row.pooled || row.sentinel || row.outcome !== "ok" ? "" : ", not pooled"),
      value: metric ? row.figures[metric] || "—" : undefined,
    };
    const made = make("tr", {}, make("th", { scope: "row" }, button),
      ...columns.map((name) => make("td", { class: name === "value" ? "n" : "" }, String(shown[name]))));
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      if (open) made.nextElementSibling.remove();
      else made.after(make("tr", { class: "more" }, make("td", { colspan: columns.length + 1 }, details(row))));
    });
    return made;
  }
  function listed(found, metric, name) {
    if (!found.length) return make("p", {}, "No receipt of this part is in the page.");
    const several = (column) => new Set(found.map((row) => row[column])).size > 1;
    const columns = ["arm", "window", "seed", ...["context", "workload"].filter(several), "outcome",
      ...(metric ? ["value"] : [])];
    const title = (column) => (column === "value" ? data.metrics[metric] : column);
    const table = make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "receipt"),
        ...columns.map((column) => make("th", { scope: "col", class: column === "value" ? "n" : "" }, title(column))))),
      make("tbody", {}, ...found.map((row) => line(row, metric, columns))));
    return make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": name }, table);
  }
  function grouped(source, found) {
    const known = new Map((source.groups || []).map(([place, title, figure]) => [place, [title, figure]]));
    const places = [...new Set([...known.keys(), ...found.map((row) => row[source.by])])].sort((a, b) => a - b);
    return places.map((place) => {
      const [title, figure] = known.get(place) || [`${source.by} ${place}`, ""];
      const here = found.filter((row) => row[source.by] === place);
      const seeds = new Set(here.map((row) => row.seed)).size;
      const told = here.length ? `${count(here.length, "receipt")}, ${count(seeds, "seed")}` : "";
      const made = make("details", {}, make("summary", {}, make("span", {}, title),
        make("b", {}, figure), make("small", {}, told)));
      // filled when it is opened: a campaign has many receipts, and few are looked at
      made.addEventListener("toggle", () => {
        if (made.open && made.children.length === 1) { made.append(listed(here, source.metric, title)); fit(); }
      });
      return made;
    });
  }
  function show(source) {
    const found = numbers(source).map((number) => byNumber.get(number)).filter(Boolean);
    document.getElementById("dialog-title").textContent = source.title;
    const parts = [];
    if (source.figure) parts.push(make("p", { class: "figure" }, source.figure));
    if (source.said) parts.push(make("p", {}, source.said));
    parts.push(make("p", { class: "quiet" }, `${summary(source)} · in ${data.folder}`));
    (source.files || []).forEach(([path, digest]) => parts.push(facts([["file", `${data.folder}/${path}`],
      ["sha256", digest]])));
    if (source.by && (source.groups || found.length)) parts.push(...grouped(source, found));
    else if (found.length) parts.push(listed(found, source.metric, source.title));
    body.replaceChildren(...parts);
    hide();
    dialog.showModal();
    dialog.scrollTop = 0;
    fit();
  }

  // ---- the hint beside a figure
  let over = null;
  function hint(cite) {
    const source = data.sources[cite.dataset.source];
    over = cite;
    tip.replaceChildren(make("b", {}, source.title), make("span", {}, summary(source)),
      make("small", {}, "click or Enter: open them"));
    tip.hidden = false;
    cite.setAttribute("aria-describedby", "tip");
    place();
  }
  function place() {
    if (!over) return;
    const at = over.getBoundingClientRect();
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    const below = at.bottom + 8 + tip.offsetHeight < window.innerHeight;
    tip.style.left = `${Math.max(8, Math.min(at.left, room))}px`;
    tip.style.top = `${below ? at.bottom + 4 : Math.max(4, at.top - tip.offsetHeight - 4)}px`;
  }
  function hide() {
    if (over) over.removeAttribute("aria-describedby");
    over = null;
    tip.hidden = true;
  }
  const citeOf = (event) => (event.target instanceof Element ? event.target.closest("main .cite") : null);
  document.addEventListener("pointerover", (event) => {
    const cite = citeOf(event);
    if (cite && cite !== over) { hide(); hint(cite); }
    else if (!cite && document.activeElement !== over) hide();
  });
  document.addEventListener("focusin", (event) => {
    const cite = citeOf(event);
    if (cite && cite !== over && cite.matches(":focus-visible")) { hide(); hint(cite); }
  });
  document.addEventListener("focusout", (event) => { if (citeOf(event)) hide(); });
  document.addEventListener("scroll", place, { capture: true, passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("click", (event) => {
    const cite = citeOf(event);
    if (cite) show(data.sources[cite.dataset.source]);
    if (event.target === dialog) dialog.close();
  });
  document.getElementById("close").addEventListener("click", () => dialog.close());

  // ---- a box takes the focus only where there is something to scroll to
  function fit() {
    document.querySelectorAll(".scroll").forEach((box) => {
      if (box.scrollWidth > box.clientWidth + 1) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
      more(box);
    });
  }
  // it fades where there is more to the right
  function more(box) {
    box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  }
  document.addEventListener("scroll", ({ target }) => {
    if (target instanceof Element && target.matches(".scroll")) more(target);
  }, { capture: true, passive: true });

  // ---- light and dark by hand; where nothing may be kept, it holds until the page is closed
  const theme = document.getElementById("theme");
  const themes = { system: "as the system", light: "light", dark: "dark" };
  const store = (name) => { try { localStorage.setItem("battery-theme", name); } catch { /* refused */ } };
  const stored = () => { try { return localStorage.getItem("battery-theme"); } catch { return null; } };
  function paint(name) {
    const known = name in themes ? name : "system";
    if (known === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = known;
    theme.dataset.now = known;
    theme.textContent = `Theme: ${themes[known]}`;
  }
  theme.addEventListener("click", () => {
    const names = Object.keys(themes);
    const next = names[(names.indexOf(theme.dataset.now) + 1) % names.length];
    paint(next);
    store(next);
  });
  paint(stored());
  theme.hidden = false;

  // ---- on paper everything is open
  let shut = [];
  window.addEventListener("beforeprint", () => {
    shut = [...document.querySelectorAll("main details:not([open])")];
    shut.forEach((one) => { one.open = true; });
  });
  window.addEventListener("afterprint", () => { shut.forEach((one) => { one.open = false; }); });

  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll("details").forEach((one) => one.addEventListener("toggle", fit));
  window.addEventListener("resize", fit);
  fit();
})();
