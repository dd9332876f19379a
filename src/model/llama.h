/* llama.h - the Llama family: RMSNorm, rotary positions, grouped queries, SwiGLU. */
#ifndef TRIREME_MODEL_LLAMA_H
#define TRIREME_MODEL_LLAMA_H

#include "model/model.h"

extern const struct model_family model_llama;

#endif
