EXTRA_DIST += tests/slurm/cluster.sh tests/slurm/run.sh tests/slurm/hello.c \
	tests/cli/helpers.inc tests/cli/config.sh tests/cli/commands.sh tests/cli/train.sh \
	tests/cli/signals.sh tests/cli/one_rank.sh tests/cli/bad_node.c tests/cli/runs.sh \
	tests/cli/faults.sh tests/cli/reshard.sh tests/cli/cuda.sh tests/cli/offload.sh
