/* session_products.h - which products and attentions a session's GPU computes. */
#ifndef TRIREME_TRAIN_SESSION_PRODUCTS_H
#define TRIREME_TRAIN_SESSION_PRODUCTS_H

struct session;
struct error;

/* Let the GPU of this rank note the products and attentions of the session's programs
 * (executor_note_products()).  Between executor_allocate() and executor_prepare().  Not collective.
 * Returns 0, or -1 with err set. */
int session_note_products(struct session *session, struct error *err);

#endif
