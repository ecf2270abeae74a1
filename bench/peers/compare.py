# SPDX-License-Identifier: MIT
"""Our steps and products beside PyTorch's (OpenBLAS, oneDNN) and Eigen's, by turns, as tables.

    python3 bench/peers/compare.py BUILD [--rounds N] [--only steps,recompute,products] [--write]

BUILD is a build directory with the benches. Each round runs every program once; the table holds
medians, and medians of the ratios within a round. --write puts it into bench/README.md. PyTorch is
run with the environment's own choice of BLAS kernel unless that is one for another kind of CPU, which
is said. A step of PyTorch that is more than 1.5 times slower, relative to the FMA loop of the run,
than on the machine of EXPECTED is not reported: something is wrong with it, and beating it is no news.
--report-anyway reports it, and says so in the table.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"  # python3-torch is a package of the system's

# Milliseconds of PyTorch 1.13's step on two cores whose FMA loop ran at 515 GFLOP/s.
EXPECTED = {("XS", "float"): 21, ("XS", "bf16"): 15, ("S", "float"): 931, ("S", "bf16"): 494,
            ("M", "float"): 819, ("M", "bf16"): 506}
EXPECTED_FMA = 515.0
BENCH_INDEX = {"XS": 0, "S": 2, "S-1024": 3, "M": 4, "GPT-2": 5}
OUR_TYPE = {"float": "float", "bf16": "hs::bf16", "fp16": "hs::fp16"}
PRODUCTS = [(1024, 3072, 768), (2048, 1536, 384), (1024, 1024, 1024), (4096, 384, 384)]
NARROW_KERNELS = {"Prescott", "Core2", "Nehalem", "Sandybridge", "Haswell", "Zen"}


def run(command, environment=None):
    done = subprocess.run([str(c) for c in command], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


def ours_step(build, size, form):
    out = run([build / "bench" / "bench_nn_gpt", "--benchmark_format=json", "--benchmark_min_time=0.5",
               f"--benchmark_filter=GptStep<{OUR_TYPE[form]}>/size:{BENCH_INDEX[size]}/busy:0/"])
    return json.loads(out)["benchmarks"][0]


def ours_product(build, shape, form):
    m, n, k = shape
    name = {"float": "float", "bf16": "bf16"}[form]
    out = run([build / "bench" / "bench_kernels_gemm", "--benchmark_format=json", "--benchmark_min_time=0.05",
               "--benchmark_repetitions=9", f"--benchmark_filter=BestGemm<{name}>/m:{m}/n:{n}/k:{k}/"])
    # As the peers' times are: not a mean, which neighbours of a shared machine pull up.
    return 1e-6 * median([b["real_time"] for b in json.loads(out)["benchmarks"] if b["run_type"] == "iteration"])


def torch(environment, *arguments):
    return json.loads(run([PYTHON, HERE / "torch_step.py", *arguments], environment))


def settle():
    """The environment for PyTorch, and a line on how it runs."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    seen = torch(environment, "--product", "64,64,64", "--count", "1")
    note = ""
    avx512 = "avx512f" in pathlib.Path("/proc/cpuinfo").read_text()
    if avx512 and seen["blas"] in NARROW_KERNELS:
        note = f" (of itself it takes {seen['blas']}'s)"
        environment["OPENBLAS_CORETYPE"] = "SkylakeX"
        seen = torch(environment, "--product", "64,64,64", "--count", "1")
        if seen["blas"] in NARROW_KERNELS:
            sys.exit(f"OpenBLAS runs kernels for {seen['blas']} on a CPU with AVX-512: not a fair peer.")
    return environment, (f"PyTorch {seen['version']}: {seen['threads']} threads, OpenBLAS kernels for "
                         f"{seen['blas']}{note}, ATen {seen['isa']}")


def median(values):
    return statistics.median(values)


def spread(values):
    return f"{median(values):.3g}" + (f" ({min(values):.3g} to {max(values):.3g})" if len(values) > 1 else "")


