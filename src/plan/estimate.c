/* estimate.c - see estimate.h. */
#include "plan/estimate.h"

const struct estimate_regime estimate_zero = {2, 2, 12};
const struct estimate_regime estimate_megatron = {2, 4, 12};

struct estimate_regime estimate_own(enum dtype dtype)
{
    double moments = 2 * sizeof(float);
    return (struct estimate_regime){.params = (double)dtype_bytes(dtype),
                                    .grads = sizeof(float),
                                    .optimizer =
                                        dtype == DTYPE_F32 ? moments : moments + sizeof(float)};
}

double estimate_state(const struct estimate_regime *regime, int stage, int ranks)
{
    double params = regime->params / (stage >= 3 ? ranks : 1);
    double grads = regime->grads / (stage >= 2 ? ranks : 1);
    return params + grads + regime->optimizer / (stage >= 1 ? ranks : 1);
}

double estimate_volume(int stage)
{
    return stage >= 3 ? 3 : 2;
}
