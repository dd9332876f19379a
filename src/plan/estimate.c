/* estimate.c - see estimate.h. */
#include "plan/estimate.h"

const struct estimate_regime estimate_zero = {.params = 2, .grads = 2, .optimizer = 12};

double estimate_state(const struct estimate_regime *regime, int stage, int ranks)
{
    double params = regime->params / (stage >= 3 ? ranks : 1);
    double grads = regime->grads / (stage >= 2 ? ranks : 1);
    return params + grads + regime->optimizer / (stage >= 1 ? ranks : 1);
}
