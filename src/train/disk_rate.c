/* disk_rate.c - see disk_rate.h.
 *
 * The first steps are looked at in windows of a few: the first step of all, which warms up, is left
 * out, and so are windows with an evaluation or a checkpoint between their steps, or with a step
 * beside which one is written: its time is not in steps_s, while wall_s has it. */
#include "train/disk_rate.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"

enum { WINDOW = 4, LAST = 64 };

/* On the CPU the time spent waiting for the file is measured.  A GPU waits while its host does
 * other things, so there a disk counts as too slow when it is busy almost all the time. */
static const double much_waiting = 0.3, much_work = 0.9;

/* A rank's measurements, per step: seconds between ends of steps, of the step, in which the file
 * was busy, in which the rank waited for it; bytes read and written. */
struct measured {
    double wall_s, step_s, busy_s, waited_s, bytes[SWAP_QUEUES];
};

static struct measured measure(const struct disk_rate *rate, int64_t now_ns,
                               const struct swap_use *use)
{
    struct measured measured = {
        .wall_s = (double)(now_ns - rate->begin_ns) / 1e9 / WINDOW,
        .step_s = rate->steps_s / WINDOW,
        .busy_s = (double)(use->busy_ns - rate->use.busy_ns) / 1e9 / WINDOW,
        .waited_s = (double)(use->waited_ns - rate->use.waited_ns) / 1e9 / WINDOW,
    };
    for (int queue = 0; queue < SWAP_QUEUES; queue++)
        measured.bytes[queue] = (double)(use->bytes[queue] - rate->use.bytes[queue]) / WINDOW;
    return measured;
}

static double lost_s(const struct session *s, const struct measured *measured)
{
    return s->device->asynchronous ? measured->busy_s : measured->waited_s;
}

static int is_slow(const struct session *s, const struct measured *measured)
{
    double much = s->device->asynchronous ? much_work : much_waiting;
    int undisturbed = measured->wall_s < 1.1 * measured->step_s;
    return undisturbed && lost_s(s, measured) > much * measured->step_s;
}

static void warn_slow(const struct session *s, int rank, const struct measured *measured)
{
    char folder[CONFIG_TEXT + 16];
    double read = measured->bytes[SWAP_READ], written = measured->bytes[SWAP_WRITE];
    layout_swap_folder(&s->config, folder);
    log_warn(s->log,
             "the disk is slower than the steps: of %.3g s a step, rank %d (%s) %s for %.3g s "
             "(offload.path, %s: %.4g MB read and %.4g MB written a step, at %.3g GB/s); a faster "
             "disk, or host in place of disk, or a larger train.global_batch and "
             "train.micro_batch, which need the same bytes for more tokens, would help",
             measured->step_s, rank, world_host_of(s->world, rank),
             s->device->asynchronous ? "reads and writes" : "waits", lost_s(s, measured), folder,
             read / 1e6, written / 1e6, (read + written) / measured->busy_s / 1e9);
}

/* Warn, on rank 0, naming the slowest rank, if a rank spends much of its steps waiting for its
 * file.
 */
static void judge(struct disk_rate *rate, const struct session *s, const struct measured *mine)
{
    int slowest = -1, ranks = world_size(s->world);
    struct measured *measured = array_make((size_t)ranks, sizeof *measured);
    world_all_gather(s->world, measured, mine, sizeof *mine);
    for (int r = 0; r < ranks; r++)
        if (is_slow(s, &measured[r]) &&
            (slowest < 0 || lost_s(s, &measured[r]) > lost_s(s, &measured[slowest])))
            slowest = r;
    if (slowest >= 0 && !rate->warned++ && !world_rank(s->world))
        warn_slow(s, slowest, &measured[slowest]);
    free(measured);
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
        struct measured mine = measure(rate, now_ns, &use);
        judge(rate, s, &mine);
    }
    rate->steps_s = 0;
    rate->begin_ns = now_ns;
    rate->use = use;
}
