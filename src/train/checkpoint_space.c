/* checkpoint_space.c - see checkpoint_space.h; how many there will be is in
 * plan/checkpoint_size.c. */
#include "train/checkpoint_space.h"

#include "io/checkpoint.h"
#include "io/disk.h"
#include "plan/checkpoint_size.h"
#include "train/weights.h"

static int judge(const struct session *s, const char *dir, int64_t done, int64_t there, double each,
                 struct error *err)
{
    const struct config *c = &s->config;
    char text[3][DISK_SIZE];
    double free_bytes;
    if (disk_free(dir, &free_bytes, err))
        return -1;
    int64_t count = checkpoint_size_count_of_run(c, done, c->train.steps, there);
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
    double each = checkpoint_disk_bytes(pieces, count);
    weights_pieces_free(pieces, count);
    world_all_reduce(s->world, &each, 1, WORLD_SUM);
    int rc = world_rank(s->world) ? 0 : judge(s, dir, done, there, each, err);
    return world_agree(s->world, rc, err);
}
