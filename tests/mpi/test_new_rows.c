/* test_new_rows.c - a vocabulary larger than that of the model's folder: rows that the files have
 * are read, and each further one of the embedding and the head is the mean of these, on any layout.
 * An embedding or a head with fewer rows than the folder's config.json says is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"
#include "io/safetensors.h"
#include "tests/mpi/check.h"
#include "tests/unit/hf_folder.h"
#include "tests/unit/rig.h"
#include "train/run_checkpoint.h"
#include "train/weights.h"

enum { SHORT = 41, STORED = 61, ROWS = 90, WIDTH = 24 };

#define MODEL                                                                   \
    "model.layers=2 model.hidden=24 model.heads=2 model.ffn=40 data.seq_len=8 " \
    "train.global_batch=4 run.threads=1 device=cpu precision=fp32 "

static const char *const settings[] = {"parallel.strategy=NO_SHARD", "parallel.strategy=FULL_SHARD",
                                       "parallel.strategy=FULL_SHARD parallel.tensor=2",
                                       "model.tie_embeddings=true"};

/* Compare a matrix of the checkpoint with that of the files. */
static void check_matrix(struct checks *c, struct checkpoint *checkpoint, const char *own,
                         const struct safetensors *st, const char *stored)
{
    struct error err = {0};
    static float got[ROWS * WIDTH], want[STORED * WIDTH];
    const struct safetensors_tensor *tensor = safetensors_find(st, stored);
    struct checkpoint_piece piece =
        checkpoint_tensor(checkpoint, checkpoint_find_tensor(checkpoint, own));
    CHECK(c, tensor && piece.dims[0] == ROWS && piece.dims[1] == WIDTH);
    piece.data = got;
    CHECK(c, !checkpoint_load(checkpoint, &piece, 1, &err));
    CHECK(c, tensor && !safetensors_read(st, tensor, 0, STORED * WIDTH, want, &err));
    CHECK(c, !memcmp(got, want, sizeof want));
    for (int column = 0; column < WIDTH; column++) {
        double mean = 0;
        for (int row = 0; row < STORED; row++)
            mean += want[row * WIDTH + column];
        mean /= STORED;
        CHECK(c, fabs(mean) > 1e-6);
        for (int row = STORED; row < ROWS; row++)
            CHECK(c, fabs(got[row * WIDTH + column] - mean) <= 1e-7 * fabs(mean));
    }
}

/* Save what was imported from path, and look at it. */
static void check_import(struct checks *c, struct session *s, const char *dir, const char *path)
{
    struct error err = {0};
    struct checkpoint *checkpoint = NULL;
    struct safetensors *st = NULL;
    char saved[160];
    CHECK(c, !world_agree(c->world, weights_import(s, &err), &err));
    CHECK(c, !run_checkpoint_write(s, dir, (struct run_position){.step = 1},
                                   &(struct run_origin){0}, &err));
    snprintf(saved, sizeof saved, "%s/step-00000001", dir);
    if (world_rank(c->world))
        return;
    CHECK(c, !checkpoint_open(&checkpoint, saved, &err) && !safetensors_open(&st, path, &err));
    if (checkpoint && st) {
        check_matrix(c, checkpoint, "model/embed", st, "model.embed_tokens.weight");
        if (!s->config.model.tie_embeddings)
            check_matrix(c, checkpoint, "model/head", st, "lm_head.weight");
    }
    checkpoint_close(checkpoint);
    safetensors_close(st);
}

