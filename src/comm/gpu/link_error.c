/* link_error.c - keep a link's first failure until a caller asks for it; contracts in channel.h. */
#include "comm/gpu/channel.h"

void link_note(struct link *l, const struct error *err)
{
    pthread_mutex_lock(&l->lock);
    if (!l->err.text[0])
        l->err = *err;
    pthread_mutex_unlock(&l->lock);
}

int link_check(struct link *l, struct error *err)
{
    int rc = 0;
    pthread_mutex_lock(&l->lock);
    if (l->abandoned) {
        rc = error_set(err, "transfers of this GPU were abandoned%s%s", l->err.text[0] ? ": " : "",
                       l->err.text);
        if (err)
            err->code = l->err.code ? l->err.code : EXIT_NODE;
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

int link_failed(struct link *l, struct error *err)
{
    pthread_mutex_lock(&l->lock);
    int failed = l->err.text[0] || l->abandoned;
    if (failed && err)
        *err = l->err;
    if (failed && err && !err->text[0])
        error_set(err, "transfers of this GPU were abandoned");
    pthread_mutex_unlock(&l->lock);
    return failed ? -1 : 0;
}
