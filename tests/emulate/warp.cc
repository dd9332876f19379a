/* warp.cc - what the lanes of a warp do together: ballots, shuffles, barriers, products, loads of
 * matrices.
 *
 * Each lane puts its operands into its struct thread and waits in warp_meet().  When all lanes of
 * the mask have come, the last one computes the results of all, and wakes the others.
 */
#include "block.h"

/* Results of lanes that nobody may rely on. */
static const uint64_t UNDEFINED = ~(uint64_t)0;

static void do_ballot(struct warp *w, unsigned lanes)
{
    uint64_t votes = 0;
    for (int l = 0; l < LANES; l++)
        if (lanes >> l & 1)
            votes |= (w->threads[l].value & 1) << l;
    for (int l = 0; l < LANES; l++)
        if (lanes >> l & 1)
            w->threads[l].value = votes;
}

static int source_lane(const struct thread *t)
{
    int first = t->lane & ~(t->shuffle_width - 1), last = first + t->shuffle_width - 1, from;
    switch (t->shuffle) {
    case EMULATE_INDEX: return first + (t->shuffle_lane & (t->shuffle_width - 1));
    case EMULATE_XOR: from = t->lane ^ (t->shuffle_lane & 31); break;
    case EMULATE_DOWN: from = t->lane + (t->shuffle_lane & 31); break;
    default: from = t->lane - (t->shuffle_lane & 31); return from < first ? t->lane : from;
    }
    return from > last ? t->lane : from;
}

static void do_shuffle(struct warp *w, unsigned lanes)
{
    uint64_t given[LANES];
    for (int l = 0; l < LANES; l++)
        given[l] = lanes >> l & 1 ? w->threads[l].value : UNDEFINED;
    for (int l = 0; l < LANES; l++)
        if (lanes >> l & 1)
            w->threads[l].value = given[source_lane(&w->threads[l])];
}

static float half_of(enum dtype type, uint32_t pair, int high)
{
    uint16_t bits = (uint16_t)(high ? pair >> 16 : pair);
    return type == DTYPE_F16 ? float_of(fp16(), bits) : float_of(bf16(), bits);
}

/* d = a b, with the sum of each element in the order of k. */
__attribute__((optimize("O3"))) static void multiply(const float a[16][16], const float b[16][8],
                                                     float d[16][8])
{
    for (int i = 0; i < 16; i++) {
        float row[8] = {};
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++)
                row[j] += a[i][k] * b[k][j];
        memcpy(d[i], row, sizeof row);
    }
}

static void do_mma(struct warp *w)
{
    float a[16][16], b[16][8], d[16][8];
    for (int l = 0; l < LANES; l++) {
        const struct thread *t = &w->threads[l];
        int g = l / 4, c = l % 4 * 2;
        for (int i = 0; i < 4; i++) {
            a[g + i % 2 * 8][c + i / 2 * 8] = half_of(t->type, t->a[i], 0);
            a[g + i % 2 * 8][c + i / 2 * 8 + 1] = half_of(t->type, t->a[i], 1);
        }
        for (int i = 0; i < 2; i++) {
            b[c + i * 8][g] = half_of(t->type, t->b[i], 0);
            b[c + i * 8 + 1][g] = half_of(t->type, t->b[i], 1);
        }
    }
    multiply(a, b, d);
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < 4; i++)
            w->threads[l].d[i] += d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
}

static void do_matrices(struct warp *w)
{
    uint16_t rows[LANES][8];
    for (int l = 0; l < LANES; l++)
        memcpy(rows[l], w->threads[l].row, sizeof rows[l]);
    for (int l = 0; l < LANES; l++) {
        const struct thread *t = &w->threads[l];
        int row = l / 4, c = l % 4 * 2;
        for (int i = 0; i < 4; i++) {
            uint16_t(*m)[8] = rows + 8 * i;
            uint32_t low = t->transposed ? m[c][row] : m[row][c];
            uint32_t high = t->transposed ? m[c + 1][row] : m[row][c + 1];
            t->r[i] = high << 16 | low;
        }
    }
}

