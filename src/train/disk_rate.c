/* disk_rate.c - see disk_rate.h.
 *
 * The first steps are looked at in windows of a few: the first step of all, which warms up, is left
 * out, and so are windows with an evaluation or a checkpoint between their steps. */
#include "train/disk_rate.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"

enum { WINDOW = 4, LAST = 64, HOST = 64 };

/* On the CPU waiting is known.  A GPU waits while its host does other things: there the disk is too
 * slow when it hardly ever rests. */
static const double much_waiting = 0.3, much_work = 0.9;

/* What a rank has seen, per step. */
struct seen {
    double wall_s, step_s, busy_s, waited_s, bytes[SWAP_QUEUES];
    char host[HOST];
};

static struct seen look(const struct disk_rate *rate, const struct session *s, int64_t now_ns,
                        const struct swap_use *use)
{
    struct seen seen = {
        .wall_s = (double)(now_ns - rate->begin_ns) / 1e9 / WINDOW,
        .step_s = rate->steps_s / WINDOW,
        .busy_s = (double)(use->busy_ns - rate->use.busy_ns) / 1e9 / WINDOW,
        .waited_s = (double)(use->waited_ns - rate->use.waited_ns) / 1e9 / WINDOW,
    };
    for (int lane = 0; lane < SWAP_QUEUES; lane++)
        seen.bytes[lane] = (double)(use->bytes[lane] - rate->use.bytes[lane]) / WINDOW;
    snprintf(seen.host, sizeof seen.host, "%s", world_host(s->world));
    return seen;
}

static double lost_s(const struct session *s, const struct seen *seen)
{
    return s->device->asynchronous ? seen->busy_s : seen->waited_s;
}

static int is_slow(const struct session *s, const struct seen *seen)
{
    double much = s->device->asynchronous ? much_work : much_waiting;
    int undisturbed = seen->wall_s < 1.1 * seen->step_s;
    return undisturbed && lost_s(s, seen) > much * seen->step_s;
}

static void warn_slow(const struct session *s, int rank, const struct seen *seen)
{
    char folder[CONFIG_TEXT + 16];
    double read = seen->bytes[SWAP_READ], written = seen->bytes[SWAP_WRITE];
    layout_swap_folder(&s->config, folder);
    log_warn(s->log,
             "the disk is slower than the steps: of %.3g s a step, rank %d (%s) %s for %.3g s "
             "(offload.path, %s: %.4g MB read and %.4g MB written a step, at %.3g GB/s); a faster "
             "disk, or host in place of disk, or a larger train.global_batch and "
             "train.micro_batch, which need the same bytes for more tokens, would help",
             seen->step_s, rank, seen->host, s->device->asynchronous ? "reads and writes" : "waits",
             lost_s(s, seen), folder, read / 1e6, written / 1e6,
             (read + written) / seen->busy_s / 1e9);
}

/* Rank 0 speaks of the slowest. */
static void judge(struct disk_rate *rate, const struct session *s, const struct seen *mine)
{
    int slowest = -1, ranks = world_size(s->world);
    struct seen *seen = array_make((size_t)ranks, sizeof *seen);
    world_all_gather(s->world, seen, mine, sizeof *mine);
    for (int r = 0; r < ranks; r++)
        if (is_slow(s, &seen[r]) &&
            (slowest < 0 || lost_s(s, &seen[r]) > lost_s(s, &seen[slowest])))
            slowest = r;
    if (slowest >= 0 && !rate->warned++ && !world_rank(s->world))
        warn_slow(s, slowest, &seen[slowest]);
    free(seen);
}

void disk_rate_step(struct disk_rate *rate, const struct session *s, double step_ms)
{
    const struct config_offload *offload = &s->config.offload;
    struct swap_use use;
    rate->steps++;
    rate->steps_s += step_ms / 1e3;
    if ((offload->optimizer != OFFLOAD_DISK && offload->params != OFFLOAD_DISK &&
         offload->gradients != OFFLOAD_DISK) ||
        rate->steps > LAST || rate->steps % WINDOW != 1)
        return;
    int64_t now_ns = clock_ns();
    executor_measure(s->executor, &use);
    if (rate->begin_ns) {
        struct seen mine = look(rate, s, now_ns, &use);
        judge(rate, s, &mine);
    }
    rate->steps_s = 0;
    rate->begin_ns = now_ns;
    rate->use = use;
}
