# SPDX-License-Identifier: MIT
"""numeric.py FILE: what numpy and ml_dtypes make of every code and of many numbers, for
numeric_test.cpp. For each format: its name in 16 bytes, then the values of its codes (float64), then
pairs of inputs (float32, later float64) and codes (uint16), each array after its length (uint32)."""
import sys
import warnings

import ml_dtypes
import numpy as np

warnings.simplefilter("ignore")  # overflows and NaNs are what this is about
FORMATS = {
    "bf16": (ml_dtypes.bfloat16, 16),
    "fp16": (np.float16, 16),
    "fp8_e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "fp8_e5m2": (ml_dtypes.float8_e5m2, 8),
    "fp8_e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, 8),
    "fp8_e5m2fnuz": (ml_dtypes.float8_e5m2fnuz, 8),
    "fp8_e4m3b11fnuz": (ml_dtypes.float8_e4m3b11fnuz, 8),
    "fp8_e4m3_ieee": (ml_dtypes.float8_e4m3, 8),
    "fp8_e3m4": (ml_dtypes.float8_e3m4, 8),
    "fp8_e8m0": (ml_dtypes.float8_e8m0fnu, 8),
    "fp6_e2m3": (ml_dtypes.float6_e2m3fn, 6),
    "fp6_e3m2": (ml_dtypes.float6_e3m2fn, 6),
    "fp4_e2m1": (ml_dtypes.float4_e2m1fn, 4),
}


def inputs(values, real):
    """Values, middles between neighbours, what stands beside both, specials, and any bits at all."""
    known = np.unique(values[np.isfinite(values)])
    known = np.concatenate([known, [2 * known[-1] - known[-2], 2 * known[-1]]])
    points = np.concatenate([known, (known[:-1] + known[1:]) / 2]).astype(real)
    points = np.concatenate(
        [points, np.nextafter(points, real(np.inf)), np.nextafter(points, real(-np.inf))]
    )
    word = np.uint32 if real is np.float32 else np.uint64
    random = np.random.Generator(np.random.Philox(4))
    anything = random.integers(0, np.iinfo(word).max, 200000, dtype=word, endpoint=True).view(real)
    spread = (random.standard_normal(100000) * 2.0 ** random.integers(-30, 20, 100000)).astype(real)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], real)
    return np.concatenate([points, -points, anything, spread, special])


def write(out, array):
    out.write(np.uint32(array.size).tobytes())
    out.write(np.ascontiguousarray(array).tobytes())


with open(sys.argv[1], "wb") as out:
    for name, (dtype, bits) in FORMATS.items():
        word = np.uint16 if bits == 16 else np.uint8
        values = np.arange(2**bits, dtype=word).view(dtype).astype(np.float64)
        out.write(name.encode().ljust(16, b"\0"))
        write(out, values)
        for real in (np.float32, np.float64):
            x = inputs(values, real)
            write(out, x)
            write(out, x.astype(dtype).view(word).astype(np.uint16))
print(f"numpy {np.__version__}, ml_dtypes {ml_dtypes.__version__}")
