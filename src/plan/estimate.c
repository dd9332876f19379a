/* estimate.c - see estimate.h. */
#include "plan/estimate.h"

const struct estimate_regime estimate_zero = {2, 2, 12};
const struct estimate_regime estimate_megatron = {2, 4, 12};

struct estimate_regime estimate_own(enum dtype dtype, int stage, int ranks)
{
    double number = sizeof(float), moments = 2 * number;
    if (dtype == DTYPE_F32)
        return (struct estimate_regime){number, number, moments};
    double params = stage >= 3 && ranks > 1 ? 0 : (double)dtype_bytes(dtype);
    return (struct estimate_regime){params, number, moments + number};
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