static void check_setting(struct checks *c, const char *dir, const char *setting, int number)
{
    struct error err = {0};
    struct session *s = NULL;
    struct log log = {.level = LOG_ERROR, .rank = world_rank(c->world)};
    char text[512], path[128];
    snprintf(path, sizeof path, "%s/hf%d", dir, number);
    snprintf(text, sizeof text, MODEL "model.vocab=%d %s", STORED, setting);
    struct config small = rig_config(text);
    snprintf(text, sizeof text, MODEL "model.vocab=%d %s", ROWS, setting);
    struct config config = rig_config(text);
    int rc = world_rank(c->world)
                 ? 0
                 : hf_folder_write(&small, DTYPE_BF16, INT64_C(1) << 25, path, &err);
    CHECK(c, !world_agree(c->world, rc, &err));
    CHECK(c, !session_open(&s, c->world, &log, &c->mem, &config, SESSION_TRAIN, NULL, &err));
    if (!s)
        return;
    snprintf(s->config.model_path, sizeof s->config.model_path, "%s", path);
    check_import(c, s, dir, path);
    s->config.model_loading = LOADING_NODE;
    CHECK(c, world_agree(c->world, weights_import(s, &err), &err) &&
                 strstr(err.text, "leave model.loading at each"));
    session_close(s);
    world_barrier(c->world);
}

/* Write a model of `rows` rows to path, each tensor to a file of its own. */
static void write_rows(struct checks *c, int rows, const char *path)
{
    struct error err = {0};
    char text[512];
    snprintf(text, sizeof text, MODEL "model.vocab=%d", rows);
    struct config config = rig_config(text);
    CHECK(c, !hf_folder_write(&config, DTYPE_BF16, 1, path, &err));
}

/* Import a model whose tensor `stored` has SHORT rows, and whose config.json says STORED. */
static void check_short(struct checks *c, const char *dir, const char *stored, int64_t vocab)
{
    struct error err = {0};
    struct session *s = NULL;
    struct safetensors *st = NULL;
    struct log log = {.level = LOG_ERROR, .rank = world_rank(c->world)};
    char text[512], path[128], other[128], want[128];
    snprintf(path, sizeof path, "%s/model", dir);
    snprintf(other, sizeof other, "%s/short", dir);
    snprintf(text, sizeof text, MODEL "model.vocab=%lld", (long long)vocab);
    struct config config = rig_config(text);
    CHECK(c, !session_open(&s, c->world, &log, &c->mem, &config, SESSION_TRAIN, NULL, &err));
    if (s && !world_rank(c->world)) {
        write_rows(c, STORED, path);
        write_rows(c, SHORT, other);
        CHECK(c, !safetensors_open(&st, other, &err));
        const struct safetensors_tensor *tensor = st ? safetensors_find(st, stored) : NULL;
        const char *from = tensor ? st->file[tensor->file] : "";
        snprintf(text, sizeof text, "%s%s", path, from + strlen(other));
        CHECK(c, tensor && !disk_copy(from, text, &err));
        safetensors_close(st);
        snprintf(s->config.model_path, sizeof s->config.model_path, "%s", path);
        snprintf(want, sizeof want,
                 "tensor \"%s\" has another shape than the %lld x %d of the model", stored,
                 (long long)vocab, WIDTH);
        CHECK(c, weights_import_check(s, &err) && strstr(err.text, want));
        CHECK(c, !disk_remove(path, NULL) && !disk_remove(other, NULL));
    }
    session_close(s);
    world_barrier(c->world);
}

int main(void)
{
    struct checks c = {0};
    char dir[64] = "/tmp/trireme-rows-XXXXXX";
    if (checks_start(&c))
        return 1;
    if (!world_rank(c.world) && !mkdtemp(dir))
        dir[0] = 0;
    world_broadcast(c.world, dir, sizeof dir, 0);
    for (int i = 0; i < 4; i++)
        if (i != 2 || world_size(c.world) % 2 == 0)
            check_setting(&c, dir, settings[i], i);
    for (int i = 0; i < 4; i++)
        check_short(&c, dir, i % 2 ? "lm_head.weight" : "model.embed_tokens.weight",
                    i < 2 ? STORED : ROWS);
    if (!world_rank(c.world))
        CHECK(&c, !disk_remove(dir, NULL));
    return checks_finish(&c);
}
