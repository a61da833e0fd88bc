"""Small changes of code: a token that becomes another one, or a statement that is dropped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

STRING = r"""[rbf]*("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
TEXT = {
    True: re.compile(rf"(?sm)//[^\n]*|/\*.*?\*/|^ *# *(?!define)\w[^\n]*|{STRING}"),
    False: re.compile(rf"""(?s)[rbf]*\"\"\".*?\"\"\"|{STRING}|#[^\n]*"""),
}
NO_CODE = re.compile(  # definitions, imports, declarations without a value
    r"\s*(async def|def|class|cpdef|from|import|cimport|@|assert|global|nonlocal|ctypedef|typedef"
    r"|cdef [^=]*(:|$)|cdef .*\)[\w ]*:$|if TYPE_CHECKING|_Static_assert|\w+: [^=]*$)"
)
TYPE = re.compile(r"\s*[\w.]+: [^=]*=")
PAIRS = "==,!= <,<= >,>= is,is_not in,not_in and,or &&,|| +,- +=,-= <<,>> |,& True,False true,false"
SWAP = dict(pair.replace("_", " ").split(",") for pair in PAIRS.split())
SWAP |= {new: old for old, new in SWAP.items()} | {"*": "+", "/": "*", "//": "*", "%": "+"}
OPERATOR = r"is not|not in|[=!<>]=|[-+]=|&&|\|\||//|<<|>>|[-+*/%<>|&]|is|in|and|or"
CHANGES = {
    rf"(?<=\s)({OPERATOR})(?=\s)|\b[Tt]rue\b|\b[Ff]alse\b": SWAP.get,
    r"(?<![\w.])(?:0x[\da-fA-F]+|0|[1-9][\d_]*)(?=[uUlL]*(?![\w.]))": lambda n: str(int(n, 0) + 1),
    r"(?<!is )\bnot (?!in\b)|!(?=[\w(])": lambda _: "",
    r"(?<=if )[^(\n].*(?=:$)|(?<=while )[^(\n].*(?=:$)": "not ({})".format,
    r"(?<=if \()\S.*(?=\) (?!==).*[{;] *$)|(?<=while \()\S.*(?=\) .*[{;] *$)": "!({})".format,
}
STATEMENT = re.compile(
    r"(?s)\s*((return|raise|del|yield)\b.*[^;\s]|return;|(continue|break|goto \w+);?|[\w.]+\(.*\);?"
    r"|[\w.*>\-]+(\[.*\])? [-+*/|&^]= .*|[\w*]+(->|\.|\[)[^=]* = .*|\w+ = .*;)\s*"
)


class Mutant(NamedTuple):
    """A change of the characters from start to stop, in a statement of some lines."""

    path: str
    line: int
    lines: range
    start: int
    stop: int
    new: str

    def show(self, text: str) -> str:
        """Return the line before and after the change, in the text of the file."""
        start, stop = text.rfind("\n", 0, self.start) + 1, text.index("\n", self.stop - 1)
        after = text[start : self.start] + self.new + text[self.stop : stop]
        return f"{self.path}:{self.line}: {text[start:stop].strip()}  ->  {after.strip()}"


def find_mutants(path: str, text: str) -> Iterator[Mutant]:
    """Yield all mutants of a file."""
    is_c = path.startswith("csrc")
    code = TEXT[is_c].sub(
        lambda part: re.sub(r"[^\n]", " " if part[0][0] in "#/" else "~", part[0]), text
    )
    first = start = at = depth = 0
    for number, line in enumerate(code.splitlines(keepends=True), 1):
        if depth == 0:
            first, start = number, at
        depth += 0 if is_c else sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        at += len(line)
        if depth > 0 or NO_CODE.match(code, start, at - 1):
            continue
        lines, hint = range(first, number + 1), TYPE.match(code, start, at)
        if STATEMENT.fullmatch(code, start, at):
            indent = len(code[start:at]) - len(code[start:at].lstrip())
            new = ";\n" if is_c else "pass\n"
            yield Mutant(path, first, lines, start + indent, at, new)
        for pattern, change in CHANGES.items():
            for found in re.compile(pattern, re.M).finditer(
                code, hint.end() if hint else start, at
            ):
                before = code[start : found.start()].rpartition("\n")[2]
                if found[0] != "in" or not re.search(r"\bfor\b(?!.* in )", before):
                    line = first + code.count("\n", start, found.start())
                    new = change(text[found.start() : found.end()])
                    yield Mutant(path, line, lines, *found.span(), new)
