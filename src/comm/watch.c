/* watch.c - asking other ranks for a sign of life, and naming a rank when there is none.
 *
 * The communication thread calls watch_peers() now and then, which
 *
 *   1. receives answers to this rank's questions;
 *   2. answers the questions of other ranks: how long ago this rank's last sign of life was;
 *   3. asks the ranks that this rank's operations wait for;
 *   4. after run.hang_seconds without a sign of life finds the rank at the end of the chain, prints
 *      it, and ends the job.
 *
 * A question and its answer are messages of a few numbers.  A rank has at most one open question to
 * each other rank, and keeps it after its answer for step 4.
 */
#include "comm/watch.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alive.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "comm/transport.h"

/* The world's own group uses tag QUEUE_CONTROL, groups of group_create() tags from QUEUES on. */
enum { TAG_QUESTION = 0, TAG_ANSWER = 1 };
/* A rank waits for at most one other on each queue. */
enum { QUESTIONS = QUEUES, ANSWERS = 64 };

/* Parts of run.hang_seconds: of silence before the first question, and between questions. */
enum { FIRST_PART = 4, NEXT_PART = 8 };

#define SECOND_NS INT64_C(1000000000)

/* What is known of a rank that may hold up the job; later ones are surer signs. */
enum sign {
    SIGN_NEXT,  /* others wait for it */
    SIGN_IDLE,  /* it answers, waits for nobody, and has done nothing */
    SIGN_SILENT /* it does not answer */
};

struct suspect {
    int32_t rank;            /* -1: none */
    int32_t sign;            /* enum sign */
    char doing[ALIVE_DOING]; /* of a SIGN_IDLE: alive_doing() */
};

/* What a rank answers. */
struct answer {
    int64_t idle_ns;         /* since its last sign of life */
    int32_t waits;           /* 1: one of its threads waits for an operation */
    char doing[ALIVE_DOING]; /* alive_doing() */
    struct suspect suspect;
};

/* The last question to a rank; kept after its answer, for find_suspect(). */
struct question {
    int rank;                   /* -1: unused */
    int open, answered;         /* 1: waits for its answer; 1: has had an answer before */
    int64_t asked_ns;           /* when it was asked, in awake time */
    struct answer answer;       /* the latest one */
    MPI_Request sent, received; /* of the question, of the answer */
};

/* An answer of this rank that is being sent. */
struct reply {
    struct answer answer;
    MPI_Request sent;
};

struct watch {
    struct world *world;
    struct clock_awake clock;
    int64_t now_ns, life_ns; /* in awake time: now, and the last sign of life */
    int alive;               /* alive_count() of the last look */
    struct question question[QUESTIONS];
    struct reply reply[ANSWERS];
    char nothing; /* the bytes of a question */
};

/* Returns run.hang_seconds in ns; 0: never. */
static int64_t hang_ns(const struct watch *w)
{
    return __atomic_load_n(&w->world->hang_seconds, __ATOMIC_RELAXED) * SECOND_NS;
}

/* Returns how long a rank may take to answer before it counts as silent: half of run.hang_seconds,
 * 30 seconds at most.  On a machine that is busy with other work a process may get no core for
 * seconds.  As the first question comes after a quarter of run.hang_seconds, the rank that waits
 * for a silent one knows it after three quarters. */
static int64_t silence_ns(const struct watch *w)
{
    int64_t half = hang_ns(w) / 2;
    return half && half < 30 * SECOND_NS ? half : 30 * SECOND_NS;
}

/* Returns the last question to a rank, or NULL. */
static struct question *question_to(struct watch *w, int rank)
{
    for (int i = 0; i < QUESTIONS; i++)
        if (w->question[i].rank == rank)
            return &w->question[i];
    return NULL;
}

/* The suspect */

/* Make rank the suspect if this sign is surer than the present suspect's. */
static void suspect_if_surer(struct suspect *worst, int rank, int sign, const char *doing)
{
    if (rank < 0 || (worst->rank >= 0 && sign <= worst->sign))
        return;
    *worst = (struct suspect){.rank = rank, .sign = sign};
    snprintf(worst->doing, sizeof worst->doing, "%s", doing);
}

/* Find the rank with the surest sign of holding up the job, among the ranks that this one's
 * operations wait for and the suspects that those have named in their answers. */
