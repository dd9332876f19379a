/* gpt2.h - the GPT-2 family: LayerNorm, learned positions, GELU, biases. */
#ifndef TRIREME_MODEL_GPT2_H
#define TRIREME_MODEL_GPT2_H

#include "model/model.h"

extern const struct model_family model_gpt2;

#endif
