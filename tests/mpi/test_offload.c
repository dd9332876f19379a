/* test_offload.c - where state lives changes no bit: offloaded runs give the losses, norms and
 * final state of runs that are not, in every strategy, precision and accumulation; they stop and go
 * on; what is planned is allocated, the file included; and a folder that cannot hold the file is
 * refused with a reason.
 *
 * With CHECK_SHORT=1 a number of ranks takes a third of the places; all of them by `make
 * check-whole`.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/disk.h"
#include "io/swap.h"
#include "plan/report.h"
#include "segment/place.h"
#include "tests/mpi/training.h"

#define MODEL                                                                                     \
    "model.layers=3 model.hidden=36 model.heads=6 model.kv_heads=3 model.ffn=61 model.vocab=101 " \
    "data.seq_len=17 train.lr=3e-3 train.warmup_steps=2 run.threads=1 seed=5 "

enum { STEPS = 4, PLACES = 14 };

struct offloading {
    struct checks c;
    char tokens[96], dir[64];
    int cases;
};

/* What lives where; %s stands for the folder of files. */
static const char *const places[PLACES] = {
    "offload.optimizer=host ",
    "offload.optimizer=disk offload.path=%s ",
    "offload.params=host ",
    "offload.params=disk offload.path=%s ",
    "offload.optimizer=host offload.params=host ",
    "offload.optimizer=disk offload.params=disk offload.path=%s ",
    "offload.optimizer=host offload.params=disk offload.path=%s ",
    "offload.optimizer=disk offload.params=host offload.path=%s ",
    "offload.gradients=host ",
    "offload.gradients=disk offload.path=%s ",
    "offload.optimizer=host offload.gradients=disk offload.path=%s ",
    "offload.optimizer=disk offload.gradients=disk offload.path=%s ",
    "offload.optimizer=host offload.params=host offload.gradients=host ",
    "offload.optimizer=disk offload.params=disk offload.gradients=disk offload.path=%s ",
};

static const char *const strategies[] = {
    "parallel.strategy=FULL_SHARD ",
    "parallel.strategy=FULL_SHARD parallel.backward_prefetch=none parallel.forward_prefetch=false "
    "parallel.persist_below=9000 ",
    "parallel.strategy=FULL_SHARD parallel.accumulate=local "
    "parallel.backward_prefetch=BACKWARD_POST parallel.prefetch_units=2 ",
    "parallel.strategy=HYBRID_SHARD parallel.shard=%d ",
    /* Units that stay whole: the blocks' are larger than the others'; and all of them. */
    "parallel.strategy=HYBRID_SHARD parallel.shard=%d parallel.persist_below=9000 ",
    "parallel.strategy=FULL_SHARD parallel.persist_below=1000000 ",
    "parallel.strategy=NO_SHARD ",
    "parallel.strategy=SHARD_OPTIM ",
    "parallel.strategy=SHARD_GRAD_OP parallel.accumulate=local ",
    "parallel.strategy=HYBRID_SHARD_ZERO2 parallel.shard=%d ",
};

enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

/* Do a strategy and a place go together?  Parameters must be gathered for each use, gradients leave
 * after each micro-batch. */
static int goes_with(int strategy, int place)
{
    const char *name = strategies[strategy] + strlen("parallel.strategy=");
    int full = !strncmp(name, "FULL_SHARD", 10) || !strncmp(name, "HYBRID_SHARD ", 13);
    int grads = strncmp(name, "NO_SHARD", 8) && strncmp(name, "SHARD_OPTIM", 11);
    return (full || !strstr(places[place], "params")) &&
           (grads || !strstr(places[place], "gradients"));
}

static struct config config_of(const struct offloading *o, int strategy, const char *more,
                               int place)
{
    char how[256], where[256] = "", text[1024];
    int ranks = world_size(o->c.world);
    snprintf(how, sizeof how, strategies[strategy], ranks % 2 ? ranks : 2);
    if (place >= 0)
        snprintf(where, sizeof where, places[place], o->dir);
    snprintf(text, sizeof text, "%s%s%s%s", MODEL, how, where, more);
    return rig_config(text);
}

static struct trained train(struct offloading *o, const struct config *config)
{
    struct trained trained = {0};
    struct training how = {.tokens = o->tokens, .to = STEPS};
    training_run(&o->c, config, &how, &trained);
    return trained;
}

