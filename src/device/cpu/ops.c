/* ops.c - the op set of one level of CPU instructions. */
#include "device/cpu/gemm.h"
#include "device/cpu/kernels.h"

#define TEXT2(level) #level
#define TEXT(level)  TEXT2(level)
#define ROW(op)      .op = CPU(op),

const struct device_ops CPU(ops) = {.name = TEXT(CPU_LEVEL),
                                    .gemm = CPU(gemm),
                                    .gemm_scratch = CPU(gemm_scratch),
                                    .attention_forms = ATTENTION_FULL | ATTENTION_SEPARATE |
                                                       ATTENTION_DOCUMENTS | ATTENTION_PART |
                                                       ATTENTION_WINDOW | ATTENTION_DROPOUT,
                                    DEVICE_OPS(ROW)};
