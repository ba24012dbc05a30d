// The order of search results: pages and sections that searched.json names for the query, objects that the query names
// ("balanced accuracy" is balanced_accuracy), then guides and reference, then attributes, studies and changes. The
// numbers below score are the defaults of Sphinx.
var Scorer = {
  score: (result) => {
    const [page, title, anchor, description, score, , kind] = result;
    const letters = (text) => text.toLowerCase().replace(/[^a-z0-9]/g, "");
    const query = letters(new URLSearchParams(window.location.search).get("q") || "");
    if (kind === "index") {
      const heading = headingOf(page, anchor);
      if (heading) result[1] = `${title} > ${heading}`;
      return score;
    }
    if (/study|coverage|papers|changes/.test(page) && !page.startsWith("api/")) return score - 40;
    if (!/^Python /.test(description || "")) return score;
    if (/^Python attribute/.test(description)) return score - 20;
    return letters(title.split(".").pop()) === query ? score + 40 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// the heading of a section, which an entry of the index lacks
function headingOf(page, anchor) {
  const file = Search._index.docnames.indexOf(page);
  for (const [heading, places] of Object.entries(Search._index.alltitles)) {
    if (places.some(([number, id]) => number === file && `#${id}` === anchor)) return heading;
  }
  return null;
}

// a hit in the text of a page opens the section that has most of the words
document.addEventListener("DOMContentLoaded", () => {
  const summary = Search.makeSearchSummary;
  Search.makeSearchSummary = (page, words, anchor) => {
    if (anchor) return summary(page, words, anchor);
    const parsed = new DOMParser().parseFromString(page, "text/html");
    let best = null, most = 0;
    for (const section of parsed.querySelectorAll("section[id]")) {
      const own = [...section.children].filter((child) => child.tagName !== "SECTION");
      const text = own.map((child) => child.textContent).join(" ").toLowerCase();
      const found = [...words].filter((word) => text.includes(word)).length;
      if (found > most) [best, most] = [section.id, found];
    }
    const shown = summary(page, words, best ? `#${best}` : "");
    if (best && shown) {
      setTimeout(() => {
        const link = shown.closest("li")?.querySelector("a");
        if (link && !link.hash) link.href += `#${best}`;
      });
    }
    return shown;
  };
});
