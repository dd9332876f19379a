/* checkpoint_space.c - see checkpoint_space.h.
 *
 * With checkpoint.keep=2 four may lie there at once, while the newest is written: pruning spares,
 * beside the two newest, the one after which the training loss was lowest:
 *
 *     step-10 (lowest loss)   step-30   step-40   step-50.partial
 *
 * Those of earlier starts take their space already. */
#include "train/checkpoint_space.h"

#include "base/round.h"
#include "io/checkpoint.h"
#include "io/disk.h"
#include "train/weights.h"

int64_t checkpoint_space_count(int64_t done, int64_t steps, int64_t every, int64_t keep,
                               int64_t there)
{
    if (done >= steps)
        return 0;
    int64_t saves = every ? (steps - 1) / every - done / every + 1 : 1;
    return there > keep ? 1 : min_i64(saves, keep + 1 - there);
}

static int judge(const struct session *s, const char *dir, int64_t done, int64_t there, double each,
                 struct error *err)
{
    const struct config *c = &s->config;
    char text[3][DISK_SIZE];
    double free_bytes;
    if (disk_free(dir, &free_bytes, err))
        return -1;
    int64_t every = c->checkpoint.every, evaluated = c->train.eval_every;
    if (c->checkpoint.keep_best && evaluated && (!every || evaluated < every))
        every = evaluated; /* each evaluation may be the best */
    int64_t spared =
        1 + c->checkpoint.keep_best; /* of the lowest losses, training and data.valid */
    int64_t count =
        checkpoint_space_count(done, c->train.steps, every, c->checkpoint.keep + spared, there);
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
