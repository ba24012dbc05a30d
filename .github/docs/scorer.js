// The order of search results: objects that the query names ("balanced accuracy" is balanced_accuracy), then guides
// and reference, then attributes, studies and changes. The numbers below score are the defaults of Sphinx.
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    const letters = (text) => text.toLowerCase().replace(/[^a-z0-9]/g, "");
    const query = letters(new URLSearchParams(window.location.search).get("q") || "");
    if (/study|coverage|choosing|papers|changes/.test(page) && !page.startsWith("api/")) return score - 40;
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
