"""report.py - the accuracy tables for people, and whether the orders that the papers report hold: accuracy.md of the CSV files.

    report.py --language accuracy_language.csv --training accuracy_training.csv --sentences accuracy_sentences.csv --beside accuracy_language_whole_text.csv --out accuracy.md

`--beside` is the table of another language model: do the same orders hold there?
"""

import argparse
import csv
import math
import os

import cells

GUESSING = 4.83  # bits per byte of the text when bytes are guessed by their frequency alone
SAME = 0.01  # the rule of language.py: converged when twice the steps bring less than this share of the loss


class Table:
    """The rows of a CSV by cell, and what counts as better."""

    def __init__(self, path, sign):
        with open(path, newline="") as file:
            self.rows = list(csv.DictReader(file))
        self.sign = sign
        self.at = {(row["family"], row["zeros"], row["method"], row["permute"]): row for row in self.rows}

    def value(self, family, zeros, method, permute, column):
        row = self.at.get((family, zeros, method, permute))
        return float(row[column]) if row and row[column] else None


def families(table):
    return [name for name, _ in cells.FAMILIES if any(row["family"] == name for row in table.rows)]


def grid(table, columns, form):
    """One table for each share of zeros: families down, methods across."""
    out = []
    for zeros in cells.ZEROS:
        methods = [m for m in cells.METHODS if any(r["method"] == m for r in table.rows)]
        out += ["", "### %s zeros" % zeros, "", "| family | pattern | %s | permuted | magnitude, permuted | obs, permuted |" % " | ".join(methods)]
        out += ["|---|---|" + "---:|" * len(methods) + "---|---:|---:|"]
        for name, patterns in cells.FAMILIES:
            pattern = patterns[cells.ZEROS.index(zeros)]
            if not pattern:
                continue
            say = lambda method, permute: show([table.value(name, zeros, method, permute, c) for c in columns], form)
            permute = cells.PERMUTED.get(name, "")
            moved = [say(m, permute) if permute else "" for m in ("magnitude", "obs")]
            out.append("| %s | `%s` | %s | %s | %s |" % (name, pattern, " | ".join(say(m, "") for m in methods), permute, " | ".join(moved)))
    return out


def show(values, form):
    return " → ".join(form % v for v in values) if all(v is not None for v in values) else "-"


def ordered_pairs():
    """{claim: [(better, worse)]}, each side (family, zeros, method, permute)."""
    claims = {name: [] for name in ("finer units are better", "larger M is better", "free beats N:M by magnitude and wanda, 50 and 75%", "free beats N:M by obs, 50 and 75%", "free beats N:M by fisher, 50 and 75%",
                                    "free beats N:M, 90%", "shuffled rows beat rows in order",
                                    "permuting rows helps", "permuting columns helps", "wanda beats magnitude", "obs beats magnitude", "obs beats wanda",
                                    "fisher beats magnitude")}  # fmt: skip
    for zeros in cells.ZEROS:
        known = [name for name, patterns in cells.FAMILIES if patterns[cells.ZEROS.index(zeros)]]
        for method in cells.METHODS:
            side = lambda family, permute="": (family, zeros, method, permute)
            widest = "EW M=40" if zeros == "90%" else "EW M=32"
            for chain in ((widest, "VW4", "VW32", "VW64"), ("EW free", "VW4 free", "VW32 free", "VW64 free"), ("VW4", "BW4x4"), ("VW4 free", "BW4x4 free"),
                          ("Shfl-BW 32", "Shfl-BW 64")):  # fmt: skip
                claims["finer units are better"] += [(side(a), side(b)) for a, b in zip(chain, chain[1:])]
            sizes = [name for name in ("EW M=40", "EW M=20", "EW M=10", "EW M=32", "EW M=16", "EW M=8", "EW M=4") if name in known]
            claims["larger M is better"] += [(side(a), side(b)) for a, b in zip(sizes, sizes[1:])]
            claim = "free beats N:M, 90%" if zeros == "90%" else "free beats N:M by %s, 50 and 75%%" % ("magnitude and wanda" if method in ("magnitude", "wanda") else method)
            claims[claim] += [(side("EW free"), side(widest))]
            claims[claim] += [(side(name + " free"), side(name)) for name in ("VW4", "VW32", "VW64", "BW4x4")]
            claims["shuffled rows beat rows in order"] += [(side("Shfl-BW %d" % n), side("VW%d free" % n)) for n in (32, 64)]
            for family, permute in cells.PERMUTED.items():
                claims["permuting %s helps" % permute] += [(side(family, permute), side(family))]
        for family in known:
            for better, worse in (("wanda", "magnitude"), ("obs", "magnitude"), ("obs", "wanda"), ("fisher", "magnitude")):
                claims["%s beats %s" % (better, worse)].append(((family, zeros, better, ""), (family, zeros, worse, "")))
    return claims


