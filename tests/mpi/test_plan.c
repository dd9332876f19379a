/* test_plan.c - what the plan says is what happens: bytes of every pool, resident memory, bytes
 * sent, and nothing left at the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"
#include "plan/report.h"
#include "segment/units_frozen.h"
#include "tests/mpi/training.h"
#include "train/metrics.h"
#include "train/weights.h"

enum { STEPS = 3 };

/* Beside what is planned: the program, MPI, HDF5, thread stacks, and compiled kernels.  A sanitizer
 * keeps what was freed, and more. */
#ifdef __SANITIZE_ADDRESS__
static const size_t beside = (size_t)4 << 30;
#else
static const size_t beside = (size_t)150 << 20;
#endif

struct planning {
    struct checks c;
    char tokens[96], dir[64];
    struct mem idle; /* before any session */
    size_t most_beside;
    int cases;
};

static void check_pools(struct planning *p, const struct report_rank *plan)
{
    const struct mem *mem = &p->c.mem;
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        size_t now = mem->now_bytes[pool] - p->idle.now_bytes[pool];
        if (now != plan->need.pool_bytes[pool])
            fprintf(stderr, "rank %d: %s: planned %zu, allocated %zu\n", world_rank(p->c.world),
                    mem_pool_name(pool), plan->need.pool_bytes[pool], now);
        CHECK(&p->c, now == plan->need.pool_bytes[pool]);
    }
    CHECK(&p->c, mem_bytes(plan->need.pool_bytes) == plan->need.total_bytes);
}

/* Steps allocate nothing, and send what was planned, each time. */
static void check_steps(struct planning *p, struct session *s, const struct report_rank *plan)
{
    struct error err = {0};
    struct batches batches;
    struct mem before = p->c.mem;
    CHECK(&p->c, !batches_open(&batches, s, p->tokens, LOADER_SHUFFLED, &err));
    rig_init(s);
    for (int step = 1; step <= STEPS; step++) {
        struct step_input input = rig_input(s, step);
        input.load = batches_load;
        input.user = &batches;
        batches.sample = (step - 1) * s->layout.global_batch;
        CHECK(&p->c, !executor_run_step(s->executor, s->train, &input, NULL, NULL, &err));
        training_check_volume(&p->c, s, plan);
    }
    batches_close(&batches);
    CHECK(&p->c, !memcmp(before.now_bytes, p->c.mem.now_bytes, sizeof before.now_bytes));
    CHECK(&p->c, before.blocks == p->c.mem.blocks);
}

static void check_resident(struct planning *p, const struct report_rank *plan)
{
    size_t resident = mem_resident_bytes() - world_mapped_bytes(p->c.world);
    CHECK(&p->c, resident > 0);
    if (resident <= plan->need.total_bytes)
        return; /* planned for the worst, and pages nobody has touched */
    CHECK(&p->c, resident - plan->need.total_bytes < beside);
    if (resident - plan->need.total_bytes > p->most_beside)
        p->most_beside = resident - plan->need.total_bytes;
}

/* The last line of metrics.jsonl after a step at this speed, as if on that GPU; js_free() it. */
static struct js *line_of(struct planning *p, struct session *s, const char *gpu,
                          const struct metrics_step *step)
{
    char path[128];
    struct error err = {0};
    struct metrics metrics;
    snprintf(path, sizeof path, "%s/metrics.jsonl", p->dir);
    s->device->name = gpu;
    CHECK(&p->c, !metrics_open(&metrics, s, path, 0, &err));
    metrics_write(&metrics, step);
    metrics_close(&metrics);
    struct js *js = js_read(path, &err);
    CHECK(&p->c, js && !remove(path));
    return js;
}

