/* test_head_chunk.c - how many rows of logits the head makes at once on a CPU: 1024, as many as
 * a cache holds, or as the hidden size, whichever are most, within bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "graph/op.h"
#include "segment/units.h"
#include "tests/unit/rig.h"

static const struct head {
    const char *settings;
    int64_t rows;
} heads[] = {
    {"model.vocab=8192 model.hidden=512 data.seq_len=2048", 1024},   /* enough */
    {"model.vocab=2560 model.hidden=512 data.seq_len=2048", 1600},   /* 16 MiB */
    {"model.vocab=8192 model.hidden=1280 data.seq_len=2048", 1280},  /* the hidden size */
    {"model.vocab=50257 model.hidden=768 data.seq_len=2048", 1024},  /* enough */
    {"model.vocab=50257 model.hidden=768 data.seq_len=512", 512},    /* all there are */
    {"model.vocab=128256 model.hidden=4096 data.seq_len=2048", 512}, /* 256 MiB */
    {"model.vocab=1048576 model.hidden=512 data.seq_len=2048", 64},  /* the fewest */
    {"model.vocab=8192 model.hidden=512 data.seq_len=2048 train.logits_chunk=100", 100},
};
enum { HEADS = sizeof heads / sizeof heads[0] };

static struct graph_node *head_of(struct units *units, struct graph **graph)
{
    for (int k = 0; k < units->kinds; k++) {
        *graph = units->kind[k].train;
        for (int n = 0; n < (*graph)->node_count; n++)
            if ((*graph)->nodes[n].op == &op_head_loss_train)
                return &(*graph)->nodes[n];
    }
    fail_msg("no head");
    return NULL;
}

/* Its scratch is that of so many rows, and of no others. */
static void check_rows(const struct head *head, struct device *device)
{
    struct error err = {0};
    struct layout layout;
    struct model *model;
    struct units *units;
    struct graph *graph;
    char settings[400];
    snprintf(
        settings, sizeof settings,
        "device=cpu precision=bf16 model.layers=1 model.heads=8 model.ffn=64 train.micro_batch=1 "
        "train.global_batch=1 %s",
        head->settings);
    struct config config = rig_config(settings);
    assert_int_equal(layout_resolve(&layout, &config, 1, 1, DEVICE_CPU, &err), 0);
    assert_int_equal(layout_model(&model, &config, &err), 0);
    struct units_request request = layout_units(&layout, &config);
    if (units_create(&units, model, &request, device, &err))
        fail_msg("%s", err.text);
    struct graph_node *node = head_of(units, &graph);
    size_t bytes = node->op->scratch(device, graph, node);
    node->attrs.rows = head->rows;
    assert_int_equal(bytes, node->op->scratch(device, graph, node));
    node->attrs.rows = head->rows - 1;
    assert_int_not_equal(bytes, node->op->scratch(device, graph, node));
    units_destroy(units);
    model_destroy(model);
    layout_release(&layout);
}

static void rows_suit_the_head(void **state)
{
    struct error err = {0};
    struct device *device;
    if (device_open(&device, &(struct device_request){.kind = DEVICE_CPU, .threads = 1}, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < HEADS; i++)
        check_rows(&heads[i], device);
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_suit_the_head)};
    return cmocka_run_group_tests_name("head_chunk", tests, NULL, NULL);
}
