# SPDX-License-Identifier: MIT
"""For safetensors_test.cpp, with the safetensors package and nothing else:
write FILE  writes the golden file: every format that both sides know, in four shapes
read FILE   prints each tensor of a file: name, dtype, shape, bytes in hexadecimal
judge FILE  FILE holds many files, each after its length (uint32): prints 1 for each that is read
The golden file was made by: python tests/interop/tensor_files.py write tests/golden/python.safetensors"""
import sys

from safetensors import deserialize, serialize

FORMATS = {
    "F32": ("float32", 4), "BF16": ("bfloat16", 2), "F16": ("float16", 2), "F64": ("float64", 8),
    "I8": ("int8", 1), "I16": ("int16", 2), "I32": ("int32", 4), "I64": ("int64", 8),
    "U8": ("uint8", 1), "U16": ("uint16", 2), "U32": ("uint32", 4), "U64": ("uint64", 8),
}
SHAPES = [[], [3], [2, 0], [1, 2, 3]]


def tensors():
    """Byte b of the k-th tensor is (37 b + 11 k) mod 256."""
    k = 0
    for name, (dtype, size) in FORMATS.items():
        for shape in SHAPES:
            count = size
            for extent in shape:
                count *= extent
            yield f"{name}.{len(shape)}", dtype, shape, bytes((37 * b + 11 * k) % 256 for b in range(count))
            k += 1


def main():
    command, path = sys.argv[1:]
    if command == "write":
        contents = {n: {"dtype": d, "shape": s, "data": b} for n, d, s, b in tensors()}
        with open(path, "wb") as file:
            file.write(serialize(contents, {"made by": "safetensors"}))
        return
    with open(path, "rb") as file:
        contents = file.read()
    if command == "read":
        for name, tensor in sorted(deserialize(contents)):
            shape = ",".join(str(extent) for extent in tensor["shape"])
            print(name, tensor["dtype"], f"[{shape}]", bytes(tensor["data"]).hex())
    elif command == "judge":
        at = 0
        while at < len(contents):
            size = int.from_bytes(contents[at:at + 4], "little")
            try:
                deserialize(contents[at + 4:at + 4 + size])
                print(1)
            except Exception:  # whatever it is, the file was not read
                print(0)
            at += 4 + size


main()
