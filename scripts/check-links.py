#!/usr/bin/env python3
"""check-links.py - every link of every .md file leads somewhere: to a file of this tree, and to a heading that is there.

ctest runs it as `links`. Links to other hosts are not followed. Files that the prose names in code marks (`docs/cuda.md`,
`bench/results/h200.csv`) must exist too, when their first folder does."""
import re
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(\S+)", re.M)
NAMED = re.compile(r"`((?:bench|cli|cmake|docs|examples|include|scripts|src|tests)/[\w./-]*\.\w+)`")


def without_code(text):
    """The text with fenced blocks and `code` blanked: what is in there is no link. Lines keep their numbers."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1\s*$", lambda m: "\n" * m.group().count("\n"), text, flags=re.M | re.S)
    return re.sub(r"(`+)(?!`)[^\n]*?(?<!`)\1(?!`)", lambda m: " " * len(m.group()), text)


def anchors(text):
    """The names that a reader of Markdown gives to headings, as GitHub forms them, and those that the text sets itself."""
    found, seen = set(), {}
    fenced = re.sub(r"^(`{3,}|~{3,}).*?^\1\s*$", "", text, flags=re.M | re.S)
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", fenced, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        found.add(f"{name}-{count}" if count else name)
    return found | set(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", fenced))


def files():
    skipped = {".git", "node_modules", "__pycache__"}
    for path in sorted(ROOT.rglob("*.md")):
        parts = path.relative_to(ROOT).parts
        if not any(part in skipped or part.startswith("build") for part in parts[:-1]):
            yield path


def check(path, problems):
    text = path.read_text(encoding="utf-8")
    where = path.relative_to(ROOT)
    plain = without_code(text)
    for match in LINK.finditer(plain):
        target = match.group(1) or match.group(2)
        line = plain.count("\n", 0, match.start()) + 1
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (path.parent / unquote(name)).resolve() if name else path
        if not there.exists() or ROOT not in (there, *there.parents):
            problems.append(f"{where}:{line}: no such file: {target}")
        elif anchor and there.suffix == ".md" and unquote(anchor) not in anchors(there.read_text(encoding="utf-8")):
            problems.append(f"{where}:{line}: no such heading: {target}")
    for match in NAMED.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if not (ROOT / match.group(1)).exists():
            problems.append(f"{where}:{line}: no such file: {match.group(1)}")
    return len(LINK.findall(plain))


def main():
    problems, links, count = [], 0, 0
    for path in files():
        links += check(path, problems)
        count += 1
    for problem in problems:
        print(problem, file=sys.stderr)
    if count == 0 or links == 0:
        sys.exit(f"check-links.py: no links in {ROOT}")
    print(f"{links} links in {count} files, {len(problems)} of them dead")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