/* One strategy in all places it goes with, or every second one. */
static void check_places(struct offloading *o, int strategy, const char *more, int every, int first)
{
    struct config config = config_of(o, strategy, more, -1);
    struct trained here = train(o, &config);
    CHECK(&o->c, here.loss[0] > 4 && here.norm[STEPS - 1] > 0 && here.loss[1] != here.loss[0]);
    CHECK(&o->c, (here.skipped > 0) == !!strstr(more, "fp16"));
    for (int place = first; place < PLACES; place += every) {
        if (!goes_with(strategy, place) || !training_takes(&o->c, place + strategy, 3))
            continue;
        config = config_of(o, strategy, more, place);
        struct trained there = train(o, &config);
        if (memcmp(&here, &there, sizeof here))
            fprintf(stderr, "%s%s%s differs\n", strategies[strategy], places[place], more);
        CHECK(&o->c, !memcmp(&here, &there, sizeof here));
        o->cases++;
    }
}

static void test_places(struct offloading *o)
{
    static const char *const more[] = {
        "train.global_batch=12 train.micro_batch=1 ",
        "train.global_batch=12 precision=bf16 model.tie_embeddings=true ",
        "train.global_batch=7 precision=bf16 train.micro_batch=1 recompute=full ",
        "train.global_batch=4 model.tie_embeddings=true train.clip=0.1 train.optimizer=sgd ",
        "train.global_batch=8 precision=bf16_pure train.optimizer_dtype=bf16 ",
        /* The first step overflows and updates nothing. */
        "train.global_batch=9 train.micro_batch=1 precision=fp16 "
        "train.initial_scale_power=22 train.hysteresis=1 ",
    };
    enum { MORE = sizeof more / sizeof more[0] };
    for (int strategy = 0; strategy < STRATEGIES; strategy++)
        for (int k = 0; k < MORE; k++)
            if (strategy < 1 || (strategy + k) % 2)
                check_places(o, strategy, more[k], strategy ? 2 : 1, strategy ? k / 2 : 0);
}

/* Steps that are skipped, since the gradient is not finite, leave the state as it was, wherever. */
static void test_skips(struct offloading *o)
{
    for (int precision = 0; precision < 2; precision++) {
        uint64_t hash = 0;
        char more[128];
        snprintf(more, sizeof more, "train.global_batch=4 precision=%s ",
                 precision ? "bf16" : "fp32");
        for (int place = -1; place < PLACES; place++) {
            if (place >= 0 && !training_takes(&o->c, place + precision, 3))
                continue;
            struct config config = config_of(o, 0, more, place);
            config.train.lr = 1e38; /* parameters without measure: the next loss is none */
            struct trained trained = train(o, &config);
            CHECK(&o->c, !isfinite(trained.norm[STEPS - 1]));
            CHECK(&o->c, place < 0 || trained.hash == hash);
            hash = trained.hash;
        }
    }
}

/* Stopped and gone on, with a checkpoint between that any other place could load. */
static void test_resume(struct offloading *o)
{
    for (int place = 0; place < PLACES; place++) {
        if (!training_takes(&o->c, place, 3))
            continue;
        const char *more =
            place % 2 ? "train.global_batch=6 precision=bf16 " : "train.global_batch=6 ";
        char checkpoints[128];
        snprintf(checkpoints, sizeof checkpoints, "%s/at-%d", o->dir, place);
        struct config config = config_of(o, 0, more, -1);
        struct trained whole = train(o, &config), parts = {0};
        struct training how = {.tokens = o->tokens, .checkpoints = checkpoints, .to = 2};
        config = config_of(o, 0, more, place);
        training_run(&o->c, &config, &how, &parts);
        how.from = 2;
        how.to = STEPS;
        how.checkpoints = checkpoints;
        config = config_of(o, 0, more, PLACES - 1 - place);
        training_run(&o->c, &config, &how, &parts);
        CHECK(&o->c, !memcmp(&whole, &parts, sizeof whole));
    }
}

/* Evaluating between steps reads the parameters where they live, and changes nothing. */
static void test_evaluation(struct offloading *o)
{
    struct trained here = {0};
    char more[256];
    snprintf(more, sizeof more, "train.global_batch=6 data.valid=%s ", o->tokens);
    for (int place = -1; place < PLACES; place++) {
        if (place >= 0 && !training_takes(&o->c, place + 1, 3))
            continue;
        struct config config = config_of(o, 0, more, place);
        struct trained there = train(o, &config);
        if (place < 0)
            here = there;
        CHECK(&o->c, there.valid_loss > 0 && !memcmp(&here, &there, sizeof here));
    }
}

