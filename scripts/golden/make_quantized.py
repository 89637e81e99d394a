"""quantized/*: weights in NF4 as bitsandbytes has them: codes, scales, scales of scales, and the values that come back."""
import bitsandbytes.functional as bitsandbytes
import torch

from tiny import SEED, case_folder, from_8bit, nearest_8bit, write_golden

# shape, type: blocks of 64 that cross rows, an odd count, a block of zeros, many blocks
CASES = {"rows": ((24, 128), torch.float32), "crossing": ((37, 100), torch.float32), "odd": ((3, 33), torch.float32),
         "half": ((16, 192), torch.bfloat16), "many": ((160, 256), torch.float16)}


def main():
    tensors = {}
    for name, (shape, dtype) in CASES.items():
        weight = torch.randn(shape, generator=torch.Generator().manual_seed(SEED + len(name))).mul_(0.02).to(dtype)
        if name == "rows":
            weight[3] = 0
        codes, plain = bitsandbytes.quantize_4bit(weight, blocksize=64, compress_statistics=False, quant_type="nf4")
        tensors |= {f"{name}.weight": weight, f"{name}.codes": codes.flatten(), f"{name}.absmax": plain.absmax,
                    f"{name}.values": bitsandbytes.dequantize_4bit(codes, plain)}
        numbers, offset = bitsandbytes.create_dynamic_map(), plain.absmax.mean()
        of_scales, nested = nearest_8bit(plain.absmax - offset, numbers)
        plain.absmax = from_8bit(of_scales, nested, numbers) + offset
        tensors |= {f"{name}.double.absmax": of_scales, f"{name}.double.nested": nested, f"{name}.double.offset": offset.reshape(1),
                    f"{name}.double.values": bitsandbytes.dequantize_4bit(codes, plain)}
    write_golden(case_folder("quantized"), {k: v.contiguous().clone() for k, v in tensors.items()}, {"names": list(CASES)})


if __name__ == "__main__":
    main()
