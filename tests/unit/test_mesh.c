/* test_mesh.c - the arithmetic of meshes, and what groups say without ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "comm/launch.h"
#include "comm/mesh.h"

static struct mesh_shape shape_of(int pipeline, int replicate, int shard, int tensor)
{
    return (struct mesh_shape){{pipeline, replicate, shard, 1, tensor}};
}

static int product(const struct mesh_shape *s)
{
    return mesh_members(s, MESH_SETS - 1);
}

static void places_and_ranks_are_inverse(void **state)
{
    struct mesh_shape shape = {{2, 3, 5, 2, 7}};
    for (int rank = 0; rank < 2 * 3 * 5 * 2 * 7; rank++) {
        struct mesh_coord at = mesh_coord_of_rank(&shape, rank);
        for (int axis = 0; axis < MESH_AXES; axis++)
            assert_in_range(at.at[axis], 0, shape.degree[axis] - 1);
        assert_int_equal(mesh_rank(&shape, at), rank);
    }
}

static void tensor_runs_fastest(void **state)
{
    struct mesh_shape shape = {{2, 3, 5, 2, 7}};
    static const int stride[MESH_AXES] = {3 * 5 * 2 * 7, 5 * 2 * 7, 2 * 7, 7, 1};
    for (int axis = 0; axis < MESH_AXES; axis++) {
        struct mesh_coord at = {{0}};
        at.at[axis] = 1;
        assert_int_equal(mesh_rank(&shape, at), stride[axis]);
    }
}

static void what_is_left_is_filled_in(void **state)
{
    struct error err = {0};
    for (int axis = 0; axis < MESH_AXES; axis++) {
        struct mesh_shape shape = shape_of(1, 1, 1, 1);
        shape.degree[(axis + 1) % MESH_AXES] = 3;
        shape.degree[axis] = 0;
        assert_int_equal(mesh_resolve(&shape, 51, &err), 0);
        assert_int_equal(shape.degree[axis], 17);
        assert_int_equal(product(&shape), 51);
    }
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    struct mesh_shape wrong[] = {
        shape_of(1, 1, 1, 1),
        shape_of(2, 1, 1, 1),
        shape_of(0, 0, 1, 1),
        shape_of(1, 5, 0, 1),
        shape_of(-1, 1, 0, 1),
        shape_of(1, 1, 12, 1),
        shape_of(65536, 65536, 65536, 0),
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct error err = {0};
        assert_int_equal(mesh_resolve(&wrong[i], 6, &err), -1);
        assert_non_null(strstr(err.text, "6 ranks"));
    }
}

static void staging_is_modest(void **state)
{
    assert_int_equal(group_staging_bytes(1), 0);
    for (int size = 2; size <= 512; size++) {
        assert_true(group_staging_bytes(size) > 0);
        assert_true(group_staging_bytes(size) <= 16 << 20);
    }
    struct mesh_shape one = shape_of(1, 1, 1, 1), shard = shape_of(1, 1, 6, 1),
                      hybrid = shape_of(1, 2, 3, 1);
    assert_int_equal(mesh_staging_bytes(&one), 0);
    const struct mesh_options by_nccl = {0}, by_mpi = {.inter_node = COMM_INTER_NODE_MPI};
    size_t pair = mesh_reserve_bytes(&shard, &by_nccl); /* to gather and to reduce */
    assert_int_equal(mesh_reserve_bytes(&one, &by_nccl), 0);
    assert_true(pair > 0);
    assert_int_equal(mesh_reserve_bytes(&hybrid, &by_nccl), 2 * pair);
    assert_int_equal(mesh_reserve_bytes(&hybrid, &by_mpi), pair);
    const struct mesh_options few = {.max_ctas = 8}, many = {.min_ctas = 32},
                              usual = {.min_ctas = 4, .max_ctas = 64}, switches = {.nvls = 1},
                              copies = {.copy_engines = 1};
    assert_int_equal(mesh_reserve_bytes(&shard, &few), pair / 3);
    assert_int_equal(mesh_reserve_bytes(&shard, &many), pair / 3 * 4);
    assert_int_equal(mesh_reserve_bytes(&shard, &usual), pair);
    assert_true(mesh_reserve_bytes(&shard, &switches) > pair);
    assert_true(mesh_reserve_bytes(&shard, &copies) > pair);
    assert_int_equal(mesh_staging_bytes(&shard), group_staging_bytes(6));
    assert_int_equal(mesh_staging_bytes(&hybrid),
                     group_staging_bytes(2) + group_staging_bytes(3) + group_staging_bytes(6));
}

/* NCCL's memory by connections: a ring's, and where messages are exchanged those to each other rank
 * of a node of eight, by 16 thread blocks; by four where stages are neighbours. */
