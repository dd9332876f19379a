/* checkpoint_space.c - see checkpoint_space.h; how many there will be is in
 * plan/checkpoint_size.c. */
#include "train/checkpoint_space.h"

#include "io/checkpoint.h"
#include "io/disk.h"
#include "plan/checkpoint_size.h"
#include "train/weights.h"

/* Can this rank write its file of a checkpoint, of `bytes`?  A shell's limit is passed on by
 * launchers; launch_prepare() has raised it as far as it may be. */
static int check_limit(const char *dir, double bytes, struct error *err)
{
    double limit;
    char text[2][DISK_SIZE];
    if (disk_allows_file(bytes, &limit))
        return 0;
    return error_set(err,
                     "%s: a rank's file of a checkpoint takes %s, and files may have %s here: its "
                     "work could not be saved; raise the limit where the job is started (ulimit -f "
                     "unlimited), or start more ranks, which share the state",
                     dir, disk_size(bytes, text[0]), disk_size(limit, text[1]));
}

/* Can the files of one checkpoint be made: its folder, a shard of each rank, index.h5, meta.json
 * and COMMIT; and those of the run, which a new one makes afterwards? */
static int judge_files(const struct session *s, const char *dir, struct error *err)
{
    enum { OF_CHECKPOINT = 4, OF_RUN = 4 };
    int64_t free_files, files = world_size(s->world) + OF_CHECKPOINT + OF_RUN;
    if (disk_free_files(dir, &free_files, err))
        return -1;
    if (free_files < 0 || free_files >= files)
        return 0;
    error_set(err,
              "%s: a checkpoint and what else the run writes are %lld files and folders, and %lld "
              "more (inodes) can "
              "be made there: its work could not be saved; delete some, or name another run.dir",
              dir, (long long)files, (long long)free_files);
    err->code = EXIT_NODE;
    return -1;
}

static int judge(const struct session *s, const char *dir, int64_t count, double each,
                 struct error *err)
{
    const struct config *c = &s->config;
    char text[3][DISK_SIZE];
    double free_bytes;
    if (disk_free(dir, &free_bytes, err))
        return -1;
    double all = each * (double)count;
    if (count && free_bytes < each) {
        error_set(err,
                  "%s: a checkpoint of this run takes %s and %s are free, short by %s: its work "
                  "could not be saved; free some disk space, or name another run.dir",
                  dir, disk_size(each, text[0]), disk_size(free_bytes, text[1]),
                  disk_size(each - free_bytes, text[2]));
        err->code = EXIT_NODE;
        return -1;
    }
    if (count && judge_files(s, dir, err))
        return -1;
    if (free_bytes < all)
        log_warn(s->log,
                 "%s: %lld more checkpoints of %s may be there at once (checkpoint.keep=%lld, one "
                 "that is written, and that of the lowest loss), and %s are free: later ones may "
                 "not be saved",
                 dir, (long long)count, disk_size(each, text[0]), (long long)c->checkpoint.keep,
                 disk_size(free_bytes, text[1]));
    return 0;
}

int checkpoint_space_check(struct session *s, const char *dir, int64_t done, int64_t there,
                           struct error *err)
{
    struct checkpoint_piece *pieces;
    int count = weights_pieces(s, weights_choose_saved(s), &pieces);
    double each = checkpoint_disk_bytes(pieces, count), own = each;
    weights_pieces_free(pieces, count);
    int64_t more = checkpoint_size_more_of_run(&s->config, done, s->config.train.steps, there);
    world_broadcast(s->world, &more, sizeof more, 0);
    world_all_reduce(s->world, &each, 1, WORLD_SUM);
    int rc = more ? check_limit(dir, own, err) : 0;
    if (world_agree(s->world, rc, err))
        return -1;
    rc = world_rank(s->world) ? 0 : judge(s, dir, more, each, err);
    return world_agree(s->world, rc, err);
}
