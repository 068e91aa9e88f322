// Makes pages live and usable by keyboard. Everything works without it, only not
// by itself: the server makes the pages, and this file never touches arguments.
(() => {
  "use strict";
  document.documentElement.classList.add("scripted");

  // A stream says that the live part of the page has changed; htmx fetches the page
  // again and swaps that part. Hidden tabs keep no connection.
  let source = null, address = "";
  const connect = () => {
    const live = document.getElementById("live");
    const want = live && !document.hidden ? live.dataset.stream || "" : "";
    if (want === address && (!source || source.readyState !== EventSource.CLOSED)) return;
    if (source) source.close();
    source = null;
    address = want;
    if (!want) return;
    source = new EventSource(want);
    source.addEventListener("changed", (e) => {
      const now = document.getElementById("live");
      if (now && now.dataset.stream === want && now.dataset.digest !== e.data) htmx.trigger(now, "changed");
    });
    source.addEventListener("end", () => source.close());
  };
  document.addEventListener("visibilitychange", connect);
  window.addEventListener("pagehide", () => { if (source) source.close(); source = null; address = ""; });
  window.addEventListener("pageshow", connect);

  // What somebody has ticked, opened and focused outlives a swap. A tick is for a
  // hold at the revision that was shown: one that has changed is not ticked again.
  let kept = null;
  document.addEventListener("htmx:beforeSwap", () => {
    const live = document.getElementById("live");
    if (!live) return;
    const ids = (selector) => [...live.querySelectorAll(selector)].map((e) => e.id).filter(Boolean);
    kept = {
      ticks: [...live.querySelectorAll("input[name=hold]:checked")].map((e) => e.value),
      open: ids("details[open]"), known: ids("details"), focus: live.contains(document.activeElement) ? document.activeElement.id : "",
    };
  });
  document.addEventListener("htmx:afterSwap", () => {
    const live = document.getElementById("live");
    if (!live) return;
    if (kept) {
      for (const e of live.querySelectorAll("input[name=hold]")) e.checked = kept.ticks.includes(e.value);
      for (const e of live.querySelectorAll("details[id]")) if (kept.known.includes(e.id)) e.open = kept.open.includes(e.id);
      const focus = kept.focus && document.getElementById(kept.focus);
      if (focus && live.contains(focus)) focus.focus({ preventScroll: true });
      kept = null;
    }
    settle();
    connect();
  });

  // A page that is out of date cannot decide any more; the server would refuse it.
  const settle = () => {
    const live = document.getElementById("live");
    if (live && live.querySelector(".stale")) for (const f of document.querySelectorAll("fieldset[data-decide]")) f.disabled = true;
    if (live && !live.dataset.stream) for (const f of document.querySelectorAll("form[data-open]")) f.hidden = true;
    const button = document.getElementById("review");
    if (button) {
      const n = document.querySelectorAll("input[name=hold]:checked").length;
      button.disabled = n === 0;
      button.textContent = n === 1 ? "Look at the ticked hold" : "Look at the " + n + " ticked holds";
    }
  };
  document.addEventListener("change", settle);

  // A form is sent once. Coming back to the page makes it usable again.
  document.addEventListener("submit", (e) => {
    if (e.target.method !== "post") return;
    if (e.target.dataset.sent) { e.preventDefault(); return; }
    e.target.dataset.sent = "1";
  });
  window.addEventListener("pageshow", () => { for (const f of document.forms) delete f.dataset.sent; });

  const rows = () => [...document.querySelectorAll(".rows .intent")];
  const step = (by) => {
    const all = rows();
    if (!all.length) return;
    const row = document.activeElement && document.activeElement.closest(".row");
    const at = row ? all.findIndex((a) => row.contains(a)) : -1;
    all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))].focus();
  };
  const show = (e) => {
    if (!e) return;
    e.scrollIntoView({ block: "nearest" });
    e.focus();
  };
  const pages = { i: "/", r: "/inbox/runs", a: "/inbox/agents" };
  let going = false;
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input:not([type=checkbox]), textarea, select")) return;
    if (going) {
      going = false;
      if (pages[e.key]) { e.preventDefault(); location.href = pages[e.key]; }
      return;
    }
    switch (e.key) {
      case "g": going = true; break;
      case "j": step(1); break;
      case "k": step(-1); break;
      case "x": {
        const row = document.activeElement && document.activeElement.closest(".row");
        const box = row && row.querySelector("input[name=hold]");
        if (box) { box.checked = !box.checked; settle(); }
        break;
      }
      case "a": show(document.getElementById("approve-edit") || document.querySelector("[data-key=a]")); break;
      case "r": show(document.querySelector("[data-key=r]")); break;
      case "e": {
        const editor = document.querySelector("details.editor");
        if (!editor) break;
        editor.open = true;
        // The letter itself must not arrive in the text.
        document.addEventListener("keyup", () => show(editor.querySelector("textarea, input[type=text], select")), { once: true });
        break;
      }
      case "?": {
        const keys = document.getElementById("keys");
        keys.open = !keys.open;
        show(keys.querySelector("summary"));
        break;
      }
    }
  });

  document.addEventListener("DOMContentLoaded", () => {
    settle();
    connect();
    const preview = document.getElementById("preview");
    if (preview) preview.focus();
  });
})();