static void connections_are_counted(void **state)
{
    enum { RING = 24, PARTS = 16, POINT = 4 };
    const unsigned shards = 1u << (1 << MESH_SHARD), copies = 1u << (1 << MESH_REPLICATE);
    const struct mesh_options plain = {0}, by_parts = {.swaps = shards},
                              between = {.swaps = copies}, few = {.swaps = shards, .max_ctas = 8};
    struct mesh_shape pair = shape_of(1, 1, 2, 1), node = shape_of(1, 1, 8, 1),
                      hybrid = shape_of(1, 2, 8, 1), stages = shape_of(4, 1, 1, 1);
    size_t one = mesh_reserve_bytes(&pair, &plain) / (2 * RING);
    assert_int_equal(mesh_reserve_bytes(&pair, &by_parts), (RING + 2 * PARTS) * one);
    assert_int_equal(mesh_reserve_bytes(&node, &by_parts), (RING + 8 * PARTS) * one);
    assert_int_equal(mesh_reserve_bytes(&node, &few), (8 + 8 * 8) * one);
    assert_int_equal(mesh_reserve_bytes(&hybrid, &plain), 4 * RING * one);
    assert_int_equal(mesh_reserve_bytes(&hybrid, &between), (3 * RING + PARTS) * one);
    stages.points = 3;
    assert_int_equal(mesh_reserve_bytes(&stages, &plain), (RING + 2 * 2 * POINT) * one);
    const struct mesh_options many = {.min_ctas = 32, .max_ctas = 32}, two = {.max_ctas = 2};
    assert_int_equal(mesh_reserve_bytes(&stages, &many), (32 + 2 * 2 * POINT) * one);
    assert_int_equal(mesh_reserve_bytes(&stages, &two), (2 + 2 * 2 * 2) * one);
}

/* There are groups of one axis, of shards and of data; axes of one rank make no difference. */
static void groups_are_of_an_axis_of_shards_or_of_data(void **state)
{
    enum { SHARD = 1 << MESH_SHARD, TENSOR = 1 << MESH_TENSOR, PIPELINE = 1 << MESH_PIPELINE };
    const struct mesh_options by_nccl = {0}, by_mpi = {.inter_node = COMM_INTER_NODE_MPI};
    struct mesh_shape shape = shape_of(1, 2, 3, 5);
    size_t one = mesh_reserve_bytes(&shape, &by_nccl) / 6; /* shard 2, replicate, data, tensor 2 */
    assert_int_equal(mesh_has(&shape, SHARD | TENSOR), 0);
    assert_int_equal(mesh_has(&shape, MESH_SETS - 1), 0);
    assert_int_equal(mesh_has(&shape, TENSOR | PIPELINE), 1);
    assert_int_equal(mesh_has(&shape, MESH_DATA | PIPELINE), 1);
    assert_int_equal(mesh_members(&shape, SHARD | TENSOR), 15);
    assert_int_equal(mesh_staging_bytes(&shape), group_staging_bytes(2) + group_staging_bytes(3) +
                                                     group_staging_bytes(5) +
                                                     group_staging_bytes(6));
    assert_int_equal(mesh_reserve_bytes(&shape, &by_mpi), 4 * one);
}

static void groups_have_names(void **state)
{
    char text[MESH_AXES_TEXT];
    assert_string_equal(mesh_axes_name(1 << MESH_SHARD, text), "shard");
    assert_string_equal(mesh_axes_name(MESH_DATA, text), "data");
    assert_string_equal(mesh_axes_name(1 << MESH_SHARD | 1 << MESH_TENSOR, text),
                        "shard and tensor");
    assert_string_equal(mesh_axes_name(MESH_SETS - 1, text),
                        "pipeline, replicate, shard, context and tensor");
}

static void a_group_of_one_needs_no_world(void **state)
{
    struct group *g = group_self(NULL, "alone");
    struct error err = {0};
    struct comm_op op;
    float send[7] = {1, 2, 3, 4, 5, 6, 7}, recv[7] = {10, 10, 10, 10, 10, 10, 10};
    group_reduce_scatter(g, COMM_REDUCE, &op, recv, DTYPE_F32, send, 7, DTYPE_F32, 1);
    assert_true(comm_test(&op));
    assert_int_equal(comm_wait(&op, &err), 0);
    assert_int_equal(op.sent_bytes, 0);
    assert_true(op.start_ns >= op.submit_ns && op.end_ns >= op.start_ns);
    for (int i = 0; i < 7; i++)
        assert_true(recv[i] == 11 + i);
    group_recv(g, COMM_POINT, &op, recv, 7, DTYPE_F32, 0);
    assert_int_equal(comm_wait(&op, &err), -1);
    assert_non_null(strstr(err.text, "alone"));
    group_destroy(g);
}

