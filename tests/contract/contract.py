#!/usr/bin/env python3
"""contract.py - every sentence of include/lacuna.h names the test that holds it.

    contract.py           checks tests/contract/contract.txt and docs/contract.md (ctest runs this as `contract`)
    contract.py --write   writes docs/contract.md anew from the two

lacuna.h is the whole contract, and its comments are promises. They are cut into sentences here, each with the name of what
it stands at ("lac_plan_options.threads"). contract.txt says of each sentence which tests would fail if it were broken, or
why there is nothing to test. A sentence that is new or reads differently fails this check until somebody has decided that.
"""

import difflib
import os
import re
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
HEADER = "include/lacuna.h"
DATA = "tests/contract/contract.txt"
PAGE = "docs/contract.md"
RULES = "rules for every call"  # what stands before the first section of the header


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


# ---------------------------------------------------------------- the header's sentences


class Sentence:
    def __init__(self, section, name, text, line):
        self.section, self.name, self.text, self.line = section, name, text, line
        self.entry = None


def fold(comment):
    """The words of a comment without its stars and line ends; a list's items begin with a bullet."""
    lines = [re.sub(r"^\s*\* ?", "", line) for line in comment.split("\n")]
    lines = [re.sub(r"^\s*- ", "\u2022 ", line) for line in lines]
    return " ".join(" ".join(lines).split())


def split(text):
    """A sentence ends at a full stop with a space behind it (but not at three of them), or at the next item of a list."""
    sentences = []
    for item in text.split("\u2022 "):
        sentences += re.split(r"(?<!\.\.)(?<=\.) ", item)
    return [" ".join(s.split()) for s in sentences if s.strip()]


def declared_before(code):
    """What stands right before a comment at the end of a line: a field or several, an enum's value, a macro, a type."""
    last = re.split(r"[{}]|;(?!\s*$)", re.sub(r"\[\w*\]", "", code))[-1].strip()
    word = re.match(r"#define (\w+)", last) or re.match(r"(?:.*, )?(LAC_\w+)(?: = [^,]*)?,?$", last)
    if word:
        return word.group(1)
    return ", ".join(re.findall(r"(\w+)\s*(?=[,;])", last))


def declared_after(code):
    """What a comment on lines of its own stands above."""
    for pattern in (r"\s*LAC_API [\w *]*?(lac_\w+)\(", r"\s*typedef (?:struct|enum) (\w+)", r"\s*typedef [^;]*?\(\*(\w+)\)",
                    r"\s*#define (\w+)"):
        match = re.match(pattern, code)
        if match:
            return match.group(1)
    return ""


def sentences_of(header):
    """In the header's order."""
    found, section = [], RULES
    for comment in re.finditer(r"/\*(.*?)\*/", header, re.S):
        before, title = header[:comment.start()], re.match(r" -{10,} (.*?) $", comment.group(1))
        if title:
            section = title.group(1)
        if title or before.endswith("#endif "):
            continue
        code = " ".join(before[before.rfind("*/") + 2 if "*/" in before else 0:].split())
        bare = re.sub(r"/\*.*?\*/", "", before, flags=re.S)
        scope = re.findall(r"^typedef (struct|enum) (\w+) \{(?!.*\})|^\}", bare, re.M)
        kind, inside = scope[-1] if scope else ("", "")
        if not before or (before.rstrip(" ").endswith("\n") and not inside):
            name = declared_after(header[comment.end():])
        else:
            name = declared_before(code)
            if kind == "struct":
                name = inside + "." + name
        line = before.count("\n") + 1
        for text in split(fold(comment.group(1))):
            found.append(Sentence(section, name, text, line))
    return found


# ---------------------------------------------------------------- what is said of them


class Entry:
    def __init__(self, name, text, line):
        self.name, self.text, self.line = name, text, line
        self.tests = []  # (file, function)
        self.reason = ""  # why there is nothing to test


