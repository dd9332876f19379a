/* test_verify_updaters.c - does verify_program() see that a tensor's update takes another rule than
 * the configuration says, or that what is frozen is trained? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/programs.h"
#include "verify/verify.h"

#define LORA    "lora.r=2 lora.target_modules=q_proj,down_proj "
#define DORA    "lora.r=32 lora.use_dora=true lora.target_modules=q_proj,down_proj "
#define CODED   "train.optimizer=adamw8bit model.ffn=512 "
#define EXPERTS "model.experts=3 model.ffn=512 "

/* rules: how many its flats have, on one rank. */
static const struct {
    const char *settings;
    int rules;
    const char *other_freeze;
} cases[] = {
    {"train.optimizer=adamw", 1, "layers.0.mlp.*"},
    {"train.optimizer=sgd train.freeze=layers.0.*,layers.2.attn.*", 1, "layers.2.attn.*"},
    {"train.optimizer=muon", 2, "embed"},
    {"train.optimizer=muon train.freeze=layers.1.*,embed", 2, "layers.0.*,embed"},
    {"train.optimizer=muon " LORA, 1, "layers.0.*"},
    {"train.optimizer=muon model.family=gpt2 model.kv_heads=2", 2, "layers.0.*"},
    {CODED, 2, "layers.*"},
    {CODED "model.vocab=512", 2, "layers.*"},
    {"train.optimizer=adamw8bit model.hidden=64 model.ffn=70", 2, "layers.*"},
    {CODED EXPERTS, 2, "layers.*"},
    {CODED "model.family=gpt2 model.kv_heads=2", 2, "layers.*"},
    {"train.optimizer=adamw8bit model.ffn=512 model.hidden=128 " DORA, 2, "layers.0.*"},
    {"train.optimizer=adamw " LORA "train.freeze=layers.0.*", 1, ""},
};

/* Each flat updated by another rule, trained where it is frozen, or frozen where it is trained. */
static void spoil_flats(struct fleet *fleet)
{
    for (int f = 0; f < fleet->units->flats; f++) {
        struct flat *flat = &fleet->units->flat[f], was = *flat;
        flat->trained = !flat->trained;
        assert_wrong(fleet->program[0], "wrong update", "a flat is frozen or trained", 0);
        *flat = was;
        for (int rule = OPTIMIZER_ADAMW; flat->trained && rule <= OPTIMIZER_ADAMW8BIT; rule++) {
            flat->optimizer = (enum config_optimizer)rule;
            if (flat->optimizer != was.optimizer)
                assert_wrong(fleet->program[0], "wrong update", "a flat of another rule", 0);
        }
        *flat = was;
    }
}

/* The same program, of a configuration that says something else. */
static void spoil_request(struct fleet *fleet, const char *other_freeze)
{
    struct units_request *request = &fleet->units->request, was = *request;
    request->freeze = other_freeze;
    assert_wrong(fleet->program[0], "wrong update", "another train.freeze", 0);
    *request = was;
    for (int rule = OPTIMIZER_ADAMW; rule < OPTIMIZER_ADAMW8BIT; rule++) {
        request->optimizer = (enum config_optimizer)rule;
        if (request->optimizer != was.optimizer)
            assert_wrong(fleet->program[0], "wrong update", "another train.optimizer", 0);
    }
    *request = was;
}

static int count_rules(const struct units *units)
{
    unsigned rules = 0;
    for (int f = 0; f < units->flats; f++)
        rules |= units->flat[f].trained ? 1u << units->flat[f].optimizer : 0;
    return __builtin_popcount(rules);
}

static void test_updates_are_those_of_the_configuration(void **state)
{
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int stages = 1; stages <= 2; stages++) {
            char text[512];
            struct fleet fleet;
            snprintf(text, sizeof text, "%s parallel.pipeline=%d", cases[c].settings, stages);
            struct config config = programs_config(0, text);
            fleet_open(&fleet, &config, stages, PROGRAM_TRAIN);
            assert_right(fleet.program[0]);
            assert_int_equal(count_rules(fleet.units), cases[c].rules);
            spoil_flats(&fleet);
            spoil_request(&fleet, cases[c].other_freeze);
            assert_right(fleet.program[0]);
            fleet_close(&fleet);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates_are_those_of_the_configuration),
    };
    return cmocka_run_group_tests_name("verify_updaters", tests, NULL, NULL);
}
