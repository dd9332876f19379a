/* test_loading_node.c - model.loading=node: one rank of the node reads, and all have the bits that
 * they have when each reads; each byte of the files is read once; a read that fails ends on all
 * ranks, in one line.
 *
 * pread() is this program's: it counts each byte of each file of weights, and fails when asked to.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/disk.h"
#include "tests/mpi/check.h"
#include "tests/unit/hf_folder.h"
#include "tests/unit/rig.h"
#include "train/run_checkpoint.h"
#include "train/weights.h"

/* ---- pread() ---- */

enum { FILES = 8 };

enum failing { FAIL_NOT, FAIL_ERROR, FAIL_END };

static struct {
    ino_t file[FILES];
    off_t size[FILES];
    unsigned char *read[FILES]; /* of each byte, how often */
    int files;
    enum failing failing; /* what becomes of reads at this place and behind it */
    off_t from;
} reads;

/* The number of a file of weights, or -1: another. */
static int number_of(int fd)
{
    char link[64], to[512];
    struct stat stat;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, to, sizeof to - 1);
    if (length < 12 || memcmp(to + length - 12, ".safetensors", 12) != 0 || fstat(fd, &stat))
        return -1;
    for (int f = 0; f < reads.files; f++)
        if (reads.file[f] == stat.st_ino)
            return f;
    if (reads.files == FILES)
        return -1;
    reads.file[reads.files] = stat.st_ino;
    reads.size[reads.files] = stat.st_size;
    reads.read[reads.files] = calloc((size_t)stat.st_size, 1);
    return reads.files++;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
    int f = number_of(fd);
    if (f >= 0 && reads.failing && at >= reads.from) {
        errno = EIO;
        return reads.failing == FAIL_ERROR ? -1 : 0;
    }
    ssize_t got = syscall(SYS_pread64, fd, to, bytes, at);
    for (ssize_t i = 0; f >= 0 && i < got; i++)
        reads.read[f][at + i] += reads.read[f][at + i] < 255;
    return got;
}

static void forget_reads(void)
{
    for (int f = 0; f < reads.files; f++)
        free(reads.read[f]);
    memset(&reads, 0, sizeof reads);
}

/* Bytes that were read, and the most often that one was. */
static int64_t count_reads(int *most)
{
    int64_t bytes = 0;
    *most = 0;
    for (int f = 0; f < reads.files; f++)
        for (off_t i = 0; i < reads.size[f]; i++) {
            bytes += reads.read[f][i] != 0;
            *most = reads.read[f][i] > *most ? reads.read[f][i] : *most;
        }
    return bytes;
}

/* ---- layouts ---- */

#define LLAMA                                                                                     \
    "model.layers=2 model.hidden=36 model.heads=6 model.kv_heads=2 model.ffn=61 model.vocab=101 " \
    "model.qk_norm=true "
#define GPT2                                                                        \
    "model.family=gpt2 model.layers=2 model.hidden=36 model.heads=6 model.ffn=144 " \
    "model.vocab=101 model.max_seq_len=16 model.tie_embeddings=true "
/* Experts, of which each matrix is a tensor of the files. */
#define EXPERTS                                                                                   \
    "model.layers=2 model.hidden=36 model.heads=6 model.kv_heads=2 model.ffn=30 model.vocab=101 " \
    "model.experts=5 "
/* A tensor of several chunks. */
#define LARGE "model.layers=1 model.hidden=96 model.heads=6 model.ffn=90 model.vocab=7001 "
#define ALL   "data.seq_len=16 train.global_batch=4 run.threads=1 device=cpu "

