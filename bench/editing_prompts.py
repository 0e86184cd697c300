"""Twenty edits of functions of Python's standard library: what is asked, and the edited text that answers it.

Four functions for each of five kinds of edit, of the modules below in order, the first function of a module that an edit applies to. The text
is read from the Python that runs this, so another version may give other functions; none of it is kept in the repository.
"""
import ast
import io
import keyword
import random
import re
import sysconfig
import tokenize
from dataclasses import dataclass
from pathlib import Path

MODULES = ["argparse", "ast", "base64", "bdb", "calendar", "cmd", "code", "configparser", "copy", "csv", "difflib", "fileinput", "filecmp",
           "fractions", "ftplib", "getopt", "gettext", "glob", "heapq", "imaplib", "inspect", "ipaddress", "locale", "mailbox", "mimetypes",
           "netrc", "nntplib", "optparse", "pdb", "pickle", "platform", "plistlib", "poplib", "pprint", "profile", "pstats", "quopri",
           "random", "sched", "selectors", "shelve", "shlex", "shutil", "smtplib", "statistics", "string", "tarfile", "tempfile", "textwrap",
           "timeit", "trace", "turtle", "uuid", "wave", "webbrowser", "zipapp", "zipfile"]
EACH = 4
CHARACTERS = range(700, 2000)


@dataclass
class Edit:
    kind: str
    source: str  # module and line
    ask: str
    before: str
    after: str

    def prompt(self):
        return f"{self.ask} Write out the whole code.\n\n```python\n{self.before}\n```"

    def answer(self):
        return f"```python\n{self.after}\n```"


def functions(module):
    """(first line, text) of the functions of a module, at the left margin."""
    path = Path(sysconfig.get_paths()["stdlib"]) / f"{module}.py"
    path = path if path.exists() else path.parent / module / "__init__.py"
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            own = lines[node.lineno - 1:node.end_lineno]
            if len("\n".join(own)) in CHARACTERS and all(line.startswith(" " * node.col_offset) or not line for line in own):
                yield node.lineno, "\n".join(line[node.col_offset:] for line in own)


def tokens(text):
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def replaced(text, spans):
    """Text with ((row, first column, last column), new) put in, rows from 1."""
    lines = text.split("\n")
    for (row, begin, end), new in sorted(spans, reverse=True):
        lines[row - 1] = lines[row - 1][:begin] + new + lines[row - 1][end:]
    return "\n".join(lines)


def rename_variable(text):
    """The local variable that stands there most often gets a longer name."""
    tree = ast.parse(text)
    stored = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    arguments = {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
    places = {}
    before = None
    for token in tokens(text):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string) and (before is None or before.string != "."):
            places.setdefault(token.string, []).append((token.start[0], token.start[1], token.end[1]))
        before = token
    able = sorted({name for name in stored if name not in arguments and len(places.get(name, [])) >= 3 and len(name) > 1})
    if not able or any(isinstance(n, (ast.Global, ast.Nonlocal, ast.keyword)) and
                       (getattr(n, "arg", None) in able) for n in ast.walk(tree)):
        return None
    name = max(able, key=lambda n: len(places[n]))
    new = f"current_{name}"
    return f"Rename the variable `{name}` to `{new}` everywhere in this Python code.", text, replaced(
        text, [(place, new) for place in places[name]])


def prose(text):
    """Places of comments and of the docstring: (row, first column, last column), a row each."""
    for token in tokens(text):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            for row in range(token.start[0], token.end[0] + 1):
                line = text.split("\n")[row - 1]
                yield row, token.start[1] if row == token.start[0] else 0, token.end[1] if row == token.end[0] else len(line)


def fix_spelling(text):
    """Letters of four words in comments are swapped; the answer is the text as it was."""
    lines = text.split("\n")
    words = [(row, begin + m.start(), begin + m.end()) for row, begin, end in prose(text)
             for m in re.finditer(r"(?<![\w.`'])[a-z]{6,}(?![\w(`'])", lines[row - 1][begin:end])]
    if len(words) < 8:
        return None
    spans = []
    for row, begin, end in random.Random(len(text)).sample(words, 4):
        word = lines[row - 1][begin:end]
        at = next((i for i in range(2, len(word) - 1) if word[i] != word[i + 1]), None)
        if at is not None:
            spans.append(((row, begin, end), word[:at] + word[at + 1] + word[at] + word[at + 2:]))
    return "Fix the spelling mistakes in the comments of this Python code.", replaced(text, spans), text


def add_hints(text):
    """Parameters with a number, a string or a truth value as default get its type."""
    function = ast.parse(text).body[0]
    spans = []
    plain = function.args.args
    pairs = list(zip(plain[len(plain) - len(function.args.defaults):], function.args.defaults))
    pairs += [(a, d) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults) if d is not None]
    for argument, default in pairs:
        if isinstance(default, ast.Constant) and type(default.value) in (int, float, str, bool) and argument.annotation is None:
            between = (argument.lineno, argument.col_offset, default.col_offset)
            if argument.lineno == default.lineno:
                spans.append((between, f"{argument.arg}: {type(default.value).__name__} = "))
    if not spans:
        return None
    return "Add type hints to the parameters whose default is a number, a string, True or False in this Python code.", text, replaced(text, spans)


def remove_comments(text):
    """Comments go, with their lines where nothing else stands there."""
    rows = {token.start[0]: token.start[1] for token in tokens(text) if token.type == tokenize.COMMENT}
    if len(rows) < 3:
        return None
    kept = []
    for row, line in enumerate(text.split("\n"), 1):
        rest = line[:rows[row]].rstrip() if row in rows else line
        if rest or row not in rows:
            kept.append(rest)
    return "Remove all comments that begin with # from this Python code.", text, "\n".join(kept)


def add_check(text):
    """A line that refuses None stands before the first statement."""
    function = ast.parse(text).body[0]
    names = [a.arg for a in function.args.args if a.arg not in ("self", "cls")]
    first = function.body[0]
    if isinstance(first, ast.Expr) and len(function.body) > 1:
        first = function.body[1]
    lines = text.split("\n")
    if not names or first.lineno < 2 or lines[first.lineno - 2].strip().startswith("#"):
        return None
    indent = " " * first.col_offset
    new = [f"{indent}if {names[0]} is None:", f'{indent}    raise ValueError("{names[0]} must not be None")']
    ask = f"Let this Python function raise a ValueError at its beginning when `{names[0]}` is None."
    return ask, text, "\n".join(lines[:first.lineno - 1] + new + lines[first.lineno - 1:])


KINDS = {"rename a variable": rename_variable, "fix the spelling": fix_spelling, "add type hints": add_hints,
         "remove comments": remove_comments, "add a check": add_check}


def edit_of(kind, module):
    """The first function of a module that the edit changes to Python that still parses; or None."""
    for line, text in functions(module):
        try:
            made = KINDS[kind](text)
            if made is None or made[1] == made[2]:
                continue
            ast.parse(made[1]), ast.parse(made[2])
        except (SyntaxError, tokenize.TokenError, IndexError):
            continue
        return Edit(kind, f"{module}:{line}", *made)
    return None


def edits():
    """The twenty, kinds in turns, each of another module."""
    found = {kind: [] for kind in KINDS}
    for module in MODULES:
        open_kinds = sorted((k for k in KINDS if len(found[k]) < EACH), key=lambda k: len(found[k]))
        edit = next((e for e in (edit_of(kind, module) for kind in open_kinds) if e), None)
        if edit:
            found[edit.kind].append(edit)
    return [edit for kind in KINDS for edit in found[kind]]
