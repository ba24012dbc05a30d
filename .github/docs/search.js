// Prints the results of the web site's own search: node search.js SITE QUERY... -> one JSON list of addresses a query.
const fs = require("fs");
const vm = require("vm");

const [site, ...queries] = process.argv.slice(2);
let query = "";
const element = () => ({ lastChild: null, addEventListener() {} });
const context = vm.createContext({
  console,
  URLSearchParams: class { get() { return query; } },
  localStorage: { setItem() {} },
  document: { getElementById: element, addEventListener() {}, querySelectorAll: () => [], readyState: "complete" },
  location: { search: "" },
  SPHINX_HIGHLIGHT_ENABLED: false,
  _ready() {},
  _: (text) => text,
});
context.window = context;
for (const name of ["_static/language_data", "_static/searchtools", "searchindex"]) {
  vm.runInContext(fs.readFileSync(`${site}/${name}.js`, "utf8"), context);
}
for (query of queries) {
  context.query = query;
  const found = vm.runInContext("Search._performSearch(...Search._parseQuery(query))", context);
  console.log(JSON.stringify(found.reverse().map(([page, title, anchor, , score]) => [page + anchor, title, score])));
}
