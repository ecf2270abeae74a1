# SPDX-License-Identifier: MIT
"""One training step of a GPT, and matrix products, in PyTorch: what `compare.py` puts beside ours.

Prints one JSON object: milliseconds of each step or product, MB of resident memory at the peak of the
steps above the loaded model, threads, BLAS kernel, ISA, version.
The model is the one of bench/nn/gpt_bench.cpp (GPT-2's, tied head, biases), the step is forward,
backward, clip to norm 1, AdamW. Needs Debian's python3-torch.
"""
import argparse
import ctypes
import json
import math
import os
import resource
import time

SIZES = {  # vocabulary, context, layers, heads, width, rows
    "XS": (65, 64, 4, 4, 128, 12),
    "S": (65, 256, 6, 6, 384, 16),
    "S-1024": (65, 1024, 6, 6, 384, 4),
    "M": (50257, 256, 4, 6, 384, 4),
    "GPT-2": (50257, 64, 12, 12, 768, 4),
}


def blas_kernel():
    """The core that OpenBLAS runs its kernels for, or None without OpenBLAS."""
    try:
        library = ctypes.CDLL("libopenblas.so.0")
        library.openblas_get_corename.restype = ctypes.c_char_p
        return library.openblas_get_corename().decode()
    except (OSError, AttributeError):
        return None


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def model(torch, size, recompute):
    vocabulary, context, layers, heads, width, _ = size
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            mask = torch.full((context, context), -math.inf).triu(1)
            self.register_buffer("mask", mask)

        def forward(self, x):
            rows, length, _ = x.shape
            parts = self.qkv(self.norm1(x)).view(rows, length, 3, heads, width // heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // heads) + self.mask
            y = (functional.softmax(scores, -1).to(v.dtype) @ v).transpose(1, 2).reshape(x.shape)
            x = x + self.out(y)
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm = nn.LayerNorm(width)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.positions(torch.arange(context))
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if recompute else block(x)
            logits = functional.linear(self.norm(x), self.tokens.weight)
            return functional.cross_entropy(logits.view(-1, vocabulary).float(), targets.view(-1))

    return Gpt()


def steps(torch, size, bf16, recompute, count):
    gpt = model(torch, size, recompute)
    loaded = peak_mb()
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-4, weight_decay=0.1)
    ids, targets = torch.randint(size[0], (2, size[5], size[1]))
    taken = []
    for _ in range(count + 2):
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = gpt(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        taken.append(1e3 * (time.perf_counter() - start))
    return taken[2:], peak_mb() - loaded


def products(torch, shape, bf16, count):
    m, n, k = shape
    dtype = torch.bfloat16 if bf16 else torch.float32
    a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    taken = []
    for _ in range(count + 2):
        start = time.perf_counter()
        torch.nn.functional.linear(a, b)
        taken.append(1e3 * (time.perf_counter() - start))
    return taken[2:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--recompute", action="store_true", help="a checkpoint around each block")
    parser.add_argument("--product", help="M,N,K of x W^T: OpenBLAS in float, oneDNN in bf16")
    parser.add_argument("--format", choices=["float", "bf16"], default="float")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--count", type=int, default=3)
    options = parser.parse_args()
    import torch  # after the environment is settled
    import torch.utils.checkpoint

    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    bf16 = options.format == "bf16"
    peak = None
    if options.product:
        taken = products(torch, [int(x) for x in options.product.split(",")], bf16, options.count)
    else:
        taken, peak = steps(torch, SIZES[options.size], bf16, options.recompute, options.count)
    capability = [line.split(":")[1].strip() for line in torch.__config__.show().splitlines()
                  if "CPU capability" in line]
    print(json.dumps({"ms": taken, "peak_mb": peak, "threads": torch.get_num_threads(), "blas": blas_kernel(),
                      "isa": capability[0] if capability else None, "version": torch.__version__}))


if __name__ == "__main__":
    main()