def step_table(build, environment, rounds, sizes, anyway):
    rows = ["| step | format | ours, ms | of FMA | products / attention / head / elementwise / optimizer; waiting | PyTorch, ms | PyTorch : ours |",
            "|---|---|---|---|---|---|---|"]
    for size in sizes:
        ours = {form: [] for form in OUR_TYPE}
        theirs = {form: [] for form in ("float", "bf16")}
        for _ in range(rounds):
            for form in OUR_TYPE:
                ours[form].append(ours_step(build, size, form))
                if form in theirs:
                    count = "3" if size != "XS" else "20"
                    theirs[form].append(median(torch(environment, "--size", size, "--format", form, "--count", count)["ms"]))
        fma = max(bench["fma_GFLOP/s"] for benches in ours.values() for bench in benches)
        for form in OUR_TYPE:
            ms = [bench["real_time"] for bench in ours[form]]
            mid = ours[form][ms.index(sorted(ms)[len(ms) // 2])]
            shares = " / ".join(f"{100 * mid[p]:.0f}" for p in ("products", "attention", "head", "elementwise", "optimizer"))
            # fp16 has no counterpart: it is held against PyTorch's float.
            peer = theirs[form if form in theirs else "float"]
            shown, ratio = spread(peer), spread([p / m for p, m in zip(peer, ms)])
            expected = EXPECTED.get((size, form))
            off = min(peer) * fma / (expected * EXPECTED_FMA) if expected else 1.0
            if off > 1.5:
                if anyway:
                    shown += f", {off:.1f} times off"
                else:
                    shown, ratio = f"not reported: {off:.1f} times off", ""
            rows.append(f"| {size} | {form} | {spread(ms)} | {mid['of_fma']:.2f} | {shares}; {100 * mid['waiting']:.0f} | "
                        f"{shown if form in theirs else 'float'} | {ratio} |")
            print(rows[-1], flush=True)
    return rows


def recompute_table(build, environment, rounds):
    """Of size S in bf16, with and without a segment for each block."""
    rows = ["| blocks recomputed | ours, ms | ours, MB | PyTorch, ms | PyTorch, MB |", "|---|---|---|---|---|"]
    plans = {"none": (0, []), "each": (2, ["--recompute"])}
    seen = {plan: ([], [], [], []) for plan in plans}
    for _ in range(rounds):
        for plan, (number, flags) in plans.items():
            out = run([build / "bench" / "bench_nn_recompute", "--benchmark_format=json",
                       f"--benchmark_filter=RecomputePass/plan:{number}/"])
            ours = json.loads(out)["benchmarks"][0]
            theirs = torch(environment, "--size", "S", "--format", "bf16", "--count", "2", *flags)
            for values, value in zip(seen[plan], (ours["real_time"], ours["peak_MB"], median(theirs["ms"]), theirs["peak_mb"])):
                values.append(value)
    for plan, columns in seen.items():
        rows.append(f"| {plan} | " + " | ".join(spread(values) for values in columns) + " |")
        print(rows[-1], flush=True)
    ours, theirs = (spread([b / a for a, b in zip(seen["none"][i], seen["each"][i])]) for i in (0, 2))
    rows += ["", f"Time of each to none: ours {ours}, PyTorch {theirs}. Ours is forward and backward, counted by the ledger "
             "above weights and gradients; PyTorch's is a step, resident above the loaded model, with gradients and "
             "moments (129 MB)."]
    print(rows[-1], flush=True)
    return rows


def product_table(build, environment, rounds):
    eigen = build / "bench" / "bench_peers_eigen_gemm"
    rows = ["| M, N, K | format | ours, GFLOP/s | PyTorch, GFLOP/s | Eigen | PyTorch : ours | Eigen : ours |",
            "|---|---|---|---|---|---|---|"]
    threads = str(len(os.sched_getaffinity(0)))
    for shape in PRODUCTS:
        flop = 2e-6 * shape[0] * shape[1] * shape[2]
        for form in ("float", "bf16"):
            ours, theirs, eigens = [], [], []
            for _ in range(rounds):
                ours.append(ours_product(build, shape, form))
                text = ",".join(map(str, shape))
                theirs.append(median(torch(environment, "--product", text, "--format", form, "--count", "20")["ms"]))
                if form == "float":
                    eigens.append(median([float(x) for x in run([eigen, *shape, threads, "20"]).split()]))
            ratio = spread([t / o for t, o in zip(theirs, ours)])
            with_eigen = ((f"{flop / median(eigens):.0f}", spread([e / o for e, o in zip(eigens, ours)]))
                          if eigens else ("", ""))
            rows.append(f"| {', '.join(map(str, shape))} | {form} | {flop / median(ours):.0f} | {flop / median(theirs):.0f} | "
                        f"{with_eigen[0]} | {ratio} | {with_eigen[1]} |")
            print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="steps,recompute,products")
    parser.add_argument("--sizes", default="XS,S,M")
    parser.add_argument("--report-anyway", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    only = options.only.split(",")
    if options.write and len(only) < 3:
        parser.error("--write replaces all tables: leave --only out")
    environment, note = settle()
    cpu = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    compiler = run(["c++", "--version"]).splitlines()[0]
    load = os.getloadavg()[0]
    lines = [f"Taken {datetime.date.today()} on {len(os.sched_getaffinity(0))} cores of {cpu}, {compiler}, load {load:.1f} "
             f"before. {note}. {options.rounds} rounds by turns; medians, with the range; percent of the step's time.", ""]
    print(lines[0], flush=True)
    if "steps" in only:
        lines += step_table(options.build, environment, options.rounds, options.sizes.split(","), options.report_anyway) + [""]
    if "recompute" in only:
        lines += recompute_table(options.build, environment, options.rounds) + [""]
    if "products" in only:
        lines += product_table(options.build, environment, options.rounds) + [""]
    if options.write:
        readme = HERE.parent / "README.md"
        begin, end = "<!-- peers: written by bench/peers/compare.py -->", "<!-- end -->"
        text = readme.read_text()
        first, last = text.index(begin) + len(begin), text.index(end)
        readme.write_text(text[:first] + "\n" + "\n".join(lines) + text[last:])


if __name__ == "__main__":
    main()
