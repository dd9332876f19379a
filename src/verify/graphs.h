/* graphs.h - do the flats, the loss and the micro-batches follow from the units' graphs and the
 * layout?
 *
 * verify_values() takes from a flat over which ranks its gradient is summed, and from the program
 * how many micro-batches there are.  Here these are held against what they were made from: a
 * gradient that a flat forgets to sum is forgotten by every pass alike.
 */
#ifndef TRIREME_VERIFY_GRAPHS_H
#define TRIREME_VERIFY_GRAPHS_H

#include "program/program.h"

/* Of the units of the program's stage: each parameter of a unit's graph is in one of the flats that
 * the unit uses, trained, divided among ranks and summed over them as the graph says, and over the
 * ranks with data of their own; what the rank has of a divided one is the part after those of the
 * ranks before it; its gradients have the format in which the graph makes them, and one in 16 bits
 * is made by one node.  A flat is tensors and padding end to end, and equal shards.  Returns 0, or
 * -1 with err naming flat and tensor ("wrong flat"). */
int graphs_check_flats(const struct program *program, struct error *err);

/* Rows that ranks divide are the same rows in all of the program's graphs: every exchange of such
 * rows, and every boundary of own rows, has them in as many chunks.  Returns 0, or -1 with err
 * naming the units ("wrong rows"). */
int graphs_check_rows(const struct program *program, struct error *err);

/* What looks rows up in a table, adds them, or makes a part of the logits, takes the rows of the
 * table for those that the rank has, forward and backward, divided among ranks or not.  Returns 0,
 * or -1 with err naming the unit and the op ("wrong rows"). */
int graphs_check_tables(const struct program *program, struct error *err);

/* A training program's micro-batches, those of all ranks, are the global batch, and gradients are
 * those of the mean over its tokens: the loss's are multiplied by 1 / their number, on every rank
 * and in every unit that ends in a loss.  Returns 0, or -1 with err naming the unit ("wrong
 * factor"), or both numbers ("wrong count"). */
int graphs_check_loss(const struct program *program, struct error *err);

/* What units drop in training: in no other kind of program; by places in the whole tensors where
 * ranks divide nothing, else by what verify's other part checks (division.h); and each place of a
 * block by a site of its own, so that no two places of a model drop the same numbers.  Returns 0,
 * or -1 with err naming the unit and the op ("wrong dropout"). */
int graphs_check_dropout(const struct program *program, struct error *err);

#endif
