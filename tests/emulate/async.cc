/* async.cc - copies to shared memory that go on beside the thread.
 *
 * The target is spoilt when the copy is issued and gets its data when the thread has waited for
 * its group: the earliest and the latest the hardware may write it.
 */
#include "block.h"

void emulate_async_copy(void *shared, const void *from, bool keep)
{
    struct thread *t = self();
    if ((uintptr_t)shared % 16)
        emulate_misaligned("async_copy16 to shared memory", shared, 16);
    if (!block_is_shared(shared, 16))
        block_fail(cudaErrorIllegalAddress, "async_copy16 to %p, not shared memory", shared);
    if (keep && (uintptr_t)from % 16)
        emulate_misaligned("async_copy16 from", from, 16);
    if (keep && block_is_shared(from, 1))
        block_fail(cudaErrorIllegalAddress, "async_copy16 from %p, shared memory", from);
    if (keep)
        (void)*(const volatile char *)from; /* it must be there */
    memset(shared, 0xff, 16);
    if (t->groups.empty())
        t->groups.push_back(0);
    t->groups.back()++;
    t->copies.push_back({shared, from, keep});
}

void emulate_async_commit(void)
{
    struct thread *t = self();
    if (t->groups.empty())
        t->groups.push_back(0);
    t->groups.push_back(0);
}

void emulate_async_wait(int pending)
{
    struct thread *t = self();
    size_t arrived = 0;
    int committed = (int)t->groups.size() - 1, ended = committed - pending;
    for (int g = 0; g < ended; g++)
        for (int i = 0; i < t->groups[(size_t)g]; i++, arrived++) {
            const struct copy *c = &t->copies[arrived];
            if (c->keep)
                memcpy(c->to, c->from, 16);
            else
                memset(c->to, 0, 16);
        }
    if (ended <= 0)
        return;
    t->copies.erase(t->copies.begin(), t->copies.begin() + (long)arrived);
    t->groups.erase(t->groups.begin(), t->groups.begin() + ended);
}
