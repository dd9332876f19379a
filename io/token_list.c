/* token_list.c - see token_list.h. */
#include "io/token_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/round.h"

/* Make the list's capacity larger.  Returns 0, or -1 where memory is out and the list unchanged. */
static int widen(struct token_list *list, int64_t capacity)
{
    uint32_t *ids = realloc(list->ids, (size_t)capacity * sizeof *ids);
    list->ids = ids ? ids : list->ids;
    uint8_t *mask = ids ? realloc(list->mask, (size_t)capacity) : NULL;
    list->mask = mask ? mask : list->mask;
    list->capacity = mask ? capacity : list->capacity;
    return mask ? 0 : -1;
}

int token_list_add(struct token_list *list, const uint32_t *ids, int64_t count, int mask,
                   struct error *err)
{
    int64_t need = list->count + count;
    if (need > list->capacity && widen(list, max_i64(need, 2 * list->capacity)))
        return error_set(err, "out of memory: %lld tokens", (long long)need);
    if (!count)
        return 0;
    memcpy(list->ids + list->count, ids, (size_t)count * sizeof *ids);
    memset(list->mask + list->count, mask, (size_t)count);
    list->count = need;
    return 0;
}

void token_list_free(struct token_list *list)
{
    free(list->ids);
    free(list->mask);
    *list = (struct token_list){0};
}