def judge(table, pairs, column, limit=None):
    """How many pairs hold, of how many that are there, and those that do not. With a limit: pairs of which one is better than that."""
    held, count, failed = 0, 0, []
    for better, worse in pairs:
        a, b = table.value(*better, column), table.value(*worse, column)
        if a is None or b is None or (limit is not None and min(a, b) >= limit):
            continue
        count += 1
        if table.sign * (a - b) >= 0:
            held += 1
        else:
            failed.append(pair(better, "%.3f against %.3f" % (a, b), worse))
    return held, count, failed


def pair(better, values, worse):
    """A pair in words; the second side is named by what it differs in."""
    other = worse[0] if worse[0] != better[0] else worse[2]
    return "%s %s %s%s: %s of %s%s" % (better[0], better[1], better[2], " " + better[3] if better[3] else "", values, other, " in order" if better[3] else "")


def share(held, count):
    return "%d of %d" % (held, count) if count else "-"


def orders_of_language(table):
    out = ["", "| order | before tuning | of these, where a model knows something (under %.2f bits) | after tuning |" % GUESSING, "|---|---:|---:|---:|"]
    failures = []
    for claim, pairs in ordered_pairs().items():
        before, informed, after = judge(table, pairs, "pruned_loss"), judge(table, pairs, "pruned_loss", GUESSING), judge(table, pairs, "tuned_loss")
        if before[1]:
            out.append("| %s | %s | %s | %s |" % (claim, share(*before[:2]), share(*informed[:2]), share(*after[:2])))
            if claim != "fisher beats magnitude":
                failures += ["- %s, before tuning: %s" % (claim, text) for text in informed[2]] + ["- %s, after tuning: %s" % (claim, text) for text in after[2]]
    return out, ["", "Pairs that do not hold, without those above that limit before tuning and without `fisher`:", ""] + failures


def orders_beside(table, other):
    """Which orders hold on one model and not on the other, after tuning."""
    out = ["", "| order | pairs | held here | held there | alike | largest difference of those that are not |", "|---|---:|---:|---:|---:|---:|"]
    total, alike, turned = 0, 0, []
    for claim, pairs in ordered_pairs().items():
        values = [(p, [t.value(*side, "tuned_loss") for t in (table, other) for side in p]) for p in pairs]
        values = [(p, v) for p, v in values if None not in v]
        if not values:
            continue
        here, there = [v[0] <= v[1] for _, v in values], [v[2] <= v[3] for _, v in values]
        differ = [(p, v) for (p, v), a, b in zip(values, here, there) if a != b]
        most = "%.3f" % max(max(abs(v[0] - v[1]), abs(v[2] - v[3])) for _, v in differ) if differ else ""
        out.append("| %s | %d | %d | %d | %d | %s |" % (claim, len(values), sum(here), sum(there), len(values) - len(differ), most))
        total, alike = total + len(values), alike + len(values) - len(differ)
        turned += ["- %s: %s" % (claim, pair(p[0], "%.3f against %.3f here, %.3f against %.3f there," % tuple(v), p[1])) for p, v in differ]
    return out + ["", "%d of %d pairs come out alike. Those that do not:" % (alike, total), ""] + turned


