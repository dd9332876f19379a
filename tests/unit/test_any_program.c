/* test_any_program.c - whatever is asked for in combination is refused in words, or compiled into
 * programs of all ranks that verify. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "program/compile.h"
#include "program/schedule.h"
#include "verify/verify.h"
#include "tests/unit/any.h"
#include "tests/unit/rig.h"
#include "tests/unit/translator.h"

enum { CASES = 4400, COMPILED = 500, SHARED = 100, RANKS = 8 };

#define SIZES "model.hidden=12 model.heads=2 model.ffn=20 data.seq_len=7 run.threads=1 device=cpu"

/* The programs of one kind, of all ranks; units: per place. */
static void check_programs(const struct layout *layout, struct units *const *units, int ranks,
                           enum program_kind kind, const char *settings)
{
    struct state *state[RANKS] = {NULL};
    struct program *program[RANKS] = {NULL};
    struct error err = {0};
    for (int r = 0; r < ranks; r++) {
        state[r] = state_create(units[r % layout_variants(layout)], layout, 1, r);
        program[r] = program_create(state[r], kind);
        if (verify_program(program[r], &err))
            fail_msg("%d ranks, rank %d, %s: %s", ranks, r, settings, err.text);
    }
    if (verify_ranks((const struct program *const *)program, ranks, &err))
        fail_msg("%d ranks, %s: %s", ranks, settings, err.text);
    for (int r = 0; r < ranks; r++) {
        program_destroy(program[r]);
        state_destroy(state[r]);
    }
}

/* 1 if there are such programs, 0 if the layout is refused.  is_translator: of an encoder-decoder.
 */
static int check_layout(const struct config *config, int ranks, int per_node, enum device_kind kind,
                        struct device *device, int is_translator, const char *settings,
                        struct error *err)
{
    struct layout layout;
    struct model *model = NULL;
    struct units *units[RANKS] = {NULL};
    if (layout_resolve(&layout, config, ranks, per_node, kind, err))
        return 0;
    if (is_translator)
        model = translator_model(config, TRANSLATOR_CHAIN);
    else if (layout_model(&model, config, err))
        fail_msg("%s: %s", settings, err->text);
    struct units_request request = rig_units(&layout, config, model);
    int fits = layout.schedule->stages <= model->units;
    for (int place = 0; place < layout_variants(&layout); place++) {
        layout_set_variant(&request, place);
        int rc = units_create(&units[place], model, &request, device, err);
        if (rc && (strstr(err->text, "stages send to the next one only") ||
                   strstr(err->text, "nf4 keeps 64 elements of a row")))
            fits = 0;
        if (rc != fits - 1)
            fail_msg("%s: %s", settings,
                     fits ? err->text : "more stages than units, or blocks of 4 bits divided");
    }
    if (fits) {
        check_programs(&layout, units, ranks, PROGRAM_TRAIN, settings);
        check_programs(&layout, units, ranks, PROGRAM_EVALUATE, settings);
        if (layout.overlap_update)
            check_programs(&layout, units, ranks, PROGRAM_UPDATE, settings);
    }
    for (int r = 0; r < RANKS; r++)
        units_destroy(units[r]);
    model_destroy(model);
    layout_release(&layout);
    return fits;
}

/* The same with as many times the ranks, which share sequences: 1 if there is such a layout. */
static int check_shared(int number, int ranks, enum device_kind kind, struct device *device,
                        const char *settings)
{
    struct any any = any_case("any context", number);
    int contexts = 2 + any_pick(&any, 2), seq = 2 * contexts * (1 + any_pick(&any, 3));
    struct config config;
    struct error err = {0};
    char more[ANY_TEXT];
    snprintf(more, sizeof more, "%s model.max_seq_len=32 data.seq_len=%d parallel.context=%d",
             settings, seq, contexts);
    return ranks * contexts <= RANKS && !any_load(&config, more, &err) &&
           check_layout(&config, ranks * contexts, ranks * contexts, kind, device, 0, more, &err);
}

/* It is whole and has no adapters.  A matrix of it is in three units: gradients of one that is on
 * more than two stages are not summed, nor any that are offloaded; verify refuses such programs. */
static int takes_translator(const struct config *config)
{
    int stages = (int)config->parallel.pipeline;
    return !config->train.freeze[0] && !config->lora.r && config->parallel.tensor == 1 &&
           config->parallel.context == 1 && stages <= 2 &&
           (stages <= 1 || config->offload.gradients == OFFLOAD_NONE);
}

static void test_any(void **state)
{
    struct device_request request = {.kind = DEVICE_CPU, .threads = 1};
    struct device *device;
    struct error err = {0};
    int refused = 0, compiled = 0, shared = 0;
    assert_int_equal(device_open(&device, &request, &err), 0);
    for (int i = 0; i < CASES; i++) {
        struct any any = any_case("any program", i);
        struct config config;
        char settings[ANY_TEXT] = SIZES;
        int ranks = 1 + any_pick(&any, RANKS), per_node = any_pick(&any, 2) ? 2 : ranks;
        enum device_kind kind = any_pick(&any, 2) ? DEVICE_CUDA : DEVICE_CPU;
        any_settings(&any, ANY_MODEL | ANY_LAYOUT | ANY_FORMATS, settings);
        err.text[0] = 0;
        shared += check_shared(i, ranks, kind, device, settings);
        if (!any_load(&config, settings, &err) &&
            check_layout(&config, ranks, per_node, kind, device,
                         i % 3 == 0 && takes_translator(&config), settings, &err)) {
            compiled++;
            continue;
        }
        if (!err.text[0] || strchr(err.text, '\n'))
            fail_msg("%s: refused as \"%s\"", settings, err.text);
        refused++;
    }
    device_close(device);
    print_message("%d refused, %d compiled and verified, %d with parallel.context\n", refused,
                  compiled, shared);
    assert_true(compiled > COMPILED && shared > SHARED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any)};
    return cmocka_run_group_tests_name("any program", tests, NULL, NULL);
}