static bool same_meeting(const struct thread *t, const struct thread *o)
{
    return t->meeting == o->meeting && t->mask == o->mask && emulate_same_site(t->site, o->site);
}

/* When all live lanes of t's mask have come: do it, and wake all but runner.  Lanes that ended
 * are not waited for. */
static bool complete(struct thread *t, const struct thread *runner)
{
    struct warp *w = t->warp;
    unsigned lanes = t->mask & w->alive;
    enum meeting meeting = t->meeting;
    if ((w->waiting & lanes) != lanes)
        return false;
    for (unsigned left = lanes; left; left &= left - 1)
        if (!same_meeting(t, &w->threads[__builtin_ctz(left)]))
            return false;
    if ((meeting == AT_MMA || meeting == AT_MATRICES) && lanes != ALL_LANES)
        block_fail(cudaErrorLaunchFailure, "a matrix instruction without the whole warp (%08x)",
                   lanes);
    if (meeting == AT_BALLOT)
        do_ballot(w, lanes);
    else if (meeting == AT_SHUFFLE)
        do_shuffle(w, lanes);
    else if (meeting == AT_MMA)
        do_mma(w);
    else if (meeting == AT_MATRICES)
        do_matrices(w);
    w->waiting &= ~lanes;
    int first = (int)block_random(LANES);
    for (int i = 0; i < LANES; i++) {
        struct thread *o = &w->threads[(first + i) % LANES];
        if (!(lanes >> o->lane & 1))
            continue;
        o->meeting = NOWHERE;
        if (o != runner)
            block_wake(o);
    }
    return true;
}

void warp_meet(enum meeting meeting, struct emulate_site site, unsigned mask)
{
    struct thread *t = self();
    t->meeting = meeting;
    t->site = site;
    t->mask = mask;
    if (!(mask >> t->lane & 1))
        block_fail(cudaErrorLaunchFailure, "%s:%d: lane %d is not in its own mask %08x", site.file,
                   site.line, t->lane, mask);
    t->warp->waiting |= 1u << t->lane;
    if (!complete(t, t))
        block_suspend();
}

void warp_left(struct warp *w, int lane)
{
    for (int l = 0; l < LANES; l++)
        if (w->waiting >> l & 1 && w->threads[l].mask >> lane & 1)
            complete(&w->threads[l], nullptr);
}

/* ---- what kernels call ---- */

void emulate_warp_barrier(struct emulate_site site, unsigned mask)
{
    warp_meet(AT_WARP_BARRIER, site, mask);
}

unsigned emulate_ballot(struct emulate_site site, unsigned mask, bool vote)
{
    self()->value = vote;
    warp_meet(AT_BALLOT, site, mask);
    return (unsigned)self()->value;
}

uint64_t emulate_shuffle(struct emulate_site site, enum emulate_shuffle_kind kind, unsigned mask,
                         uint64_t value, int lane, int width)
{
    struct thread *t = self();
    if (width < 1 || width > LANES || (width & (width - 1)))
        block_fail(cudaErrorLaunchFailure, "%s:%d: a shuffle of width %d", site.file, site.line,
                   width);
    t->value = value;
    t->shuffle = kind;
    t->shuffle_lane = lane;
    t->shuffle_width = width;
    warp_meet(AT_SHUFFLE, site, mask);
    return t->value;
}

void emulate_mma(struct emulate_site site, enum dtype type, float *d, const uint32_t *a,
                 const uint32_t *b)
{
    struct thread *t = self();
    t->type = type;
    t->d = d;
    t->a = a;
    t->b = b;
    warp_meet(AT_MMA, site, ALL_LANES);
}

void emulate_load_matrices(struct emulate_site site, uint32_t *r, const void *row, bool transposed)
{
    struct thread *t = self();
    if ((uintptr_t)row % 16)
        emulate_misaligned("load_matrices", row, 16);
    if (!block_is_shared(row, 16))
        block_fail(cudaErrorIllegalAddress, "%s:%d: load_matrices of %p, not shared memory",
                   site.file, site.line, row);
    t->r = r;
    t->row = row;
    t->transposed = transposed;
    warp_meet(AT_MATRICES, site, ALL_LANES);
}
