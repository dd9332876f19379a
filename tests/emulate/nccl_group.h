/* nccl_group.h - calls of the emulated NCCL that are kept until a group ends. */
#ifndef TRIREME_EMULATE_NCCL_GROUP_H
#define TRIREME_EMULATE_NCCL_GROUP_H

#include <functional>

#include "nccl_state.h"

struct ncclComm {
    std::shared_ptr<emulate::communicator> c;
};

namespace emulate
{

/* A communicator on the current device that has not met its ranks; NULL without a device. */
std::shared_ptr<communicator> communicator_make(const ncclConfig_t &config);

/* ncclGetUniqueId(). */
ncclResult_t identity_make(ncclUniqueId *id);

/* Become rank of ranks of those that have the same id.  Waits for them. */
ncclResult_t meet_by_identity(communicator &c, const ncclUniqueId &id, int rank, int ranks);

/* The number-th split of c; child is NULL for a rank without color.  Waits for all of c. */
ncclResult_t split(communicator &c, communicator *child, uint64_t number, int color, int key);

/* Work that waits for other ranks: run() in the caller's thread or a helper's, then over(). */
struct job {
    std::shared_ptr<communicator> comm;
    std::function<ncclResult_t()> run;
    std::function<void(ncclResult_t)> over;
};

/* Do a job now, or at the end of the group.  ncclInProgress where comm is not blocking. */
ncclResult_t start_job(struct job j);

/* NULL unless comm is alive. */
std::shared_ptr<communicator> communicator_of(ncclComm_t comm);

/* Check that comm may be given operations now. */
ncclResult_t usable(ncclComm_t comm, std::shared_ptr<communicator> *c);

/* What was in progress is over. */
void settle(communicator &c, ncclResult_t result);

} // namespace emulate

extern "C" {

/* Communicators of one rank this process has made: each costs memory for nothing. */
int emulate_nccl_single_rank_comms(void);
}

#endif
