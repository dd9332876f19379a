/* test_comm_world.c - failing together, control collectives, meshes of real ranks. */
#include <stdlib.h>
#include <string.h>

#include "comm/mesh.h"
#include "tests/mpi/check.h"

static void test_places(struct checks *c)
{
    struct world *w = c->world;
    double nodes = world_local_rank(w) == 0, lowest = world_rank(w);
    world_all_reduce(w, &nodes, 1, WORLD_SUM);
    CHECK(c, world_nodes(w) == (int)nodes);
    CHECK(c, world_local_rank(w) < world_local_size(w));
    CHECK(c, world_node(w) < world_nodes(w));
    CHECK(c, !strcmp(world_host_of_node(w, world_node(w)), world_host_of(w, world_rank(w))));
    CHECK(c, world_cores(w) >= 1);
    CHECK(c, world_host(w)[0] && world_library(w)[0]);
    world_all_reduce(w, &lowest, 1, WORLD_MIN);
    CHECK(c, lowest == 0);
}

static void test_agree(struct checks *c)
{
    struct world *w = c->world;
    int rank = world_rank(w), size = world_size(w);
    for (int k = 0; k < size; k++) {
        struct error err = {0};
        char expect[512];
        int rc = rank >= k ? error_set(&err, "the %dth fault", rank) : 0;
        if (rc)
            err.code = 70 + rank;
        CHECK(c, world_agree(w, rc, &err) == -1);
        snprintf(expect, sizeof expect, "the %dth fault", k);
        CHECK(c, strstr(err.text, expect) && err.code == 70 + k);
        snprintf(expect, sizeof expect, "rank %d (", k); /* said only if it is not all */
        CHECK(c, (k == 0) == (strncmp(err.text, expect, strlen(expect)) != 0));
        CHECK(c, world_agree(w, -1, &err) == -1);
        CHECK(c, !strstr(err.text + 1, "rank ")); /* agreed on twice, said once */
    }
    struct error err = {0};
    CHECK(c, world_agree(w, 0, &err) == 0 && !err.text[0]);
    CHECK(c, world_agree(w, rank == size - 1 ? -1 : 0, NULL) == -1);
}

static void test_control(struct checks *c)
{
    struct world *w = c->world;
    int rank = world_rank(w), size = world_size(w);
    double v[3] = {rank + 0.5, -rank, 1.0 / (rank + 3)}, sum = 1.0 / 3;
    int *all = calloc((size_t)size, sizeof *all), mine = 7 * rank;
    char text[5000];
    for (int root = 0; root < size; root++) {
        memset(text, rank, sizeof text);
        world_broadcast(w, text, sizeof text, root);
        CHECK(c, text[0] == root && text[sizeof text - 1] == root);
    }
    world_all_reduce(w, v, 3, WORLD_MAX);
    CHECK(c, v[0] == size - 0.5 && v[1] == 0 && v[2] == 1.0 / 3);
    v[2] = 1.0 / (rank + 3);
    world_all_reduce(w, v + 2, 1, WORLD_SUM);
    for (int r = 1; r < size; r++)
        sum += 1.0 / (r + 3);
    CHECK(c, v[2] == sum);
    world_all_gather(w, all, &mine, sizeof mine);
    for (int r = 0; r < size; r++)
        CHECK(c, all[r] == 7 * r);
    world_barrier(w);
    free(all);
}

/* More than goes in one slice, should the ranks be more than 32. */
static void test_large_parts(struct checks *c)
{
    enum { BYTES = 600001 };
    struct world *w = c->world;
    int rank = world_rank(w), size = world_size(w), wrong = 0;
    char *all = malloc((size_t)size * BYTES), *mine = malloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        mine[i] = (char)(rank * 5 + i);
    world_all_gather(w, all, mine, BYTES);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < BYTES; i++)
            wrong += all[(size_t)r * BYTES + (size_t)i] != (char)(r * 5 + i);
    CHECK(c, !wrong);
    free(mine);
    free(all);
}

/* Rank r contributes r * 1009 bytes, rank 0 none. */
static void test_gather(struct checks *c, int root)
{
    struct world *w = c->world;
    int rank = world_rank(w), size = world_size(w);
    size_t sizes[64] = {0}, bytes = (size_t)rank * 1009, at = 0;
    char *all = NULL, *mine = malloc(bytes + 1);
    struct error err = {0};
    memset(mine, 'a' + rank, bytes + 1);
    CHECK(c, !world_gather(w, &all, sizes, mine, bytes, root, &err));
    CHECK(c, (rank == root) == (all != NULL));
    for (int r = 0; all && r < size; r++) {
        CHECK(c, sizes[r] == (size_t)r * 1009);
        for (size_t i = 0; i < sizes[r]; i++)
            if (all[at++] != (char)('a' + r))
                CHECK(c, !"the bytes of each rank in order");
    }
    free(all);
    free(mine);
}

