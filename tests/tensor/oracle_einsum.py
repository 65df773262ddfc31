# SPDX-License-Identifier: Apache-2.0
"""Compares `berth einsum` with numpy.einsum: random specifications on files, and instances along their own path.

usage: oracle_einsum.py BERTH DIRECTORY [INSTANCE.json]...
DIRECTORY is a scratch directory. Exits with 77 when NumPy is missing.
"""
import json
import os
import subprocess
import sys

try:
    import numpy
except ImportError:
    print("skipped: NumPy is missing")
    sys.exit(77)

BOUNDS = {"float32": 2e-5, "float64": 1e-12, "complex64": 2e-5, "complex128": 1e-12}


def run(berth, *arguments):
    done = subprocess.run([berth, "einsum", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"berth einsum {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def check(what, got, expected, bound):
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, not {expected.shape}"
    assert got.dtype == expected.dtype, f"{what}: dtype {got.dtype}, not {expected.dtype}"
    largest = max(1e-300, float(numpy.abs(expected).max(initial=0.0)))
    off = float(numpy.abs(got - expected).max(initial=0.0)) / largest
    assert off <= bound, f"{what}: off by {off}"
    return off


def files(berth, directory):
    random = numpy.random.default_rng(20)
    specifications = [
        ("ij,jk->ik", (30, 40), (40, 50)),
        ("ij,jk", (3, 4), (4, 5)),
        ("...ij,...jk->...ik", (2, 3, 4, 5), (3, 5, 6)),
        ("bij,bjk->bki", (7, 8, 9), (7, 9, 10)),
        ("ab,bc,cd->da", (5, 6), (6, 7), (7, 8)),
        ("ii->i", (6, 6)),
        ("iij->j", (4, 4, 5)),
        ("ij->", (11, 12)),
        ("abc->cab", (3, 4, 5)),
        ("i,j,k->kji", (3,), (4,), (5,)),
        ("ab,ab->ab", (4, 2), (1, 2)),
        ("i...k,k...j->i...j", (2, 1, 3), (3, 2)),
        ("aXb,bXc->Xac", (3, 4, 5), (5, 4, 6)),
        ("ij,jk->ik", (0, 4), (4, 5)),
        ("ij,jk->ik", (3, 0), (0, 5)),
    ]
    count = 0
    for specification, *shapes in specifications:
        for dtype, bound in BOUNDS.items():
            for order in "CF":
                operands = []
                paths = []
                for i, shape in enumerate(shapes):
                    operand = random.standard_normal(shape)
                    if dtype.startswith("complex"):
                        operand = operand + 1j * random.standard_normal(shape)
                    operand = numpy.asarray(operand, dtype=dtype, order=order)
                    paths.append(os.path.join(directory, f"operand{i}.npy"))
                    numpy.save(paths[-1], operand)
                    operands.append(operand)
                out = os.path.join(directory, "result.npy")
                run(berth, specification, *paths, "-o", out)
                # An explicit output for NumPy where it would order capitals otherwise.
                check(specification, numpy.load(out), numpy.einsum(specification, *operands), bound)
                count += 1
    return count


def along_path(terms, output, operands, path):
    terms = list(terms)
    operands = list(operands)
    for pair in path:
        left = [terms[i] for i in pair]
        taken = [operands[i] for i in pair]
        for i in sorted(pair, reverse=True):
            del terms[i], operands[i]
        needed = set(output).union(*terms)
        here = sorted(set().union(*left))
        result = output if not terms else "".join(label for label in here if label in needed)
        number = {label: i for i, label in enumerate(here)}
        arguments = []
        for term, operand in zip(left, taken):
            arguments += [operand, [number[label] for label in term]]
        # Pairs through tensordot where that is what they are: NumPy's own loops are slow on large ones.
        operands.append(numpy.einsum(*arguments, [number[label] for label in result], optimize=True))
        terms.append(result)
    return operands[0]


def instance(berth, directory, file):
    with open(file, encoding="utf-8") as handle:
        description = json.load(handle)
    out = os.path.join(directory, "result.npy")
    run(berth, "--instance", file, "--path", "opt_flops", "--save-operands", directory, "-o", out)
    inputs, output = description["format_string"].split("->")
    terms = inputs.split(",")
    operands = [numpy.load(os.path.join(directory, f"{i:05}.npy")) for i in range(len(terms))]
    expected = along_path(terms, output, operands, description["paths"]["opt_size"]["path"])
    return check(description["name"], numpy.load(out), numpy.asarray(expected), 1e-10)


def main():
    berth, directory, *instances = sys.argv[1:]
    print(f"{files(berth, directory)} einsums on files equal NumPy's")
    for file in instances:
        print(f"{os.path.basename(file)}: equal within {instance(berth, directory, file):.1e}")


if __name__ == "__main__":
    main()
