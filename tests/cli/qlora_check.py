# qlora_check.py FOLDER FOLDER4: are the block matrices of FOLDER4 those of FOLDER as bitsandbytes makes
# them of 4 bits (nf4, blocks of 64), to the bit, and all other tensors the same?
import sys

import torch
import bitsandbytes.functional as bnb
from safetensors.torch import load_file

wide = load_file(sys.argv[1] + "/model.safetensors")
coded = load_file(sys.argv[2] + "/model.safetensors")
matrices = 0
assert wide.keys() == coded.keys()
for name, w in wide.items():
    is_matrix = w.dim() == 2 and (".layers." in name or ".h." in name or name.startswith("h."))
    if is_matrix:
        matrices += 1
        transposed = ".c_" in name  # GPT-2 stores [in, out]; a block is of a row of [out, in]
        w = w.T.contiguous() if transposed else w.contiguous()
        parts = w.chunk(3) if "c_attn" in name else [w]
        made = []
        for part in parts:
            codes, state = bnb.quantize_4bit(part.contiguous(), blocksize=64, quant_type="nf4")
            made.append(bnb.dequantize_4bit(codes, state))
        w = torch.cat(made)
        w = w.T.contiguous() if transposed else w
    if not torch.equal(w, coded[name]):
        sys.exit(f"{name} differs by {(w - coded[name]).abs().max().item():g}")
assert matrices > 4
print(f"{matrices} matrices")