static const struct {
    int ranks;
    const char *settings;
    enum dtype dtype;
} layouts[] = {
    {1, LLAMA, DTYPE_BF16},
    {1, GPT2 "precision=bf16", DTYPE_F32},
    {1, LARGE, DTYPE_F32},
    {1, EXPERTS "model.qk_norm=true", DTYPE_F32},
    {2, EXPERTS "parallel.tensor=2", DTYPE_BF16},
    {3, EXPERTS "parallel.strategy=FULL_SHARD precision=bf16_pure", DTYPE_BF16},
    {3, EXPERTS "parallel.tensor=3 model.qk_norm=true", DTYPE_F16},
    {4, EXPERTS "parallel.tensor=2 parallel.strategy=FULL_SHARD", DTYPE_F32},
    {2, LLAMA "parallel.strategy=NO_SHARD", DTYPE_F32},
    {2, LLAMA "parallel.strategy=SHARD_GRAD_OP precision=bf16_pure", DTYPE_BF16},
    {2, LLAMA "parallel.tensor=2", DTYPE_F16},
    {2, LLAMA "parallel.pipeline=2 model.tie_embeddings=true", DTYPE_F32},
    {2, GPT2 "parallel.strategy=FULL_SHARD", DTYPE_BF16},
    {2, LLAMA "parallel.strategy=FULL_SHARD train.optimizer=muon", DTYPE_F32},
    {2, LARGE "parallel.strategy=NO_SHARD", DTYPE_BF16},
    {3, LLAMA "parallel.strategy=FULL_SHARD train.freeze=layers.*.attn.o", DTYPE_BF16},
    {3, LLAMA "parallel.tensor=3", DTYPE_F32},
    {3, GPT2 "parallel.tensor=3", DTYPE_F32},
    {3, GPT2 "parallel.strategy=FULL_SHARD", DTYPE_F32},
    {3, LARGE "parallel.strategy=FULL_SHARD", DTYPE_F32},
    {3, LLAMA "parallel.strategy=NO_SHARD lora.r=3", DTYPE_F32},
    {4, LLAMA "parallel.strategy=HYBRID_SHARD parallel.shard=2 precision=bf16", DTYPE_BF16},
    {4, LLAMA "parallel.tensor=2 parallel.strategy=NO_SHARD", DTYPE_F32},
    {4, LLAMA "parallel.pipeline=2 parallel.schedule=zb_v model.tie_embeddings=true", DTYPE_F32},
    {4, GPT2 "parallel.tensor=2 parallel.strategy=FULL_SHARD", DTYPE_F16},
    {4, GPT2 "parallel.pipeline=2 parallel.strategy=NO_SHARD", DTYPE_BF16},
    {4, LARGE "parallel.tensor=2 parallel.strategy=NO_SHARD", DTYPE_F32},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static double sum(struct checks *c, double value)
{
    world_all_reduce(c->world, &value, 1, WORLD_SUM);
    return value;
}

/* All ranks load; a hash of what this one has then. */
static uint64_t load(struct checks *c, struct session *s, enum config_loading loading)
{
    struct error err = {0};
    s->config.model_loading = loading;
    CHECK(c, !weights_init(s, &err));
    forget_reads();
    CHECK(c, !world_agree(s->world, weights_import(s, &err), &err));
    if (err.text[0] && !world_rank(s->world))
        fprintf(stderr, "%s\n", err.text);
    return rig_hash(s);
}

/* Loading with a read that fails at this place, or ends there. */
static void check_failing(struct checks *c, struct session *s, enum failing how, off_t from)
{
    struct error err = {0};
    forget_reads();
    reads.failing = how;
    reads.from = from;
    CHECK(c, world_agree(s->world, weights_import(s, &err), &err));
    CHECK(c, strstr(err.text, "/model"));
    CHECK(c, strstr(err.text, ".safetensors"));
    CHECK(c, !strchr(err.text, '\n'));
    reads.failing = FAIL_NOT;
}

static void check_layout(struct checks *c, int i, const char *dir)
{
    struct error err = {0};
    struct session *s = NULL;
    char text[1024];
    int most, rank = world_rank(c->world);
    snprintf(text, sizeof text, ALL "%s", layouts[i].settings);
    struct config config = rig_config(text);
    struct log log = {.level = LOG_ERROR, .rank = rank};
    snprintf(config.model_path, sizeof config.model_path, "%s/%d", dir, i);
    int rc = rank ? 0 : hf_folder_write(&config, layouts[i].dtype, 150000, config.model_path, &err);
    CHECK(c, !world_agree(c->world, rc, &err));
    if (session_open(&s, c->world, &log, &c->mem, &config, SESSION_TRAIN, NULL, &err)) {
        fprintf(stderr, "%s: %s\n", layouts[i].settings, err.text);
        CHECK(c, 0);
        return;
    }
    uint64_t each = load(c, s, LOADING_EACH);
    double bytes_each = (double)count_reads(&most), bytes = 0;
    CHECK(c, bytes_each > 0);
    CHECK(c, load(c, s, LOADING_NODE) == each);
    for (int f = 0; f < reads.files; f++)
        bytes += (double)reads.size[f];
    CHECK(c, rank || (double)count_reads(&most) == bytes);
    CHECK(c, rank ? !reads.files : most == 1);
    CHECK(c, sum(c, bytes_each) >= sum(c, bytes));
    /* behind the headers, in the first file and in the last one */
    check_failing(c, s, FAIL_ERROR, 6000);
    check_failing(c, s, FAIL_END, 40000);
    CHECK(c, load(c, s, LOADING_NODE) == each);
    if (!strstr(text, "lora")) {
        CHECK(c, !run_checkpoint_write(s, config.model_path, (struct run_position){.step = 7},
                                       &(struct run_origin){0}, &err));
        snprintf(s->config.model_path, sizeof config.model_path, "%.400s/step-00000007",
                 config.model_path);
        CHECK(c, load(c, s, LOADING_NODE) == each);
    }
    session_close(s);
    forget_reads();
}

static void check_absent(struct checks *c, const char *dir)
{
    struct error err = {0};
    struct session *s = NULL;
    struct config config = rig_config(LLAMA ALL);
    struct log log = {.level = LOG_ERROR, .rank = world_rank(c->world)};
    snprintf(config.model_path, sizeof config.model_path, "%s/absent", dir);
    config.model_loading = LOADING_NODE;
    CHECK(c, !session_open(&s, c->world, &log, &c->mem, &config, SESSION_TRAIN, NULL, &err));
    CHECK(c, world_agree(c->world, weights_import(s, &err), &err));
    CHECK(c, strstr(err.text, "absent has no config.json"));
    session_close(s);
}

int main(void)
{
    struct checks c = {0};
    char dir[64] = "/tmp/trireme-loading-XXXXXX";
    if (checks_start(&c))
        return 1;
    if (!world_rank(c.world) && !mkdtemp(dir))
        dir[0] = 0;
    world_broadcast(c.world, dir, sizeof dir, 0);
    for (int i = 0; i < LAYOUTS; i++)
        if (layouts[i].ranks == world_size(c.world))
            check_layout(&c, i, dir);
    check_absent(&c, dir);
    world_barrier(c.world);
    if (!world_rank(c.world))
        CHECK(&c, !disk_remove(dir, NULL));
    return checks_finish(&c);
}