static struct suspect find_suspect(struct watch *w, const struct thread_view *view)
{
    struct suspect worst = {.rank = -1, .sign = SIGN_NEXT};
    for (int i = 0; i < QUEUES; i++) {
        int rank = view->op[i] ? transport_waits_for(view->op[i]) : -1;
        const struct question *q = rank < 0 ? NULL : question_to(w, rank);
        suspect_if_surer(&worst, rank, SIGN_NEXT, "");
        if (!q)
            continue;
        if (q->open && w->now_ns - q->asked_ns > silence_ns(w))
            suspect_if_surer(&worst, rank, SIGN_SILENT, "");
        else if (q->answered && !q->answer.waits)
            suspect_if_surer(&worst, rank, SIGN_IDLE, q->answer.doing);
        else if (q->answered && q->answer.suspect.rank != w->world->rank)
            suspect_if_surer(&worst, q->answer.suspect.rank, q->answer.suspect.sign,
                             q->answer.suspect.doing);
    }
    return worst;
}

/* Answering */

/* Returns a reply whose last message has been sent; NULL: all are being sent, and further questions
 * wait in MPI. */
static struct reply *free_reply(struct watch *w)
{
    for (int i = 0; i < ANSWERS; i++) {
        int done = 0;
        if (MPI_Test(&w->reply[i].sent, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done)
            return &w->reply[i];
    }
    return NULL;
}

/* Answer the questions that have arrived. */
static void answer_questions(struct watch *w, const struct thread_view *view)
{
    MPI_Comm comm = w->world->comm;
    MPI_Status status;
    int asked = 0;
    struct reply *reply;
    while (MPI_Iprobe(MPI_ANY_SOURCE, TAG_QUESTION, comm, &asked, &status) == MPI_SUCCESS &&
           asked && (reply = free_reply(w))) {
        char nothing;
        if (MPI_Recv(&nothing, 1, MPI_CHAR, status.MPI_SOURCE, TAG_QUESTION, comm,
                     MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        reply->answer = (struct answer){.idle_ns = w->now_ns - w->life_ns,
                                        .waits = view->waits,
                                        .suspect = find_suspect(w, view)};
        alive_doing(reply->answer.doing);
        if (MPI_Isend(&reply->answer, sizeof reply->answer, MPI_BYTE, status.MPI_SOURCE, TAG_ANSWER,
                      comm, &reply->sent) != MPI_SUCCESS)
            reply->sent = MPI_REQUEST_NULL;
    }
}

/* Asking */

/* Receive the answer to a question, if it is there. */
static void hear(struct watch *w, struct question *q)
{
    int done = 0;
    if (!q->open || q->received == MPI_REQUEST_NULL ||
        MPI_Test(&q->received, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
        return;
    MPI_Wait(&q->sent, MPI_STATUS_IGNORE);
    q->open = 0;
    q->answered = 1;
    int64_t life_ns = q->asked_ns - q->answer.idle_ns; /* or later: the question took time too */
    w->life_ns = life_ns > w->life_ns ? life_ns : w->life_ns;
}

/* Returns the record for a new question to rank: that of the last question to it, or one that is
 * not open.  NULL: the last question is still open, or no record is free. */
static struct question *place_for(struct watch *w, int rank)
{
    struct question *q = question_to(w, rank);
    for (int i = 0; !q && i < QUESTIONS; i++)
        if (!w->question[i].open)
            q = &w->question[i];
    if (!q || q->open)
        return NULL;
    if (q->rank != rank)
        *q = (struct question){.rank = rank};
    return q;
}

/* Ask a rank, unless it has a question, or answered one a moment ago.  Where MPI fails the question
 * stays open: the rank counts as one that does not answer. */
static void ask(struct watch *w, int rank)
{
    struct question *q = place_for(w, rank);
    MPI_Comm comm = w->world->comm;
    if (!q || (q->answered && w->now_ns - q->asked_ns < hang_ns(w) / NEXT_PART))
        return;
    q->open = 1;
    q->asked_ns = w->now_ns;
    if (MPI_Irecv(&q->answer, sizeof q->answer, MPI_BYTE, rank, TAG_ANSWER, comm, &q->received) !=
        MPI_SUCCESS)
        q->received = MPI_REQUEST_NULL;
    if (MPI_Isend(&w->nothing, 1, MPI_CHAR, rank, TAG_QUESTION, comm, &q->sent) != MPI_SUCCESS)
        q->sent = MPI_REQUEST_NULL;
}

/* The end */

/* Returns how long this rank waits for another one to end the job, so that only one rank prints a
 * line.  The rank after the suspect ends the job at once, the others do seconds later if the job
 * has not ended: a launcher on a busy machine takes more than a second. */
static int64_t wait_for_others_ns(const struct watch *w, struct suspect suspect)
{
    int size = w->world->size;
    if (suspect.sign == SIGN_NEXT)
        return 4 * SECOND_NS;
    return (suspect.rank + 1) % size == w->world->rank ? 0 : 3 * SECOND_NS;
}

/* Print a line that names the suspect, and end the job. */
static void end_stuck_job(const struct watch *w, struct suspect suspect,
                          const struct thread_view *view)
{
    static const char *const what[] = {
        [SIGN_NEXT] = "is waited for",
        [SIGN_IDLE] = "answers, but has done nothing meanwhile",
        [SIGN_SILENT] = "does not answer: its process is stopped, or its node is gone",
    };
    const struct world *world = w->world;
    const char *doing = suspect.sign == SIGN_IDLE ? suspect.doing : "";
    char text[512] = "";
    for (int i = 0; i < QUEUES && !text[0]; i++)
        if (view->op[i] && transport_waits_for(view->op[i]) >= 0)
            transport_describe(view->op[i], text, sizeof text);
    log_urgent("error: rank %d (%s): no progress for %d s: rank %d (%s) %s%s%s; here %s",
               world->rank, world->host, (int)(hang_ns(w) / SECOND_NS), suspect.rank,
               world->hosts[suspect.rank], what[suspect.sign], doing[0] ? ": it has been " : "",
               doing, text);
    world_end_all(EXIT_HANG);
}

/* What the communication thread calls now and then (thread_watch): steps 1 to 4. */
static void watch_peers(void *arg, const struct thread_view *view)
{
    struct watch *w = arg;
    int alive = alive_count();
    w->now_ns = clock_awake_ns(&w->clock);
    if (view->moved || alive != w->alive)
        w->life_ns = w->now_ns;
    w->alive = alive;
    for (int i = 0; i < QUESTIONS; i++)
        hear(w, &w->question[i]);
    answer_questions(w, view);
    int64_t hang = hang_ns(w), quiet = w->now_ns - w->life_ns;
    if (!hang || quiet < hang / FIRST_PART || !view->waits)
        return;
    for (int i = 0; i < QUEUES; i++) {
        int rank = view->op[i] ? transport_waits_for(view->op[i]) : -1;
        if (rank >= 0)
            ask(w, rank);
    }
    struct suspect suspect = find_suspect(w, view);
    /* -1: what a thread waits for was submitted after the thread took over the last operations */
    if (suspect.rank >= 0 && quiet > hang + wait_for_others_ns(w, suspect))
        end_stuck_job(w, suspect, view);
}

struct watch *watch_open(struct world *world)
{
    struct watch *w = array_make(1, sizeof *w);
    w->world = world;
    w->alive = alive_count();
    for (int i = 0; i < QUESTIONS; i++)
        w->question[i].rank = -1;
    for (int i = 0; i < ANSWERS; i++)
        w->reply[i].sent = MPI_REQUEST_NULL;
    thread_set_watch(world->thread, watch_peers, w);
    return w;
}

/* Gives up questions that are not answered yet.  Where MPI may still read a question or a reply
 * that the other rank has not taken, the watch's memory stays until the process ends. */
void watch_close(struct watch *w)
{
    int is_read = 0, done;
    if (!w)
        return;
    for (int i = 0; i < ANSWERS; i++)
        if (MPI_Test(&w->reply[i].sent, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
            is_read = 1;
    for (int i = 0; i < QUESTIONS; i++)
        if (w->question[i].open) {
            if (w->question[i].received != MPI_REQUEST_NULL) {
                MPI_Cancel(&w->question[i].received);
                MPI_Request_free(&w->question[i].received);
            }
            if (MPI_Test(&w->question[i].sent, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
                is_read = 1;
        }
    if (!is_read)
        free(w);
}