def orders_of_sentences(table):
    out = ["", "| order | rank correlation | ten best answers |", "|---|---:|---:|"]
    for claim, pairs in ordered_pairs().items():
        one, two = judge(table, pairs, "order"), judge(table, pairs, "ten")
        if one[1]:
            out.append("| %s | %s | %s |" % (claim, share(*one[:2]), share(*two[:2])))
    return out


def trained(path):
    """How the language model was trained, and what more steps brought."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    ends = [(run, [row for row in rows if row["run"] == run]) for run in ("half", "whole", "further")]
    ends = [(int(found[-1]["step"]), float(found[-1]["held_out_loss"]), float(found[-1]["seconds"])) for _, found in ends if found]
    out = ["Held-out loss at the end of runs of so many steps, each with a rate that falls to zero (`accuracy_training.csv` has the whole curve):", "",
           "| steps | bits per byte | what twice the steps brought |", "|---:|---:|---:|"]  # fmt: skip
    for i, (steps, loss, _) in enumerate(ends):
        brought = (ends[i - 1][1] - loss) / loss / math.log2(steps / ends[i - 1][0]) if i else None
        out.append("| %d | %.3f | %s |" % (steps, loss, "%.2f%%" % (100 * brought) if i else ""))
    rule = "`language.py train` calls a model converged when twice the steps bring less than %.0f%% of the loss on text held out" % (100 * SAME)
    if brought >= SAME:
        verdict = "here they still bring %.2f%%: it has **not** converged." % (100 * brought)
    elif brought >= 0:
        verdict = "here they bring %.2f%%: it has converged." % (100 * brought)
    else:
        verdict = "here they bring nothing, the loss is %.2f%% higher: it has converged, and what it learns now is its own text by heart." % (-100 * brought)
    return out + ["", "Trained for %.0f s in all. %s; %s" % (ends[-1][2], rule, verdict)]


def main():
    options = argparse.ArgumentParser(description="The accuracy tables for people.")
    options.add_argument("--language", required=True, metavar="CSV")
    options.add_argument("--sentences", required=True, metavar="CSV")
    options.add_argument("--training", required=True, metavar="CSV")
    options.add_argument("--beside", metavar="CSV", help="the table of another language model")
    options.add_argument("--out", required=True, metavar="FILE.md")
    args = options.parse_args()
    language, sentences = Table(args.language, -1), Table(args.sentences, 1)
    first = language.rows[0]
    text = ["# What a pattern costs a model", "", "Made by `bench/accuracy/report.py` of `accuracy_language.csv`, `accuracy_training.csv` and `accuracy_sentences.csv`; `docs/pruning.md` reads it, and says where `obs` chooses otherwise by now.", ""]
    text += ["Pruned by %s (language model) and %s (MiniLM)." % tuple(", ".join(sorted({row["commit"] for row in table.rows})) for table in (language, sentences)), ""]
    text += ["## A small language model", "",
             "Bits per byte on text held out, after pruning → after %s steps of tuning in which the zeros stay zero. Dense: %.3f; dense after the same steps: %.3f (they begin with "
             "a fresh optimiser). %s weights, %s." % (first["tuning_steps"], float(first["dense_loss"]), float(first["dense_tuned_loss"]), first["weights"], first["device"])]  # fmt: skip
    text += [""] + trained(args.training)
    text += grid(language, ("pruned_loss", "tuned_loss"), "%.3f")
    orders, failures = orders_of_language(language)
    text += ["", "### Do the orders hold?", "", "Ties count as held."] + orders + failures
    if args.beside:
        name, other = os.path.basename(args.beside), Table(args.beside, -1)
        text += ["", "### And on another model?", "", "The same after tuning beside `%s`, a model whose dense loss is %.3f." % (name, float(other.rows[0]["dense_loss"]))]
        text += orders_beside(language, other)
    text += ["", "## all-MiniLM-L6-v2", "", "Rank correlation of the 800 answers to a question with those of the dense model, 1 is the same order. Nothing was trained after pruning."]
    text += grid(sentences, ("order",), "%.3f") + ["", "### Do the orders hold?"] + orders_of_sentences(sentences)
    with open(args.out, "w") as file:
        file.write("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