static int shape_product(const struct mesh_shape *s)
{
    return mesh_members(s, MESH_SETS - 1);
}

/* Do two ranks agree in all axes but these? */
static int are_members(const struct mesh_shape *shape, int a, int b, unsigned axes)
{
    struct mesh_coord one = mesh_coord_of_rank(shape, a), other = mesh_coord_of_rank(shape, b);
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (!(axes >> axis & 1) && one.at[axis] != other.at[axis])
            return 0;
    return 1;
}

/* In every group the members differ in its axes only, in the order of their numbers. */
static void test_groups(struct checks *c, struct mesh *mesh)
{
    struct mesh_shape shape = mesh_shape(mesh);
    struct error err = {0};
    for (unsigned axes = 1; axes < MESH_SETS; axes++) {
        struct group *g = mesh_group_of(mesh, axes);
        int32_t ranks[64], mine = world_rank(c->world);
        struct comm_op op;
        CHECK(c, !g == !mesh_has(&shape, axes));
        if (!g)
            continue;
        CHECK(c, group_size(g) == mesh_members(&shape, axes) &&
                     group_rank(g) == mesh_member(&shape, mesh_coord(mesh), axes));
        group_all_gather(g, COMM_GATHER, &op, ranks, &mine, 1, DTYPE_I32);
        CHECK(c, !comm_wait(&op, &err));
        for (int rank = 0, m = 0; rank < world_size(c->world); rank++)
            if (are_members(&shape, mine, rank, axes))
                CHECK(c, ranks[m++] == rank);
    }
    for (int axis = 0; axis < MESH_AXES; axis++)
        CHECK(c, !strcmp(group_name(mesh_group(mesh, axis)), mesh_axis_name(axis)));
    double ones = 1;
    struct comm_op op;
    group_all_reduce(mesh_group_of(mesh, MESH_DATA), COMM_REDUCE, &op, &ones, 1, DTYPE_F64,
                     GROUP_SUM);
    CHECK(c, !comm_wait(&op, &err));
    CHECK(c, ones == mesh_members(&shape, MESH_DATA));
}

static void test_meshes(struct checks *c)
{
    int size = world_size(c->world);
    for (int code = 0; code < 1024; code++) { /* every factorization into degrees 1 to 4 */
        struct mesh_shape shape = {0};
        for (int axis = 0; axis < MESH_AXES; axis++)
            shape.degree[axis] = 1 + (code >> 2 * axis) % 4;
        struct mesh *mesh = NULL;
        struct error err = {0};
        if (shape_product(&shape) != size)
            continue;
        CHECK(c, !mesh_create(&mesh, c->world, shape, &err));
        CHECK(c, c->mem.now_bytes[POOL_COMM] == mesh_staging_bytes(&shape));
        test_groups(c, mesh);
        mesh_destroy(mesh);
        CHECK(c, c->mem.now_bytes[POOL_COMM] == 0);
    }
    struct mesh *mesh = NULL;
    struct error err = {0};
    CHECK(c, mesh_create(&mesh, c->world, (struct mesh_shape){{size + 1, 1, 1, 1, 1}}, &err) == -1);
    CHECK(c, !mesh && strstr(err.text, "pipeline"));
    for (int k = 0; k < 2 && size > 1; k++) { /* the last rank asks for another shape */
        int last = world_rank(c->world) == size - 1;
        struct mesh_shape shape = {{1, 1, 1, 1, size}, last && k};
        if (last && !k)
            shape = (struct mesh_shape){{1, 1, size, 1, 1}, 0};
        CHECK(c, mesh_create(&mesh, c->world, shape, &err) == -1);
        CHECK(c, !mesh && strstr(err.text, "another parallel layout than rank 0"));
    }
    CHECK(c, c->mem.now_bytes[POOL_COMM] == 0);
    mesh_destroy(NULL);
}

int main(void)
{
    struct checks c = {0};
    if (checks_start(&c))
        return 1;
    test_places(&c);
    test_agree(&c);
    test_control(&c);
    test_large_parts(&c);
    for (int root = 0; root < world_size(c.world); root++)
        test_gather(&c, root);
    test_meshes(&c);
    return checks_finish(&c);
}
