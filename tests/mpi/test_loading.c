/* test_loading.c - memory for loading: a rank's peak while it reads its part of a folder, or of a
 * checkpoint, is not above what it keeps by more than one unit in fp32, of a model of 26 units and
 * embeddings.
 *
 * The peak is the kernel's (VmHWM), reset before the loading begins; that it sees what is taken for
 * a moment is tested too. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"
#include "tests/mpi/check.h"
#include "tests/unit/hf_folder.h"
#include "tests/unit/rig.h"
#include "train/run_checkpoint.h"
#include "train/weights.h"

#define MODEL                                                                                  \
    "model.layers=26 model.hidden=256 model.heads=4 model.ffn=768 model.vocab=512 "            \
    "model.tie_embeddings=true data.seq_len=16 train.global_batch=4 run.threads=1 device=cpu " \
    "parallel.strategy=FULL_SHARD "

/* Of malloc() and of tables; and of buffers of a few MB, of whatever model, through which go a
 * checkpoint's numbers, and those that one rank reads for others. */
static const int64_t slack_bytes = 1 << 20, buffers_bytes = 3 << 20;

/* A line of /proc/self/status, in bytes; -1: there is none. */
static int64_t status_bytes(const char *key)
{
    char line[256];
    long long kib = -1;
    FILE *in = fopen("/proc/self/status", "r");
    while (in && fgets(line, sizeof line, in))
        if (!strncmp(line, key, strlen(key)))
            kib = atoll(line + strlen(key));
    if (in)
        fclose(in);
    return kib < 0 ? -1 : (int64_t)kib * 1024;
}

#ifdef __SANITIZE_ADDRESS__
enum { FREED_STAYS = 1 }; /* the sanitizer keeps blocks after free() */
#else
enum { FREED_STAYS = 0 };
#endif

/* The peak becomes what there is now, without what malloc() keeps for later; -1 where the kernel
 * does not do that, or what was freed counts. */
static int reset_peak(void)
{
    malloc_trim(0);
    if (FREED_STAYS)
        return -1;
    FILE *out = fopen("/proc/self/clear_refs", "w");
    int rc = out && fputs("5", out) >= 0 ? 0 : -1;
    if (out && fclose(out))
        rc = -1;
    return rc || status_bytes("VmHWM:") > status_bytes("VmRSS:") + slack_bytes ? -1 : 0;
}

/* ---- loading ---- */

static int64_t unit_bytes(const struct session *s)
{
    int64_t most = 0;
    for (int f = 0; f < s->units->flats; f++)
        if (s->units->flat[f].elems > most && strstr(s->units->flat[f].tensor[0].name, "layers."))
            most = s->units->flat[f].elems;
    return most * (int64_t)sizeof(float);
}

/* Load what path has into a state that has been touched; the peak above it is at most `most`. */
static void check_loading(struct checks *c, struct session *s, const char *path, int64_t most)
{
    struct error err = {0};
    snprintf(s->config.model_path, sizeof s->config.model_path, "%s", path);
    CHECK(c, !weights_init(s, &err));
    int is_measured = !reset_peak();
    int64_t before = status_bytes("VmRSS:");
    CHECK(c, !world_agree(s->world, weights_import(s, &err), &err));
    if (!is_measured) {
        printf("# skipped: a process's peak of memory is not reset here\n");
        return;
    }
    int64_t above = status_bytes("VmHWM:") - before;
    CHECK(c, above <= most);
    if (world_rank(s->world) == 0)
        printf("# %d ranks: %.2f MB above the state, a unit is %.2f MB, the model %.1f MB\n",
               world_size(s->world), (double)above / 1e6, (double)unit_bytes(s) / 1e6,
               (double)model_params(s->model) * 4 / 1e6);
    char *more = malloc((size_t)(4 * unit_bytes(s)));
    memset(more, 1, (size_t)(4 * unit_bytes(s)));
    CHECK(c, more[unit_bytes(s)] == 1);
    free(more);
    CHECK(c, status_bytes("VmHWM:") - before > most);
}

int main(void)
{
    struct checks c = {0};
    struct error err = {0};
    struct session *s = NULL;
    char dir[64] = "/tmp/trireme-loading-XXXXXX", path[128];
    if (checks_start(&c))
        return 1;
    struct config config = rig_config(MODEL);
    struct log log = {.level = LOG_ERROR, .rank = world_rank(c.world)};
    if (!world_rank(c.world) && !mkdtemp(dir))
        dir[0] = 0;
    world_broadcast(c.world, dir, sizeof dir, 0);
    snprintf(path, sizeof path, "%s/hf", dir);
    int rc = world_rank(c.world)
                 ? 0
                 : hf_folder_write(&config, DTYPE_BF16, INT64_C(1) << 25, path, &err);
    CHECK(&c, !world_agree(c.world, rc, &err));
    CHECK(&c, !session_open(&s, c.world, &log, &c.mem, &config, SESSION_TRAIN, NULL, &err));
    check_loading(&c, s, path, unit_bytes(s) + slack_bytes);
    s->config.model_loading = LOADING_NODE;
    check_loading(&c, s, path, unit_bytes(s) + slack_bytes + buffers_bytes);
    CHECK(&c, !run_checkpoint_write(s, dir, (struct run_position){.step = 7},
                                    &(struct run_origin){0}, &err));
    snprintf(path, sizeof path, "%s/step-00000007", dir);
    check_loading(&c, s, path, unit_bytes(s) + slack_bytes + 2 * buffers_bytes);
    s->config.model_loading = LOADING_EACH;
    check_loading(&c, s, path, unit_bytes(s) + slack_bytes + buffers_bytes);
    session_close(s);
    world_barrier(c.world);
    if (!world_rank(c.world))
        CHECK(&c, !disk_remove(dir, NULL));
    return checks_finish(&c);
}