def entries_of(data, complain):
    """contract.txt: a line `NAME: sentence`, and below it, indented, `FILE: TEST, TEST` lines or one `- reason`."""
    entries = []
    for number, line in enumerate(data.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            name, _, text = line.partition(": ")
            entries.append(Entry("" if name == "-" else name, text, number))
            continue
        line = line.strip()
        if not entries:
            complain(f"{DATA}:{number}: '{line}' stands before the first sentence")
        elif line.startswith("- "):
            entries[-1].reason = line[2:]
        else:
            file, _, tests = line.partition(": ")
            entries[-1].tests += [(file, test.strip()) for test in tests.split(",")]
    for entry in entries:
        if not entry.tests and not entry.reason:
            complain(f"{DATA}:{entry.line}: says neither a test nor why there is none")
        if entry.tests and entry.reason:
            complain(f"{DATA}:{entry.line}: says both a test and why there is none")
    return entries


def line_of(name, text):
    return f"{name or '-'}: {text}"


def match(sentences, entries, complain):
    """Every sentence has one entry and every entry its sentence, word for word."""
    by_key = {}
    for entry in entries:
        by_key.setdefault((entry.name, entry.text), []).append(entry)
    for sentence in sentences:
        waiting = by_key.get((sentence.name, sentence.text))
        sentence.entry = waiting.pop(0) if waiting else None
    orphans = [entry for rest in by_key.values() for entry in rest]
    for sentence in sentences:
        if sentence.entry:
            continue
        line = line_of(sentence.name, sentence.text)
        alike = difflib.get_close_matches(line, [line_of(e.name, e.text) for e in orphans], 1, 0.5)
        said = f"{HEADER}:{sentence.line}: this sentence has no entry in {DATA}:\n    {line}\n"
        if alike:
            old = next(e for e in orphans if line_of(e.name, e.text) == alike[0])
            orphans.remove(old)
            said += (f"  It reads nearly like line {old.line} there. Do the tests named below that line still hold what it says?\n"
                     "  Then put the new words in the place of the old ones; else write the test that is missing.")
        else:
            said += ("  Put that line into it, where it stands in the header, and below it, indented, the tests that would fail if it\n"
                     "  were broken (`    test_plan.c: name, name`), or `    - reason` where it promises nothing that can be checked.")
        complain(said)
    for entry in orphans:
        complain(f"{DATA}:{entry.line}: {HEADER} has no such sentence any more; take the line away with what is below it:\n"
                 f"    {line_of(entry.name, entry.text)}")


# ---------------------------------------------------------------- the tests that are named


def check_tests(entries, complain):
    sources = {}
    for entry in entries:
        for file, test in entry.tests:
            where = f"{DATA}:{entry.line}: tests/{file}: {test}"
            if file not in sources:
                try:
                    sources[file] = read("tests/" + file)
                except OSError:
                    sources[file] = ""
                    complain(f"{where}: there is no such file")
            source = sources[file]
            if not source:
                continue
            if file.endswith(".c"):
                if not re.search(rf"^static void {test}\(void \*\*state\)", source, re.M):
                    complain(f"{where}: the file has no such test")
                elif not re.search(rf"\b(?:cmocka_unit_test\w*|test_of_cases)\(\s*{test}\b", source):
                    complain(f"{where}: the test is not in the list that main runs")
            elif file.endswith(".py"):
                if not re.search(rf"^ *def {test}\(", source, re.M):
                    complain(f"{where}: the file has no such test")
            elif test not in source:
                complain(f"{where}: the file does not say so")


# ---------------------------------------------------------------- the page


def shortened(text, most=110):
    if len(text) <= most:
        return text
    return text[:text.rfind(" ", 0, most)].rstrip(",;: ") + " ..."


def escaped(text):
    """Words of the header as code, in which a table knows no bar but with a backslash."""
    return "`" + text.replace("`", "'").replace("|", "\\|") + "`"


def page_of(sentences):
    held = [s for s in sentences if s.entry and s.entry.tests]
    lines = ["# The contract, sentence by sentence", "",
             f"`{HEADER}` is the whole contract of the library. Each of its sentences stands here, by its first words, beside the tests",
             f"that fail when it is broken: {len(held)} of {len(sentences)}. The others say what a thing is or advise the caller.",
             "A test's name is its file's in `tests/` and the function's in it.", "",
             f"The page is made of `{DATA}` by `python3 tests/contract/contract.py --write`; the test `contract` fails when the",
             "header says something that is not accounted for there, or a test is named that does not run."]
    section = None
    for s in held:
        if s.section != section:
            section = s.section
            lines += ["", f"## {section[0].upper()}{section[1:]}", "", "| of | sentence | tests |", "|---|---|---|"]
        files = {}
        for file, test in s.entry.tests:
            files.setdefault(file, []).append(test)
        tests = "; ".join(f"`{'tests/' if '/' in file else ''}{file}`: {', '.join(names)}" for file, names in files.items())
        lines.append(f"| {'`' + s.name + '`' if s.name else ''} | {escaped(shortened(s.text))} | {tests} |")
    return "\n".join(lines) + "\n"


def main():
    complaints = []
    sentences = sentences_of(read(HEADER))
    entries = entries_of(read(DATA), complaints.append)
    match(sentences, entries, complaints.append)
    check_tests(entries, complaints.append)
    if sys.argv[1:] == ["--write"]:
        with open(os.path.join(ROOT, PAGE), "w", encoding="utf-8") as file:
            file.write(page_of(sentences))
    elif not complaints and read(PAGE) != page_of(sentences):
        complaints.append(f"{PAGE} is not what {DATA} says; `python3 tests/contract/contract.py --write` writes it anew")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    print(f"{len(sentences)} sentences, {sum(1 for e in entries if e.tests)} of them held by tests, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
