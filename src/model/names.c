/* names.c - see names.h. */
#include "model/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Match a name with a pattern in which %s stands for digits; these go into digits. */
static int matches(const char *name, const char *pattern, char digits[16])
{
    const char *star = strstr(pattern, "%s");
    size_t front = star ? (size_t)(star - pattern) : 0, length = 0;
    digits[0] = 0;
    if (!star)
        return !strcmp(name, pattern);
    if (strncmp(name, pattern, front))
        return 0;
    while (isdigit((unsigned char)name[front + length]) && length < 15)
        length++;
    snprintf(digits, 16, "%.*s", (int)length, name + front);
    return length && !strcmp(name + front + length, star + 2);
}

/* Write a pattern's name: digits in place of %s, and the number of an expert in place of %e. */
static void write_name(char name[HF_NAME], const char *pattern, const char *digits, int64_t expert)
{
    name[0] = 0;
    for (const char *at = pattern; *at; at++) {
        if (at[0] == '%' && at[1] == 's')
            text_append(name, HF_NAME, "%s", digits);
        else if (at[0] == '%' && at[1] == 'e')
            text_append(name, HF_NAME, "%lld", (long long)expert);
        else
            text_append(name, HF_NAME, "%c", *at);
        at += *at == '%';
    }
}

/* The row of the logical name `own`, its block's number in digits; one without names: there is
 * none. */
static const struct model_name *find_row(const struct model *model, enum model_names of,
                                         const char *own, char digits[16])
{
    const struct model_name *row = model->family->names;
    while (row->own && ((row->of != NAMES_ANY && row->of != of) || !matches(own, row->own, digits)))
        row++;
    return row;
}

static enum model_names names_of(const struct model *model)
{
    return model->config.qk_norm ? NAMES_QWEN3_MOE : NAMES_MIXTRAL;
}

/* Set where tensor `number` of a stack lies; the rows of each follow from the model's sizes. */
static void set_rows(struct model_place *place, const struct config_model *c,
                     enum model_stack stack, int number)
{
    const int64_t kv_rows = c->kv_heads * c->head_dim;
    const struct {
        int count;
        int64_t rows[3];
    } of[STACKS] = {[STACK_NONE] = {.count = 1},
                    [STACK_QKV] = {.count = 3, .rows = {c->heads * c->head_dim, kv_rows, kv_rows}},
                    [STACK_GATE_UP] = {.count = 2, .rows = {c->ffn, c->ffn}}};
    place->number = number;
    place->stacked = of[stack].count;
    place->first_row = place->other_rows = 0;
    for (int t = 0; t < place->stacked; t++) {
        place->first_row += t < number ? of[stack].rows[t] : 0;
        place->other_rows += t != number ? of[stack].rows[t] : 0;
    }
}

static int place_of(const struct model *model, enum model_names of, const char *own, int64_t matrix,
                    struct model_place *place)
{
    char digits[16];
    const struct model_name *row = find_row(model, of, own, digits);
    if (!row->own)
        return -1;
    int is_next = row->hf_next && matrix % 2;
    write_name(place->name, is_next ? row->hf_next : row->hf, digits,
               row->hf_next ? matrix / 2 : matrix);
    set_rows(place, &model->config, row->stack, row->number);
    place->is_transposed = row->is_transposed;
    place->is_matrix = strstr(row->hf, "%e") != NULL;
    return 0;
}

int model_hf_place(const struct model *model, const char *own, int64_t matrix,
                   struct model_place *place)
{
    return place_of(model, names_of(model), own, matrix, place);
}

int model_hf_fused_place(const struct model *model, const char *own, struct model_place *place)
{
    return place_of(model, NAMES_FUSED, own, 0, place);
}

int model_hf_stacked_place(const struct model *model, const char *own, struct model_place *place)
{
    return place_of(model, NAMES_STACKED, own, 0, place);
}

void model_hf_first(const struct model *model, const char *own, char first[HF_NAME])
{
    char digits[16], ignored[16];
    const struct model_name *row = find_row(model, names_of(model), own, digits);
    snprintf(first, HF_NAME, "%s", own);
    for (const struct model_name *other = model->family->names; row->own && other->own; other++) {
        if (other->number || strcmp(other->hf, row->hf) != 0 || matches(own, other->own, ignored))
            continue;
        write_name(first, other->own, digits, 0);
        return;
    }
}

int model_hf_is_ignored(const struct config_model *config, const char *name)
{
    static const char *const ends[] = {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (text_ends_with(name, ends[i]))
            return 1;
    return config->tie_embeddings && !strcmp(name, "lm_head.weight");
}
