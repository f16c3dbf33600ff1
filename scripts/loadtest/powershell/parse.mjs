// node parse.mjs MODULES FILE...
//
// Parses PowerShell files with the grammar in the folder MODULES and prints a
// JSON array with one object a file: where its syntax is wrong, its first comment
// block, the parameters of the script and whether a comment stands before each, and
// its string literals without quotes.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";

// V8 would spend minutes optimising the grammar's largest function, and the
// process would not end before.
setFlagsFromString("--liftoff-only");

const [modules, ...files] = process.argv.slice(2);
const require = createRequire(join(modules, "parse.cjs"));
const { Parser, Language } = require("web-tree-sitter");

await Parser.init();
const parser = new Parser();
parser.setLanguage(await Language.load(require.resolve("tree-sitter-powershell/tree-sitter-powershell.wasm")));

// problem says what is wrong with a node itself, undefined when nothing is.
function problem(node) {
  if (node.isMissing) return `missing ${node.type}`;
  if (node.isError) return `unexpected ${JSON.stringify(node.text.slice(0, 40))}`;
  if (node.type === "pipeline_chain_tail") return `${node.text} is not known to Windows PowerShell 5.1`;
}

function describe(file) {
  const text = readFileSync(file, "utf8");
  const tree = parser.parse(text);
  const found = { file, problems: [], help: "", parameters: [], strings: [] };
  // The rows after one that is a comment and nothing else: Get-Help takes it for that of
  // the parameter which begins there.
  const documented = new Set(
    text.split("\n").flatMap((line, row) => (/^\s*# \S/.test(line) ? [row + 1] : [])));
  const visit = (node, depth) => {
    const what = problem(node);
    if (what) {
      const { row, column } = node.startPosition;
      found.problems.push({ line: row + 1, column: column + 1, what });
    }
    if (node.type === "comment" && !found.help && node.text.startsWith("<#")) found.help = node.text;
    if (node.type === "param_block" && depth === 1) {
      for (const p of node.descendantsOfType("script_parameter")) {
        const name = p.namedChildren.find((child) => child.type === "variable");
        found.parameters.push({ name: name.text.slice(1), documented: documented.has(p.startPosition.row) });
      }
    }
    if (node.type === "string_literal") found.strings.push(node.text.slice(1, -1));
    for (const child of node.children) visit(child, depth + 1);
  };
  visit(tree.rootNode, 0);
  return found;
}

console.log(JSON.stringify(files.map(describe)));