static void clear_launcher(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_NTASKS",
                                        "SLURM_PROCID",
                                        "SLURM_LOCALID",
                                        "PMI_SIZE",
                                        "PMI_RANK",
                                        "WORLD_SIZE",
                                        "RANK",
                                        "LOCAL_RANK",
                                        "PMIX_NAMESPACE",
                                        "PMI_FD",
                                        "PMI_PORT",
                                        "PMI2_FD"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

static int outcome(int size, struct error *err)
{
    struct launch launch = launch_read();
    memset(err, 0, sizeof *err);
    return launch_check(&launch, size, err);
}

static void silent_singletons_are_refused(void **state)
{
    struct error err;
    clear_launcher();
    assert_int_equal(outcome(1, &err), 0);
    setenv("SLURM_NTASKS", "4", 1); /* a batch script */
    assert_int_equal(outcome(1, &err), -1);
    assert_non_null(strstr(err.text, "without srun"));
    setenv("SLURM_STEP_NUM_TASKS", "1", 1); /* srun -n 1 */
    assert_int_equal(outcome(1, &err), 0);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    assert_int_equal(outcome(0, &err), -1); /* no PMIx at all: before MPI starts */
    assert_int_equal(err.code, EXIT_USAGE);
    assert_string_equal(err.text, "Slurm started 4 tasks but MPI sees one: start with srun "
                                  "--mpi=pmix (srun --mpi=list shows whether this cluster has it)");
    setenv("SLURM_PROCID", "2", 1); /* the other tasks are silent */
    assert_int_equal(outcome(1, &err), -1);
    assert_string_equal(err.text, "");
    setenv("PMIX_NAMESPACE", "slurm.pmix.1.0", 1);
    assert_int_equal(outcome(0, &err), 0);
    assert_int_equal(outcome(4, &err), 0);
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1); /* mpirun -n 1 within the job */
    assert_int_equal(outcome(1, &err), 0);
    clear_launcher();
}

static void times_before_a_kill_are_not_negative(void **state)
{
    static const struct {
        const char *seconds;
        int ms;
    } rows[] = {
        {"7", 7000}, {"2147483", 2147483000}, {"2147484", 2147483000}, {"9999999", 2147483000}};
    struct launch launch = {.kind = LAUNCH_MPIRUN};
    unsetenv("PRTE_LAUNCHED");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setenv(LAUNCH_KILL_VARIABLE, rows[i].seconds, 1);
        assert_int_equal(launch_kill(&launch).ms, rows[i].ms);
        assert_int_equal(launch_kill(&launch).source, LAUNCH_KILL_SET);
    }
    unsetenv(LAUNCH_KILL_VARIABLE);
    assert_int_equal(launch_kill(&launch).ms, 1000);
}

/* torchrun, accelerate launch, deepspeed: also inside srun, whose PMIx would be for one task. */
static void ranks_of_torchrun_are_refused(void **state)
{
    struct error err;
    clear_launcher();
    setenv("WORLD_SIZE", "1", 1); /* a container's */
    setenv("RANK", "0", 1);
    setenv("LOCAL_RANK", "0", 1);
    assert_int_equal(outcome(1, &err), 0);
    setenv("WORLD_SIZE", "8", 1);
    assert_int_equal(outcome(1, &err), -1);
    assert_int_equal(err.code, EXIT_USAGE);
    assert_non_null(strstr(err.text, "mpirun -n 8"));
    assert_non_null(strstr(err.text, "srun --mpi=pmix"));
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    setenv("PMIX_NAMESPACE", "slurm.pmix.1.0", 1);
    assert_int_equal(outcome(0, &err), -1);
    setenv("RANK", "3", 1); /* the other tasks are silent */
    assert_int_equal(outcome(0, &err), -1);
    assert_string_equal(err.text, "");
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1); /* a script that sets both, under mpirun */
    assert_int_equal(outcome(8, &err), 0);
    clear_launcher();
    setenv("WORLD_SIZE", "8", 1); /* a pod's, which says nothing about this process */
    setenv("RANK", "0", 1);
    assert_int_equal(outcome(1, &err), 0);
    clear_launcher();
}

/* One task of each node says it, as its node may be the only one with such a limit. */
static void a_small_address_space_is_refused(void **state)
{
    struct rlimit before;
    struct error first = {0}, second = {0};
    clear_launcher();
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    struct rlimit small = {.rlim_cur = 100 << 20, .rlim_max = before.rlim_max};
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("SLURM_PROCID", "2", 1);
    setenv("SLURM_LOCALID", "0", 1);
    struct launch launch = launch_read();
    setenv("SLURM_PROCID", "3", 1);
    setenv("SLURM_LOCALID", "1", 1);
    struct launch next = launch_read();
    assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
    int rc = launch_check_memory(&launch, "n1", &first);
    int rc_next = launch_check_memory(&next, "n1", &second);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(rc, -1);
    assert_int_equal(first.code, EXIT_USAGE);
    assert_non_null(strstr(first.text, "100 MiB of address space on n1"));
    assert_int_equal(rc_next, -1);
    assert_string_equal(second.text, "");
    clear_launcher();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_and_ranks_are_inverse),
        cmocka_unit_test(tensor_runs_fastest),
        cmocka_unit_test(what_is_left_is_filled_in),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
        cmocka_unit_test(staging_is_modest),
        cmocka_unit_test(connections_are_counted),
        cmocka_unit_test(groups_are_of_an_axis_of_shards_or_of_data),
        cmocka_unit_test(groups_have_names),
        cmocka_unit_test(a_group_of_one_needs_no_world),
        cmocka_unit_test(silent_singletons_are_refused),
        cmocka_unit_test(times_before_a_kill_are_not_negative),
        cmocka_unit_test(ranks_of_torchrun_are_refused),
        cmocka_unit_test(a_small_address_space_is_refused),
    };
    return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}