/* The share of the peak is the model's operations over what all GPUs could have done. */
static void check_share(struct planning *p, struct session *s)
{
    /* at 2e9 tokens a second, of which half are masked */
    double tokens = (double)layout_step_tokens(&s->layout, &s->config);
    struct metrics_step step = {
        .step = 1, .output = {.targets = tokens / 2}, .step_ms = tokens / 2e6};
    struct model_flops flops = units_flops_per_token(s->units, s->config.data.seq_len);
    double all = 989.5e12 * world_size(p->c.world);
    if (world_rank(p->c.world) || s->layout.dtype != DTYPE_BF16)
        return;
    struct js *js = line_of(p, s, "NVIDIA H200", &step);
    CHECK(&p->c, fabs(js_get_real(js, "mfu", -1) - 2e9 * flops.causal / all) < 1e-4);
    CHECK(&p->c, fabs(js_get_real(js, "mfu_full_attention", -1) - 2e9 * flops.full / all) < 1e-4);
    CHECK(&p->c, js_get_real(js, "mfu", -1) > 1e-3);
    js_free(js);
    js = line_of(p, s, "", &step);
    CHECK(&p->c, js_get_real(js, "mfu", -1) == -1);
    js_free(js);
}

/* The numbers that all ranks would save are those of the plan. */
static void check_checkpoint(struct planning *p, struct session *s, const struct report *report)
{
    struct checkpoint_piece *pieces;
    int count = weights_pieces(s, weights_choose_saved(s), &pieces);
    double bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += (double)pieces[i].count * (double)dtype_bytes(pieces[i].dtype);
    weights_pieces_free(pieces, count);
    world_all_reduce(p->c.world, &bytes, 1, WORLD_SUM);
    if ((int64_t)bytes != report->checkpoint_bytes)
        fprintf(stderr, "checkpoint: planned %lld, saved %.0f\n",
                (long long)report->checkpoint_bytes, bytes);
    CHECK(&p->c, (int64_t)bytes == report->checkpoint_bytes);
}

static void check_config(struct planning *p, const char *settings)
{
    struct error err = {0};
    struct report report;
    struct session *s = NULL;
    struct log log = {.level = LOG_ERROR, .rank = world_rank(p->c.world)};
    struct config config = rig_config(settings);
    int ranks = world_size(p->c.world);
    struct report_request request = {.config = &config, .ranks = ranks, .nodes = 1, .threads = 1};
    CHECK(&p->c, !report_make(&report, &request, &err));
    CHECK(&p->c, report.verified);
    CHECK(&p->c,
          !session_open(&s, p->c.world, &log, &p->c.mem, &config, SESSION_TRAIN, NULL, &err));
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
    if (s) {
        const struct report_rank *plan = &report.rank[world_rank(p->c.world)];
        check_pools(p, plan);
        CHECK(&p->c, !memcmp(&s->need, &plan->need, sizeof plan->need));
        check_steps(p, s, plan);
        check_resident(p, plan);
        check_checkpoint(p, s, &report);
        check_share(p, s);
    }
    session_close(s);
    report_free(&report);
    CHECK(&p->c, !memcmp(p->idle.now_bytes, p->c.mem.now_bytes, sizeof p->idle.now_bytes));
    CHECK(&p->c, p->idle.blocks == p->c.mem.blocks);
    p->cases++;
}

/* Odd sizes, and one large enough for its slabs to be most of the process. */
static const char *const models[] = {
    "model.layers=3 model.hidden=36 model.heads=6 model.kv_heads=3 model.ffn=61 model.vocab=101 "
    "data.seq_len=17 train.global_batch=7",
    "model.layers=1 model.hidden=7 model.heads=1 model.head_dim=2 model.ffn=3 model.vocab=103 "
    "data.seq_len=5 train.global_batch=1 model.tie_embeddings=true",
};

/* The bytes of one gradient's way to the shards, and the zeros that fill shards up. */
static void check_halved(struct planning *p)
{
    struct error err = {0};
    struct report in[2];
    char text[512];
    int ranks = world_size(p->c.world);
    for (int k = 0; k < 2; k++) {
        snprintf(text, sizeof text, "%s parallel.strategy=SHARD_GRAD_OP comm.reduce_dtype=%s",
                 models[0], k ? "bf16" : "fp32");
        struct config config = rig_config(text);
        struct report_request request = {
            .config = &config, .ranks = ranks, .nodes = 1, .threads = 1};
        CHECK(&p->c, !report_make(&in[k], &request, &err));
    }
    int64_t saved = in[0].rank[0].sent_bytes - in[1].rank[0].sent_bytes;
    double least = 2.0 * (double)in[0].params * (ranks - 1) / ranks;
    CHECK(&p->c, in[0].rank[0].sent_elems == in[1].rank[0].sent_elems);
    CHECK(&p->c, (double)saved >= least && (double)saved <= 1.05 * least);
    report_free(&in[0]);
    report_free(&in[1]);
}

