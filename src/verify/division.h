/* division.h - does a graph that is divided among ranks compute what the whole one does?
 *
 * A static check of one unit's graph, made before anything runs: along each mesh axis that a
 * parameter or an exchange of the graph names, every value is followed by what a rank has of it:
 * all of it, a term of a sum, its own rows, or its own columns.  It begins with how the parameters
 * are divided (struct graph_division), and the boundaries, which are whole or own rows.  Then
 * gradients are followed backward, by what the forward ops imply and not by the nodes of autodiff.
 */
#ifndef TRIREME_VERIFY_DIVISION_H
#define TRIREME_VERIFY_DIVISION_H

#include "graph/graph.h"

/* Refused are, with the unit, the op and the value by name,
 *  - a term of a sum where the sum is needed: a product over divided columns that reaches a norm,
 *    an activation, the loss, a parameter or the unit's end without its sum over these ranks, or
 *    with one over others;
 *  - a sum of what is no term: of what is whole already (a second sum), or of own rows or columns;
 *  - something whole that is added to a term, and so would count once for each rank;
 *  - own columns where an op needs all of a row, or a matrix divided otherwise;
 *  - own columns of stacked tensors read as those of one, or of others: a bias of one tensor for
 *    several matrices, halves of one tensor for SwiGLU, heads that are cut, or queries that are
 *    apart from their keys;
 *  - numbers dropped by other columns, rows or positions than those that the rank has;
 *  - a gradient that is a term where it has to be whole, or both in one (build_divided() left out),
 *    or whole where its sum is taken (build_divided() of what is read whole, or of a parameter).
 * mesh: the axes of more than one rank, by bits.  trained: 1: gradients too.  Returns 0, or -1 with
 * err set. */
int division_check(const struct graph *graph, const char *unit, unsigned mesh, int trained,
                   struct error *err);

#endif