/* Also the bytes of all shards in the format that is computed with, kept or not. */
static size_t check_plan(struct offloading *o, const struct config *config,
                         size_t bytes[POOL_COUNT])
{
    size_t shards = 0;
    struct error err = {0};
    struct report report;
    struct session *s = NULL;
    struct mem idle = o->c.mem;
    struct log log = {.level = LOG_ERROR, .rank = world_rank(o->c.world)};
    struct report_request request = {
        .config = config, .ranks = world_size(o->c.world), .nodes = 1, .threads = 1};
    CHECK(&o->c, !report_make(&report, &request, &err));
    CHECK(&o->c, report.verified);
    if (!report.verified)
        fprintf(stderr, "%s\n", report.verdict.text);
    CHECK(&o->c, !session_open(&s, o->c.world, &log, &o->c.mem, config, SESSION_TRAIN, NULL, &err));
    const size_t *planned = report.rank[world_rank(o->c.world)].need.pool_bytes;
    for (int pool = 0; s && pool < POOL_COUNT; pool++)
        CHECK(&o->c, o->c.mem.now_bytes[pool] - idle.now_bytes[pool] == planned[pool]);
    memcpy(bytes, planned, sizeof report.rank[0].need.pool_bytes);
    for (int u = 0; s && u < s->units->count; u++) {
        size_t shard = (size_t)s->units->flat[u].shard_elems * dtype_bytes(s->layout.dtype);
        shards += (shard + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
    }
    session_close(s);
    report_free(&report);
    CHECK(&o->c, !memcmp(idle.now_bytes, o->c.mem.now_bytes, sizeof idle.now_bytes));
    return shards;
}

/* Bytes are where they were asked to be, and what is left in memory is a few units' worth.  Several
 * ranks keep parameters of 16 bits only where the masters are too far to make them of. */
static void test_plan(struct offloading *o)
{
    static const char more[] =
        "train.global_batch=8 train.micro_batch=1 precision=bf16 model.layers=24 ";
    size_t here[POOL_COUNT], bytes[POOL_COUNT];
    struct config config = config_of(o, 0, more, -1);
    size_t shards = check_plan(o, &config, here);
    int alone = world_size(o->c.world) == 1;
    CHECK(&o->c, !here[POOL_HOST] && !here[POOL_DISK]);
    CHECK(&o->c, here[POOL_PARAMS] == (alone ? shards : 0));
    for (int place = 0; place < PLACES; place++) {
        config = config_of(o, 0, more, place);
        check_plan(o, &config, bytes);
        enum config_offload_to optimizer = config.offload.optimizer, params = config.offload.params;
        enum config_offload_to gradients = config.offload.gradients;
        size_t host = (optimizer == OFFLOAD_HOST ? here[POOL_OPTIMIZER] : 0) +
                      (gradients == OFFLOAD_HOST ? here[POOL_GRADS] : 0) +
                      (params == OFFLOAD_HOST ? shards : 0);
        size_t disk = (optimizer == OFFLOAD_DISK ? here[POOL_OPTIMIZER] : 0) +
                      (gradients == OFFLOAD_DISK ? here[POOL_GRADS] : 0) +
                      (params == OFFLOAD_DISK ? shards : 0);
        size_t kept = !params && (alone || optimizer == OFFLOAD_DISK) ? shards : 0;
        CHECK(&o->c, bytes[POOL_DISK] == disk);
        CHECK(&o->c, bytes[POOL_OPTIMIZER] == (optimizer ? 0 : here[POOL_OPTIMIZER]));
        CHECK(&o->c, bytes[POOL_GRADS] == (gradients ? 0 : here[POOL_GRADS]));
        CHECK(&o->c, bytes[POOL_PARAMS] == kept);
        CHECK(&o->c, bytes[POOL_HOST] >= host);
        /* Three units of the 26 at most. */
        CHECK(&o->c, bytes[POOL_HOST] - host <= disk / 24 * 4);
    }
}

/* A step moves the bytes that were planned, and the file sees them. */
static void test_volume(struct offloading *o)
{
    for (int place = 0; place < PLACES; place++) {
        if (!training_takes(&o->c, place + 2, 3))
            continue;
        struct error err = {0};
        struct report report;
        struct session *s = NULL;
        struct batches batches;
        struct swap_use before, after;
        struct log log = {.level = LOG_ERROR, .rank = world_rank(o->c.world)};
        int rank = world_rank(o->c.world), ranks = world_size(o->c.world);
        struct config config = config_of(o, 0, "train.global_batch=12 train.micro_batch=1 ", place);
        struct report_request request = {
            .config = &config, .ranks = ranks, .nodes = 1, .threads = 1};
        CHECK(&o->c, !report_make(&report, &request, &err));
        CHECK(&o->c,
              !session_open(&s, o->c.world, &log, &o->c.mem, &config, SESSION_TRAIN, NULL, &err));
        CHECK(&o->c, !batches_open(&batches, s, o->tokens, LOADER_SHUFFLED, &err));
        rig_init(s);
        executor_measure(s->executor, &before);
        for (int step = 1; step <= STEPS; step++) {
            struct step_input input = rig_input(s, step);
            input.load = batches_load;
            input.user = &batches;
            CHECK(&o->c, !executor_run_step(s->executor, s->train, &input, NULL, NULL, &err));
            training_check_volume(&o->c, s, &report.rank[rank]);
        }
        executor_measure(s->executor, &after);
        const int64_t *moved_bytes = report.rank[rank].moved_bytes;
        int64_t read_bytes = after.bytes[SWAP_READ] - before.bytes[SWAP_READ];
        int64_t written_bytes = after.bytes[SWAP_WRITE] - before.bytes[SWAP_WRITE];
        CHECK(&o->c, read_bytes == STEPS * moved_bytes[STREAM_READ]);
        CHECK(&o->c, written_bytes == STEPS * moved_bytes[STREAM_WRITE]);
        CHECK(&o->c, (written_bytes > 0) == !!strstr(places[place], "disk"));
        batches_close(&batches);
        session_close(s);
        report_free(&report);
    }
}

/* A session that must not open, on any rank, for a reason that says all of these words. */
static void check_refused(struct offloading *o, const char *settings, const char *first,
                          const char *second)
{
    struct error err = {0};
    struct session *s = NULL;
    struct memory_limits limits = {0};
    struct log log = {.level = LOG_ERROR, .rank = world_rank(o->c.world)};
    char text[1024];
    snprintf(text, sizeof text, "%strain.global_batch=4 %s", MODEL, settings);
    struct config config = rig_config(text);
    memcpy(o->c.mem.peak_bytes, o->c.mem.now_bytes, sizeof o->c.mem.now_bytes);
    struct mem idle = o->c.mem;
    CHECK(&o->c,
          session_open(&s, o->c.world, &log, &o->c.mem, &config, SESSION_TRAIN, &limits, &err));
    CHECK(&o->c, limits.no_disk && limits.host_bytes && !limits.device_bytes);
    if (!strstr(err.text, first) || !strstr(err.text, second))
        fprintf(stderr, "rank %d: got \"%s\"\n", world_rank(o->c.world), err.text);
    CHECK(&o->c, strstr(err.text, first) && strstr(err.text, second));
    CHECK(&o->c, !memcmp(&idle, &o->c.mem, sizeof idle)); /* nothing was ever allocated */
}

/* /proc and /dev/full refuse root too; a limit on file sizes stands for a full disk. */
static void test_refusals(struct offloading *o)
{
    char text[256];
    struct rlimit before, small;
    check_refused(o, "offload.optimizer=disk offload.path=/proc/trireme", "offload.path",
                  "/proc/trireme");
    snprintf(text, sizeof text, "offload.params=disk offload.path=%s/tokens.h5/in", o->dir);
    check_refused(o, text, "offload.path", "tokens.h5");
    check_refused(o, "offload.gradients=disk offload.path=/proc/trireme", "offload.path",
                  "/proc/trireme");
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 5000;
    signal(SIGXFSZ, SIG_IGN);
    world_barrier(o->c.world);
    setrlimit(RLIMIT_FSIZE, &small);
    snprintf(text, sizeof text, "offload.optimizer=disk offload.path=%s", o->dir);
    check_refused(o, text, "offload.path", "ulimit");
    setrlimit(RLIMIT_FSIZE, &before);
}

int main(void)
{
    struct offloading o = {0};
    if (checks_start(&o.c))
        return 1;
    training_data(&o.c, o.dir, 101);
    snprintf(o.tokens, sizeof o.tokens, "%s/tokens.h5", o.dir);
    test_places(&o);
    test_skips(&o);
    test_resume(&o);
    test_evaluation(&o);
    test_plan(&o);
    test_volume(&o);
    test_refusals(&o);
    world_barrier(o.c.world);
    if (!world_rank(o.c.world)) {
        printf("# %d ranks: %d offloaded runs are the bits of those that are not\n",
               world_size(o.c.world), o.cases);
        CHECK(&o.c, !disk_remove(o.dir, NULL));
    }
    return checks_finish(&o.c);
}