static void check_all(struct planning *p)
{
    char text[768];
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (int k = 0; k < 24; k++) {
            static const char *const recompute[] = {"none", "selective", "full", "full"};
            static const char *const strategies[] = {"NO_SHARD",     "FULL_SHARD",
                                                     "SHARD_OPTIM",  "SHARD_GRAD_OP",
                                                     "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
            int strategy = (k + k / 6) % 6, ranks = world_size(p->c.world);
            const char *const more[7] = {"",
                                         "parallel.wrap=layers parallel.layers_per_unit=2",
                                         "train.optimizer=sgd",
                                         strategy ? "parallel.persist_below=3000" : "",
                                         "parallel.wrap=size parallel.min_num_params=20000",
                                         "train.optimizer=muon",
                                         "train.optimizer=muon train.freeze=layers.0.*"};
            snprintf(text, sizeof text,
                     "%s run.threads=1 parallel.strategy=%s precision=%s train.micro_batch=%d "
                     "parallel.forward_prefetch=%s recompute=%s parallel.shard=%d "
                     "parallel.accumulate=%s %s",
                     models[i], strategies[strategy], k & 2 ? "bf16" : "fp32", k & 4 ? 1 : 0,
                     k & 8 ? "true" : "false", recompute[(k + k / 4) % 4],
                     strategy < 4 ? 0
                     : ranks % 2  ? ranks
                                  : 2,
                     k % 3 ? "shard" : "local", more[k % 7]);
            check_config(p, text);
        }
    snprintf(text, sizeof text, "%s data.valid=%s run.threads=1", models[0], p->tokens);
    check_config(p, text);
    for (int k = 0; k < 6; k++) {
        static const char *const formats[] = {"bf16_pure", "fp32", "bf16"};
        snprintf(text, sizeof text,
                 "%s run.threads=1 precision=%s train.optimizer_dtype=%s parallel.strategy=%s",
                 models[k % 2], formats[k % 3], k ? "bf16" : "fp32",
                 k / 3 ? "FULL_SHARD" : "NO_SHARD");
        check_config(p, text);
    }
    for (int k = 0; k < 6; k++) {
        snprintf(text, sizeof text,
                 "%s run.threads=1 comm.reduce_dtype=bf16 parallel.strategy=%s "
                 "train.micro_batch=%d parallel.accumulate=%s parallel.persist_below=%d",
                 models[k % 2], k / 2 ? "FULL_SHARD" : "SHARD_OPTIM", k & 1,
                 k & 2 ? "local" : "shard", k == 5 ? 100 : 0);
        check_config(p, text);
    }
    for (int k = 0; k < 6; k++) {
        static const char *const strategies[] = {"NO_SHARD", "SHARD_OPTIM", "FULL_SHARD"};
        snprintf(text, sizeof text,
                 "%s run.threads=1 precision=bf16 train.grad_dtype=bf16 parallel.strategy=%s "
                 "offload.gradients=%s offload.path=%s",
                 models[k / 3], strategies[k % 3], k == 2 ? "disk" : "none", k == 2 ? p->dir : "");
        check_config(p, text);
    }
    for (int k = 0; k < 6; k++) {
        static const char *const grads[] = {"SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"};
        int ranks = world_size(p->c.world), hybrid = ranks % 2 ? ranks : 2;
        snprintf(text, sizeof text,
                 "%s run.threads=1 parallel.strategy=%s train.micro_batch=%d parallel.shard=%d "
                 "offload.gradients=%s offload.path=%s",
                 models[k % 2], grads[k % 3], k & 1, k % 3 < 2 ? 0 : hybrid,
                 k / 3 ? "disk" : "host", k / 3 ? p->dir : "");
        check_config(p, text);
    }
    for (int k = 0; k < 6; k++) {
        static const char *const strategies[] = {"NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD"};
        snprintf(text, sizeof text,
                 "%s run.threads=1 parallel.strategy=%s train.micro_batch=%d precision=%s "
                 "train.freeze=%s",
                 models[k % 2], strategies[k % 3], k & 1, k & 2 ? "bf16" : "fp32",
                 k / 3 ? "embed" : "layers.0.*");
        check_config(p, text);
    }
    for (int k = 0; k < 4 && world_size(p->c.world) % 2 == 0; k++) {
        static const char *const divided[] = {"parallel.tensor=2 train.optimizer=sgd",
                                              "parallel.tensor=2 lora.r=2",
                                              "parallel.pipeline=2 train.micro_batch=1",
                                              "parallel.pipeline=2 precision=bf16 lora.r=3"};
        snprintf(text, sizeof text,
                 "model.layers=2 model.hidden=32 model.heads=4 model.kv_heads=2 model.ffn=48 "
                 "model.vocab=104 data.seq_len=16 train.global_batch=8 run.threads=1 %s",
                 divided[k]);
        check_config(p, text);
    }
    check_halved(p);
}

/* Moments in blocks: matrices of whole blocks, of several and of none, whole, in shards and divided
 * among tensor ranks. */
static void check_8bit(struct planning *p)
{
    static const char *const more[] = {
        "parallel.strategy=NO_SHARD",
        "parallel.strategy=SHARD_OPTIM train.optimizer_dtype=bf16 model.tie_embeddings=true",
        "parallel.strategy=FULL_SHARD precision=bf16_pure",
        "parallel.strategy=FULL_SHARD precision=bf16 parallel.persist_below=20000",
        "parallel.strategy=SHARD_GRAD_OP precision=bf16 train.grad_dtype=bf16 "
        "offload.optimizer=host",
        "parallel.strategy=FULL_SHARD offload.optimizer=disk train.freeze=layers.0.*",
        "parallel.tensor=2 model.head_dim=256 model.ffn=512",
        "parallel.pipeline=2 train.micro_batch=1 model.tie_embeddings=true precision=bf16",
    };
    char text[512];
    int shared = world_size(p->c.world) % 2 == 0 ? 2 : 0; /* those of an even number of ranks */
    for (size_t k = 0; k < sizeof more / sizeof more[0] - 2 + (size_t)shared; k++) {
        int is_on_disk = strstr(more[k], "disk") != NULL;
        snprintf(text, sizeof text,
                 "model.layers=2 model.hidden=48 model.heads=4 model.kv_heads=2 model.ffn=352 "
                 "model.vocab=104 data.seq_len=16 train.global_batch=12 run.threads=1 "
                 "train.optimizer=adamw8bit offload.path=%s %s",
                 is_on_disk ? p->dir : "", more[k]);
        check_config(p, text);
    }
}

/* 150 MiB of state and activations: a part not planned for would be above the bound. */
static void check_large(struct planning *p)
{
    for (int shards = 0; shards < 2; shards++) {
        char text[512];
        snprintf(text, sizeof text,
                 "model.layers=4 model.hidden=320 model.heads=5 model.ffn=864 model.vocab=8192 "
                 "data.seq_len=64 train.global_batch=%d run.threads=1 parallel.strategy=%s",
                 world_size(p->c.world), shards ? "FULL_SHARD" : "NO_SHARD");
        check_config(p, text);
    }
}

int main(void)
{
    struct planning p = {0};
    if (checks_start(&p.c))
        return 1;
    training_data(&p.c, p.dir, 101);
    snprintf(p.tokens, sizeof p.tokens, "%s/tokens.h5", p.dir);
    p.idle = p.c.mem;
    check_all(&p);
    check_8bit(&p);
    check_large(&p);
    world_barrier(p.c.world);
    if (!world_rank(p.c.world)) {
        printf("# %d ranks, %d layouts: planned to the byte; resident at most %.1f MiB beside\n",
               world_size(p.c.world), p.cases, (double)p.most_beside / (1 << 20));
        CHECK(&p.c, !disk_remove(p.dir, NULL));
    }
    int rc = checks_finish(&p.c);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        rc |= p.c.mem.now_bytes[pool] != 0;
    return rc;
}
